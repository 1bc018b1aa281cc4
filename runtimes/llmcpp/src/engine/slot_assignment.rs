//! Assigns sequences to jobs: moves idle conversations out of the context, and restores the kept tokens of a prompt.

use llama_cpp_2::context::session::{LlamaStateSeqFlags, SeqState};

use super::{
    Job,
    kv_offload::OffloadedSequence,
    sequences::{Leaving, Placed, Source, is_most},
    step::Stage,
};

/// The sequence of a job, and the tokens that need not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotAssignment {
    pub(super) sequence: usize,
    /// Tokens of its prompt that are in the cache.
    pub(super) keep: usize,
}

impl Stage<'_> {
    /// Finds a sequence and restores the kept tokens of the prompt; `None` while running jobs leave no space.
    pub(super) fn assign(&mut self, job: &Job) -> Option<SlotAssignment> {
        let cells = job.prompt.len() + job.max_tokens as usize;
        let elsewhere = self.kv_offload.offers(&job.prompt, &job.scope);
        let mut placed = self.sequences.place(&job.prompt, cells, &job.scope, elsewhere)?;
        placed.keep = job.keepable(placed.keep);
        self.sequences.truncate(placed.sequence, placed.keep);
        // Taken before others are added, which could evict it.
        let offloaded = match placed.source {
            Source::PrefixMatch => self.kv_offload.take(&job.prompt, &job.scope),
            Source::Itself | Source::Other(_) => None,
        };
        for leaving in &placed.leaving {
            self.shelve(leaving);
            if leaving.sequence != placed.sequence {
                self.remove(leaving.sequence, 0);
            }
        }
        let Placed { sequence, keep, .. } = placed;
        let kept = self.restore(&placed, offloaded.as_ref().map(|offloaded| &offloaded.state));
        if let Some(offloaded) = offloaded.filter(|offloaded| !is_most(keep, offloaded.tokens.len())) {
            self.kv_offload.put(offloaded);
        }
        if kept {
            return Some(SlotAssignment { sequence, keep });
        }
        self.remove(sequence, 0);
        self.sequences.forget(sequence);
        Some(SlotAssignment { sequence, keep: 0 })
    }

    fn shelve(&mut self, Leaving { sequence, tokens, scope }: &Leaving) {
        if !self.kv_offload.takes(tokens.len()) {
            return;
        }
        // Before another is added: together they stay within their share of the memory.
        self.kv_offload.free_tokens(tokens.len());
        match self.context.state_seq_get(*sequence as i32, LlamaStateSeqFlags::empty()) {
            Ok(state) => {
                self.kv_offload.put(OffloadedSequence {
                    tokens: tokens.clone(),
                    scope: scope.clone(),
                    state,
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an idle conversation is dropped because its state cannot be copied");
            }
        }
    }

    /// Reduces the sequence to the kept tokens; `false` if the context cannot.
    fn restore(&mut self, placed: &Placed, offloaded: Option<&SeqState>) -> bool {
        let &Placed { sequence, source, keep, .. } = placed;
        let brought = match source {
            Source::Itself => return self.remove(sequence, keep),
            Source::Other(from) => {
                let (from, to) = (from as i32, sequence as i32);
                self.remove(sequence, 0)
                    && self.context.kv_cache_seq_cp(from, to, Some(0), Some(keep as u32)).is_ok()
            }
            Source::PrefixMatch => {
                self.remove(sequence, 0)
                    && offloaded
                        .is_some_and(|state| self.context.state_seq_set(state, sequence as i32).is_ok())
                    && self.remove(sequence, keep)
            }
        };
        brought && self.context.kv_cache_seq_pos_max(sequence as i32) + 1 == keep as i32
    }
}
