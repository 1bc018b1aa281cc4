//! How much of a prompt to read in one step.

use std::time::Duration;

/// Longest step while replies flow: the gap between two tokens that a reader does not mind.
const WHILE_WRITING: Duration = Duration::from_millis(40);
/// The same where a step that only writes is slow by itself: so many times its length, up to a limit. While prompts wait,
/// few replies share the cost of a step, so it pays to be through with the prompts.
const TIMES_WRITING: f64 = 8.0;
/// That limit, unless it leaves hardly any time for prompts.
const AT_MOST: Duration = Duration::from_millis(250);
/// Then the limit is so many times the length of a step that only writes.
const AT_LEAST_TIMES: f64 = 4.0;
/// Longest step while nobody writes: how late a cancellation is noticed, or a job that just came. A short question is read at once.
const WHILE_READING: Duration = Duration::from_millis(500);
/// Fewest prompt tokens in a step; also the first guess.
const LEAST: usize = 16;
/// Most prompt tokens in a step: one physical batch.
pub(super) const MOST: usize = 512;
/// Rows that kernels for processors multiply at once. What is left over costs as much as so many, or more: a step of seven takes longer
/// than one of eight.
const ROWS: usize = 4;
/// From so many rows on, attention on processors computes each row against the cells of all sequences in its tile. Beside replies, each
/// in a sequence of its own, that takes longer than reading the rest of the prompt in the next step.
const TILE: usize = 64;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.3;

/// Learns what a step costs and says how many prompt tokens the next one can take.
#[derive(Debug)]
pub struct Budget {
    /// Most rows in a step with replies.
    most_beside: usize,
    /// Seconds of a step that only writes.
    writing: Option<f64>,
    /// Seconds for each prompt token besides.
    reading: Option<f64>,
}

impl Budget {
    /// For a model whose attention is computed on the processor, or on a GPU.
    pub fn new(on_processor: bool) -> Self {
        let most_beside = if on_processor { TILE - 1 } else { usize::MAX };
        Self { most_beside, writing: None, reading: None }
    }

    /// How many of the `unread` prompt tokens to read in the next step, beside `writing` replies.
    pub fn prompt_tokens(&self, writing: usize, unread: usize) -> usize {
        let fit = self.fitting(writing);
        if unread <= fit { unread } else { fit - (writing + fit) % ROWS }
    }

    /// Prompt tokens that keep a step beside `writing` replies as short as it should be.
    fn fitting(&self, writing: usize) -> usize {
        let most =
            if writing > 0 { MOST.min(self.most_beside.saturating_sub(writing)).max(LEAST) } else { MOST };
        let Some(each) = self.reading else { return most.min(4 * LEAST) };
        let (longest, spent) = if writing > 0 {
            let alone = self.writing.unwrap_or(0.0);
            let longest = AT_MOST.as_secs_f64().max(AT_LEAST_TIMES * alone);
            (WHILE_WRITING.as_secs_f64().max((TIMES_WRITING * alone).min(longest)), alone)
        } else {
            (WHILE_READING.as_secs_f64(), 0.0)
        };
        let fit = (longest - spent).max(0.0) / each.max(1e-9);
        (fit as usize).clamp(LEAST, most)
    }

    /// Learns from a step with `writing` replies and `reading` prompt tokens.
    pub fn learn(&mut self, writing: usize, reading: usize, took: Duration) {
        let took = took.as_secs_f64();
        if reading == 0 {
            self.writing = Some(blend(self.writing, took));
        } else {
            let base = if writing > 0 { self.writing.unwrap_or(0.0) } else { 0.0 };
            // A small batch still reads all weights once, so its tokens seem dear; the next, larger one corrects that.
            let each = (took - base).max(took / 10.0) / reading as f64;
            self.reading = Some(blend(self.reading, each));
        }
    }
}

fn blend(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| old + NEWEST * (new - old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stays_in_bounds(
            steps in proptest::collection::vec((0_usize..16, 0_usize..512, 0_u64..10_000_000), 0..50),
            writing in 0_usize..=32,
            on_processor: bool,
        ) {
            let mut budget = Budget::new(on_processor);
            for (writing, reading, micros) in steps {
                budget.learn(writing, reading, Duration::from_micros(micros));
                prop_assert!((LEAST - ROWS..=MOST).contains(&budget.prompt_tokens(writing, usize::MAX)));
            }
            prop_assert!((LEAST..=MOST).contains(&budget.fitting(writing)));
            let rows = writing + budget.prompt_tokens(writing, usize::MAX);
            prop_assert!(!on_processor || writing == 0 || rows < TILE, "{rows} rows beside replies");
        }

        #[test]
        fn a_step_that_leaves_some_unread_has_no_rows_left_over(
            each in 1_u64..100_000, unread in 0_usize..2000, writing in 0_usize..16
        ) {
            let mut budget = Budget::new(false);
            budget.learn(0, 100, Duration::from_micros(100 * each));
            let taken = budget.prompt_tokens(writing, unread);
            prop_assert!(taken <= unread);
            prop_assert!(taken == unread || (writing + taken).is_multiple_of(ROWS));
            prop_assert!(unread == 0 || taken > 0, "a prompt is read to its end");
        }
    }

    #[test]
    fn converges_to_the_target() {
        let mut budget = Budget::new(false);
        let cost = |writing: usize, reading: usize| {
            let base = if writing > 0 { 10_000 } else { 0 };
            Duration::from_micros(base + reading as u64 * 500)
        };
        for _ in 0..50 {
            budget.learn(4, 0, cost(4, 0));
            let reading = budget.prompt_tokens(4, usize::MAX);
            budget.learn(4, reading, cost(4, reading));
        }
        let reading = budget.prompt_tokens(4, usize::MAX);
        assert!((125..=155).contains(&reading), "70 ms are left for tokens of 0.5 ms each, got {reading}");
    }
}
