//! Which sequence of the context a job uses, what it can reuse, and what must be forgotten for it. Pure: the context follows orders.

use llama_cpp_2::token::LlamaToken;

/// Fewest tokens worth reusing.
const WORTH_KEEPING: usize = 4;

/// One sequence of the context.
#[derive(Debug, Clone, Default)]
struct Sequence {
    /// Tokens in the cache, from position 0.
    tokens: Vec<LlamaToken>,
    scope: String,
    /// Cells that its job may come to use; `None` while idle.
    reserved: Option<usize>,
    last_used: u64,
}

/// All sequences and the cells they share.
#[derive(Debug, Clone)]
pub struct Sequences {
    all: Vec<Sequence>,
    capacity: usize,
    clock: u64,
    reuse: bool,
}

/// Where a job goes, and what the context must do first, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Sequences to forget.
    pub evict: Vec<usize>,
    /// The sequence to use.
    pub sequence: usize,
    /// Another sequence to copy the kept tokens from.
    pub copy_from: Option<usize>,
    /// Tokens of the prompt that need not be read again; what the sequence has beyond them is to be removed.
    pub keep: usize,
}

impl Sequences {
    /// `count` sequences that share `capacity` cells; `reuse` where the model can give tokens back.
    pub fn new(count: usize, capacity: usize, reuse: bool) -> Self {
        Self { all: vec![Sequence::default(); count], capacity, clock: 0, reuse }
    }

    /// Finds room for a prompt and its reply, `cells` together; `None` while running jobs leave none.
    pub fn place(&mut self, prompt: &[LlamaToken], cells: usize, scope: &str) -> Option<Placed> {
        let source = self.best_source(prompt, scope);
        let idle_source = source.filter(|&(index, _)| self.all[index].reserved.is_none());
        let mut target = self.target(source)?;
        let mut evict = self.evictions(cells, target, source.map(|(index, _)| index));
        if evict.is_none() {
            // Room only in place of the very sequence whose beginning is wanted.
            target = idle_source?.0;
            evict = self.evictions(cells, target, Some(target));
        }
        let evict = evict?;
        for &index in &evict {
            self.forget(index);
        }
        let keep = source.map_or(0, |(_, keep)| keep);
        let copy_from = source.map(|(index, _)| index).filter(|&index| index != target && keep > 0);
        self.clock += 1;
        self.all[target] = Sequence {
            tokens: prompt[..keep].to_vec(),
            scope: scope.to_owned(),
            reserved: Some(cells),
            last_used: self.clock,
        };
        Some(Placed { evict, sequence: target, copy_from, keep })
    }

    /// A token was added to the cache of a running job's sequence.
    pub fn push(&mut self, sequence: usize, token: LlamaToken) {
        self.all[sequence].tokens.push(token);
    }

    /// A job ended; its tokens stay for others until room is needed.
    pub fn release(&mut self, sequence: usize) {
        self.clock += 1;
        let entry = &mut self.all[sequence];
        (entry.reserved, entry.last_used) = (None, self.clock);
    }

    /// The context lost a sequence's tokens.
    pub fn forget(&mut self, sequence: usize) {
        self.all[sequence].tokens.clear();
    }

    /// Sequences that no job uses.
    pub fn idle(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.all.len()).filter(|&index| self.all[index].reserved.is_none())
    }

    /// The sequence with the longest beginning in common, and how much of it can be kept: all but the prompt's last token,
    /// which must be read to know what follows.
    fn best_source(&self, prompt: &[LlamaToken], scope: &str) -> Option<(usize, usize)> {
        if !self.reuse {
            return None;
        }
        let candidates = self.all.iter().enumerate().filter(|(_, sequence)| sequence.scope == scope);
        let kept = candidates
            .map(|(index, sequence)| (index, common(&sequence.tokens, prompt).min(prompt.len() - 1)));
        kept.filter(|&(_, keep)| keep >= WORTH_KEEPING)
            .max_by_key(|&(index, keep)| (keep, self.all[index].last_used))
    }

    /// The sequence to write in: the source itself if little of it would be lost, else an empty one, else the one unused longest.
    fn target(&self, source: Option<(usize, usize)>) -> Option<usize> {
        if let Some((index, keep)) = source {
            let sequence = &self.all[index];
            if sequence.reserved.is_none() && sequence.tokens.len() < keep + keep / 2 + 1 {
                return Some(index);
            }
        }
        let source = source.map(|(index, _)| index);
        let age = |&index: &usize| {
            (Some(index) == source, !self.all[index].tokens.is_empty(), self.all[index].last_used)
        };
        self.idle().min_by_key(age)
    }

    /// Which idle sequences must go so that `cells` fit in `target`; `None` if that is not enough. `source` stays.
    fn evictions(&self, cells: usize, target: usize, source: Option<usize>) -> Option<Vec<usize>> {
        let others = self.all.iter().enumerate().filter(|&(index, _)| index != target);
        let mut used: usize =
            others.map(|(_, sequence)| sequence.reserved.unwrap_or(sequence.tokens.len())).sum();
        let mut oldest: Vec<usize> =
            self.idle().filter(|&index| index != target && Some(index) != source).collect();
        oldest.sort_by_key(|&index| self.all[index].last_used);
        let mut evict = Vec::new();
        for index in oldest {
            if used + cells <= self.capacity {
                break;
            }
            let freed = self.all[index].tokens.len();
            if freed > 0 {
                used -= freed;
                evict.push(index);
            }
        }
        (used + cells <= self.capacity).then_some(evict)
    }
}

fn common(left: &[LlamaToken], right: &[LlamaToken]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests;
