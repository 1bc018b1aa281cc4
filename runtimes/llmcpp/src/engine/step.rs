//! One step of the engine: fills a batch, decodes it, distributes the results.

use std::{sync::Arc, time::Instant};

use island_protocol::job::{Failure, FailureCode};
use llama_cpp_2::{
    DecodeError,
    context::{LlamaContext, session::SeqState},
    llama_batch::LlamaBatch,
    token::LlamaToken,
};

use super::{
    Job,
    budget::{Budget, Load, MOST},
    draft::{DraftCost, DraftCounts},
    kv_offload::KvOffload,
    order,
    sequences::Sequences,
    slot::{Slot, Written},
    slot_assignment::SlotAssignment,
};
use crate::model::Model;

/// The rows of a slot in the batch.
#[derive(Debug, Clone, Default)]
struct Share {
    /// Number of prompt tokens; 0 for one that is writing.
    reading: usize,
    /// Row whose logits choose its next token.
    row: Option<i32>,
    /// Guessed tokens in the rows behind it.
    draft: Vec<LlamaToken>,
}

/// The context and the jobs in it.
pub(super) struct Stage<'m> {
    pub(super) model: &'m Model,
    pub(super) context: LlamaContext<'m>,
    pub(super) batch: LlamaBatch<'static>,
    pub(super) sequences: Sequences,
    pub(super) kv_offload: KvOffload<SeqState>,
    pub(super) slots: Vec<Slot>,
    pub(super) budget: Budget,
    /// What checking guesses costs; `None` if nothing is guessed.
    pub(super) draft_cost: Option<DraftCost>,
    pub(super) draft_counts: Arc<DraftCounts>,
    /// Number of steps.
    pub(super) steps: u64,
}

impl Stage<'_> {
    /// A slot for a job.
    pub(super) fn slot(&self, job: Job, assignment: SlotAssignment) -> Slot {
        Slot::new(job, assignment.sequence, assignment.keep, self.model, self.draft_cost.is_some())
    }

    /// Decodes one batch for all slots, and at most one picture before it.
    pub(super) fn step(&mut self) {
        self.read_picture();
        let shares = self.fill();
        if self.batch.n_tokens() == 0 {
            return;
        }
        let reading: usize = shares.iter().map(|share| share.reading).sum();
        let writing = shares.iter().filter(|share| share.reading == 0 && share.row.is_some()).count();
        let began = Instant::now();
        if let Err(error) = self.decode() {
            tracing::error!(%error, reading, writing, "a batch cannot be decoded");
            return self.fail_all(&error);
        }
        let took = began.elapsed();
        let is_drafted = shares.iter().any(|share| !share.draft.is_empty());
        if !is_drafted {
            self.budget.learn(writing, reading, took);
        }
        if let Some(cost) = self.draft_cost.as_mut().filter(|_| writing == 1 && reading == 0) {
            cost.learn(is_drafted, took);
        }
        self.hand_out(&shares);
    }

    /// Reads the picture at which the first of the waiting prompts is. It is not a part of a batch: its embeddings are computed first.
    fn read_picture(&mut self) {
        let at_picture = |&index: &usize| self.slots[index].is_reading() && self.slots[index].readable() == 0;
        let Some(index) = self.reading_order().into_iter().find(at_picture) else { return };
        let slot = &mut self.slots[index];
        let Some(picture) = slot.job.next_picture(slot.read).map(|placed| Arc::clone(&placed.picture)) else {
            return;
        };
        let (position, sequence) = (slot.position(), slot.sequence);
        let read = match &self.model.vision {
            Some(vision) => vision.read(&picture, &mut self.context, position, sequence, MOST),
            None => Err(Failure::of_host(FailureCode::InternalError, "the model has no projector")),
        };
        match read {
            Ok(()) => {
                picture.placeholders.iter().for_each(|&token| self.sequences.push(sequence, token));
                slot.has_read(picture.placeholders.len());
            }
            Err(failure) => {
                let slot = self.slots.swap_remove(index);
                self.drop_sequence(slot, failure);
            }
        }
    }

    /// Ends the use of a sequence by its job. Where positions are not indices, its tokens cannot be found again.
    pub(super) fn release(&mut self, slot: &Slot) {
        if slot.job.moves_positions() {
            self.remove(slot.sequence, 0);
            self.sequences.forget(slot.sequence);
        }
        self.sequences.release(slot.sequence);
    }

    /// The slot whose turn it is, where a batch may have the rows of one slot only.
    fn turn(&mut self) -> Option<usize> {
        if !self.model.takes_turns {
            return None;
        }
        self.steps += 1;
        let (index, slot) = self.slots.iter_mut().enumerate().min_by_key(|(_, slot)| slot.latest_step)?;
        slot.latest_step = self.steps;
        Some(index)
    }

    /// Slots that write first, one token each; then prompts, within the budget.
    fn fill(&mut self) -> Vec<Share> {
        self.batch.clear();
        let turn = self.turn();
        let has_turn = |index: usize| turn.is_none_or(|turn| turn == index);
        let mut shares = vec![Share::default(); self.slots.len()];
        // Rows of other replies are certain to be used.
        let draft_cost = self.draft_cost.as_ref().filter(|_| self.slots.len() == 1);
        for (index, (slot, share)) in self.slots.iter().zip(&mut shares).enumerate() {
            if let Some(token) = slot.next.filter(|_| !slot.is_reading() && has_turn(index)) {
                share.row = Some(self.batch.n_tokens());
                add(&mut self.batch, token, slot.position(), slot.sequence, true);
                self.sequences.push(slot.sequence, token);
                share.draft = draft_cost.map(|cost| slot.draft(cost).to_vec()).unwrap_or_default();
                for (position, &token) in (slot.position() + 1..).zip(&share.draft) {
                    add(&mut self.batch, token, position, slot.sequence, true);
                }
            }
        }
        let mut order = self.reading_order();
        order.retain(|&index| has_turn(index));
        let mut left = self.budget.prompt_tokens(self.load(&order));
        for index in order {
            let slot = &self.slots[index];
            let unread = slot.prompt().unread;
            let take = slot.readable().min(left);
            for offset in 0..take {
                let token = slot.job.prompt[slot.read + offset];
                let position = slot.job.position(slot.read + offset);
                let is_last = offset + 1 == unread;
                if is_last {
                    shares[index].row = Some(self.batch.n_tokens());
                }
                add(&mut self.batch, token, position, slot.sequence, is_last);
                self.sequences.push(slot.sequence, token);
            }
            shares[index].reading = take;
            left -= take;
        }
        shares
    }

    /// The load, with the prompts in this order.
    fn load(&self, order: &[usize]) -> Load {
        let writing = self.slots.iter().filter(|slot| !slot.is_reading());
        Load {
            writing: self.batch.n_tokens() as usize,
            cells: writing.map(Slot::position).sum(),
            unread: self.slots.iter().map(|slot| slot.prompt().unread).sum(),
            depth: order.first().map_or(0, |&index| self.slots[index].read),
        }
    }

    fn reading_order(&self) -> Vec<usize> {
        let mut prompts: Vec<_> = (self.slots.iter().enumerate())
            .filter(|(_, slot)| slot.is_reading())
            .map(|(index, slot)| (index, slot.prompt()))
            .collect();
        order::sort(&mut prompts);
        prompts.into_iter().map(|(index, _)| index).collect()
    }

    fn decode(&mut self) -> Result<(), DecodeError> {
        match self.context.decode(&mut self.batch) {
            Err(DecodeError::NoKvCacheSlot) => {
                // By our count there is space; if the cache disagrees, idle conversations are removed first.
                self.forget_idle();
                self.context.decode(&mut self.batch)
            }
            decoded => decoded,
        }
    }

    fn forget_idle(&mut self) {
        let idle: Vec<usize> = self.sequences.idle().collect();
        for sequence in idle {
            self.remove(sequence, 0);
            self.sequences.forget(sequence);
        }
    }

    /// Removes a sequence's tokens from position `from` on; `false` if the context cannot remove a part.
    pub(super) fn remove(&mut self, sequence: usize, from: usize) -> bool {
        self.context.kv_cache_seq_rm(sequence as i32, Some(from as u32), None).is_ok()
    }

    fn hand_out(&mut self, shares: &[Share]) {
        let mut ended = Vec::new();
        for (index, (slot, share)) in self.slots.iter_mut().zip(shares).enumerate() {
            slot.waited += 1;
            if share.reading > 0 {
                slot.has_read(share.reading);
            }
            let Some(row) = share.row else { continue };
            let behind = slot.position() + 1;
            let Written { right, end } = slot.write(&self.context, row, &share.draft, self.model);
            share.draft[..right].iter().for_each(|&token| self.sequences.push(slot.sequence, token));
            self.draft_counts.add(share.draft.len(), right);
            let from = Some((behind + right) as u32);
            if right < share.draft.len()
                && self.context.kv_cache_seq_rm(slot.sequence as i32, from, None).is_err()
            {
                ended.push((index, Err("llama.cpp cannot remove guessed tokens")));
            } else if let Some(reason) = end {
                ended.push((index, Ok(reason)));
            }
        }
        for (index, end) in ended.into_iter().rev() {
            let slot = self.slots.swap_remove(index);
            match end {
                Ok(reason) => {
                    self.release(&slot);
                    slot.complete(reason);
                }
                Err(what) => self.drop_sequence(slot, Failure::of_host(FailureCode::InternalError, what)),
            }
        }
    }

    /// Fails a job whose tokens in the context are not known.
    fn drop_sequence(&mut self, slot: Slot, failure: Failure) {
        self.remove(slot.sequence, 0);
        self.sequences.forget(slot.sequence);
        self.sequences.release(slot.sequence);
        slot.fail(failure);
    }

    fn fail_all(&mut self, error: &DecodeError) {
        let failure =
            Failure::of_host(FailureCode::InternalError, format!("llama.cpp cannot decode a batch: {error}"));
        for slot in std::mem::take(&mut self.slots) {
            self.drop_sequence(slot, failure.clone());
        }
    }
}

fn add(
    batch: &mut LlamaBatch<'_>,
    token: llama_cpp_2::token::LlamaToken,
    position: usize,
    sequence: usize,
    logits: bool,
) {
    batch
        .add(token, position as i32, &[sequence as i32], logits)
        .expect("the batch has capacity for every slot and the largest budget");
}
