//! Which sequence of the context a job uses, what it can reuse, and what must leave for it. Pure: the context follows orders.

use llama_cpp_2::token::LlamaToken;

/// Fewest tokens worth reusing.
const WORTH_KEEPING: usize = 4;

/// Where conversations stay that no job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// In the context, until others need their cells.
    Here,
    /// Here until the next job comes, then elsewhere.
    PrefixMatch,
    /// Nowhere: the model cannot go back to their end.
    Nowhere,
}

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
    idle: Idle,
}

/// A conversation that must leave its sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The sequence.
    pub sequence: usize,
    /// What it holds, from position 0.
    pub tokens: Vec<LlamaToken>,
    /// Whose conversation it is.
    pub scope: String,
}

/// Where the beginning of a prompt is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the job's sequence itself, or nowhere.
    Itself,
    /// In another sequence, to be copied.
    Other(usize),
    /// Where conversations are kept that are not in the context.
    PrefixMatch,
}

/// The conversation kept elsewhere that begins with most of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixMatch {
    /// Tokens that they have in common; 0 where there is none.
    pub keep: usize,
    /// Cells that it takes to bring all of it back.
    pub cells: usize,
}

/// Where a job goes, and what the context must do first, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Conversations to move elsewhere, or to forget; that of the job's own sequence, where it is among them, is cut by `keep` alone.
    pub leaving: Vec<Leaving>,
    /// The sequence to use.
    pub sequence: usize,
    /// Where the kept tokens come from.
    pub source: Source,
    /// Tokens of the prompt that need not be read again; what the sequence has beyond them is to be removed.
    pub keep: usize,
}

/// What `place` decided.
#[derive(Debug)]
struct Plan {
    target: usize,
    leaving: Vec<usize>,
    source: Source,
    keep: usize,
}

impl Sequences {
    /// `count` sequences that share `capacity` cells.
    pub fn new(count: usize, capacity: usize, idle: Idle) -> Self {
        Self { all: vec![Sequence::default(); count], capacity, clock: 0, idle }
    }

    /// Finds room for a prompt and its reply, `cells` together; `None` while running jobs leave none.
    pub fn place(
        &mut self,
        prompt: &[LlamaToken],
        cells: usize,
        scope: &str,
        elsewhere: PrefixMatch,
    ) -> Option<Placed> {
        let here = self.best_source(prompt, scope);
        let brought = elsewhere.keep.min(prompt.len() - 1);
        let brings_more = brought > here.map_or(0, |(_, keep)| keep);
        let brought = brings_more.then(|| self.plan_to_bring(brought, cells.max(elsewhere.cells))).flatten();
        let Plan { target, leaving, source, keep } = brought.or_else(|| self.plan_from(here, cells))?;
        let stays = if source == Source::Itself { keep } else { 0 };
        let own = Some(target).filter(|&target| !is_most(stays, self.all[target].tokens.len()));
        let leaving = leaving.into_iter().chain(own).map(|index| self.leave(index)).collect();
        self.clock += 1;
        self.all[target] = Sequence {
            tokens: prompt[..keep].to_vec(),
            scope: scope.to_owned(),
            reserved: Some(cells),
            last_used: self.clock,
        };
        Some(Placed { leaving, sequence: target, source, keep })
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

    fn leave(&mut self, index: usize) -> Leaving {
        let sequence = &mut self.all[index];
        Leaving {
            sequence: index,
            tokens: std::mem::take(&mut sequence.tokens),
            scope: sequence.scope.clone(),
        }
    }

    /// The sequence with the longest beginning in common, and how much of it can be kept: all but the prompt's last token,
    /// which must be read to know what follows.
    fn best_source(&self, prompt: &[LlamaToken], scope: &str) -> Option<(usize, usize)> {
        if self.idle == Idle::Nowhere {
            return None;
        }
        let candidates = self.all.iter().enumerate().filter(|(_, sequence)| sequence.scope == scope);
        let kept = candidates
            .map(|(index, sequence)| (index, common(&sequence.tokens, prompt).min(prompt.len() - 1)));
        kept.filter(|&(_, keep)| worth_keeping(keep))
            .max_by_key(|&(index, keep)| (keep, self.all[index].last_used))
    }

    /// A plan for a conversation that comes from elsewhere.
    fn plan_to_bring(&self, keep: usize, cells: usize) -> Option<Plan> {
        let target = self.target(None)?;
        let leaving = self.leaving(cells, target, None)?;
        Some(Plan { target, leaving, source: Source::PrefixMatch, keep })
    }

    /// A plan for a prompt whose beginning is in another sequence, or nowhere.
    fn plan_from(&self, here: Option<(usize, usize)>, cells: usize) -> Option<Plan> {
        let (from, keep) = here.map_or((None, 0), |(index, keep)| (Some(index), keep));
        let target = self.target(here)?;
        if let Some(leaving) = self.leaving(cells, target, from) {
            let other = from.filter(|&index| index != target);
            return Some(Plan { target, leaving, source: other.map_or(Source::Itself, Source::Other), keep });
        }
        // Room only in place of the very sequence whose beginning is wanted.
        let target = from.filter(|&index| self.all[index].reserved.is_none())?;
        let leaving = self.leaving(cells, target, from)?;
        Some(Plan { target, leaving, source: Source::Itself, keep })
    }

    /// The source itself if little of it would be lost, else an empty one, else the one unused longest.
    fn target(&self, source: Option<(usize, usize)>) -> Option<usize> {
        if let Some((index, keep)) = source
            && self.all[index].reserved.is_none()
            && is_most(keep, self.all[index].tokens.len())
        {
            return Some(index);
        }
        let source = source.map(|(index, _)| index);
        let age = |&index: &usize| {
            (Some(index) == source, !self.all[index].tokens.is_empty(), self.all[index].last_used)
        };
        self.idle().min_by_key(age)
    }

    /// Which idle sequences must go so that `cells` fit in `target`; `None` if that is not enough. `source` stays.
    fn leaving(&self, cells: usize, target: usize, source: Option<usize>) -> Option<Vec<usize>> {
        let others = self.all.iter().enumerate().filter(|&(index, _)| index != target);
        let mut used: usize =
            others.map(|(_, sequence)| sequence.reserved.unwrap_or(sequence.tokens.len())).sum();
        let mut oldest: Vec<usize> =
            self.idle().filter(|&index| index != target && Some(index) != source).collect();
        oldest.sort_by_key(|&index| self.all[index].last_used);
        let mut leaving = Vec::new();
        for index in oldest {
            if self.idle == Idle::Here && used + cells <= self.capacity {
                break;
            }
            let freed = self.all[index].tokens.len();
            if freed > 0 {
                used -= freed;
                leaving.push(index);
            }
        }
        (used + cells <= self.capacity).then_some(leaving)
    }
}

/// Whether a conversation that keeps so many of all its tokens loses few.
pub(super) fn is_most(keep: usize, all: usize) -> bool {
    all < keep + keep / 2 + 1
}

/// Whether reading so many tokens again costs more than keeping them.
pub(super) fn worth_keeping(tokens: usize) -> bool {
    tokens >= WORTH_KEEPING
}

/// Tokens that both begin with.
pub(super) fn common(left: &[LlamaToken], right: &[LlamaToken]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests;
