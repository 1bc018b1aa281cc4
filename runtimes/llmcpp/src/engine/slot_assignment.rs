//! Gives a job its sequence: what leaves goes to the kv_offload, what is kept comes from where it lies.

use llama_cpp_2::context::session::{LlamaStateSeqFlags, SeqState};

use super::{
    Job,
    kv_offload::OffloadedSequence,
    sequences::{Leaving, Placed, Source, is_most},
    step::Stage,
};

/// Where a job is, and what it need not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotAssignment {
    pub(super) sequence: usize,
    /// Tokens of its prompt that are in the cache.
    pub(super) keep: usize,
}

impl Stage<'_> {
    /// Finds a sequence and brings what is kept of the prompt; `None` while running jobs leave no room.
    pub(super) fn seat(&mut self, job: &Job) -> Option<SlotAssignment> {
        let cells = job.prompt.len() + job.max_tokens as usize;
        let elsewhere = self.kv_offload.offers(&job.prompt, &job.scope);
        let placed = self.sequences.place(&job.prompt, cells, &job.scope, elsewhere)?;
        // Taken down before others come, which could push it off.
        let lying = match placed.source {
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
        let kept = self.bring(&placed, lying.as_ref().map(|lying| &lying.state));
        if let Some(lying) = lying.filter(|lying| !is_most(keep, lying.tokens.len())) {
            self.kv_offload.put(lying);
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
        // Before there is one more: together they stay within their share of the memory.
        self.kv_offload.make_room(tokens.len());
        match self.context.state_seq_get(*sequence as i32, LlamaStateSeqFlags::empty()) {
            Ok(state) => {
                self.kv_offload.put(OffloadedSequence {
                    tokens: tokens.clone(),
                    scope: scope.clone(),
                    state,
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an idle conversation is forgotten: its state cannot be copied");
            }
        }
    }

    /// Leaves exactly the kept tokens in the sequence; false if the context cannot.
    fn bring(&mut self, placed: &Placed, lying: Option<&SeqState>) -> bool {
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
                    && lying.is_some_and(|state| self.context.state_seq_set(state, sequence as i32).is_ok())
                    && self.remove(sequence, keep)
            }
        };
        brought && self.context.kv_cache_seq_pos_max(sequence as i32) + 1 == keep as i32
    }
}
