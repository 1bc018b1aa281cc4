//! Chooses the sequence of the context for a job, what it can reuse, and what must be removed for it. Pure: the context is changed by the
//! caller.

use llama_cpp_2::token::LlamaToken;

/// Minimum number of tokens worth reusing.
const WORTH_KEEPING: usize = 4;

/// Where idle conversations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// In the context, until others need their cells.
    Here,
    /// In the context until the next job arrives, then outside.
    PrefixMatch,
    /// Not at all: the model cannot return to their end.
    Nowhere,
}

/// One sequence of the context.
#[derive(Debug, Clone, Default)]
struct Sequence {
    /// Tokens in the cache, from position 0.
    tokens: Vec<LlamaToken>,
    scope: String,
    /// Cells that its job may use; `None` while idle.
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

/// A conversation that must be removed from its sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The sequence.
    pub sequence: usize,
    /// Its tokens, from position 0.
    pub tokens: Vec<LlamaToken>,
    /// Its scope.
    pub scope: String,
}

/// Where the beginning of a prompt is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the job's sequence, or not at all.
    Itself,
    /// In another sequence, to be copied.
    Other(usize),
    /// Outside the context.
    PrefixMatch,
}

/// The conversation outside the context with the longest common beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixMatch {
    /// Number of common tokens; 0 without any.
    pub keep: usize,
    /// Cells that restoring all of it needs.
    pub cells: usize,
}

/// The sequence of a job, and what the context must do first, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Conversations to move outside, or to drop; that of the job's own sequence is only truncated to `keep`.
    pub leaving: Vec<Leaving>,
    /// The sequence to use.
    pub sequence: usize,
    /// Source of the kept tokens.
    pub source: Source,
    /// Number of tokens of the prompt that need not be read again; tokens of the sequence beyond them are removed.
    pub keep: usize,
}

/// The decision of `place`.
#[derive(Debug)]
struct Plan {
    target: usize,
    leaving: Vec<usize>,
    source: Source,
    keep: usize,
}

impl Sequences {
    /// Creates `count` sequences that share `capacity` cells.
    pub fn new(count: usize, capacity: usize, idle: Idle) -> Self {
        Self { all: vec![Sequence::default(); count], capacity, clock: 0, idle }
    }

    /// Finds a place for a prompt and its reply, `cells` together; `None` while running jobs leave none.
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

    /// A job ended; its tokens are kept until space is needed.
    pub fn release(&mut self, sequence: usize) {
        self.clock += 1;
        let entry = &mut self.all[sequence];
        (entry.reserved, entry.last_used) = (None, self.clock);
    }

    /// Only the first `keep` tokens of a sequence stay in the cache.
    pub fn truncate(&mut self, sequence: usize, keep: usize) {
        self.all[sequence].tokens.truncate(keep);
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

    /// Returns the sequence with the longest common beginning, and how much of it can be kept: at most all but the prompt's last token,
    /// which must be read to sample the next.
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

    /// A plan for a conversation from outside the context.
    fn plan_to_bring(&self, keep: usize, cells: usize) -> Option<Plan> {
        let target = self.target(None)?;
        let leaving = self.leaving(cells, target, None)?;
        Some(Plan { target, leaving, source: Source::PrefixMatch, keep })
    }

    /// A plan for a prompt whose beginning is in another sequence, or not at all.
    fn plan_from(&self, here: Option<(usize, usize)>, cells: usize) -> Option<Plan> {
        let (from, keep) = here.map_or((None, 0), |(index, keep)| (Some(index), keep));
        let target = self.target(here)?;
        if let Some(leaving) = self.leaving(cells, target, from) {
            let other = from.filter(|&index| index != target);
            return Some(Plan { target, leaving, source: other.map_or(Source::Itself, Source::Other), keep });
        }
        // Only the sequence with the common beginning can be replaced.
        let target = from.filter(|&index| self.all[index].reserved.is_none())?;
        let leaving = self.leaving(cells, target, from)?;
        Some(Plan { target, leaving, source: Source::Itself, keep })
    }

    /// The source itself if little of it would be lost, otherwise an empty one, otherwise the least recently used.
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

    /// Returns which idle sequences to remove so that `cells` fit in `target`; `None` if that does not suffice. `source` stays.
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

/// Whether a conversation of which this many of all tokens are kept loses few.
pub(super) fn is_most(keep: usize, all: usize) -> bool {
    all < keep + keep / 2 + 1
}

/// Whether reading this number of tokens again costs more than keeping them.
pub(super) fn worth_keeping(tokens: usize) -> bool {
    tokens >= WORTH_KEEPING
}

/// Number of tokens at the beginning of both.
pub(super) fn common(left: &[LlamaToken], right: &[LlamaToken]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests;
