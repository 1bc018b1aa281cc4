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
/// Longest step while nobody writes: how late a cancellation is noticed, or a job that just came. A short question is read at once,
/// and of a long one the more rows share the weights and the cells, the less each takes.
const WHILE_READING: Duration = Duration::from_secs(1);
/// Fewest prompt tokens in a step; also the first guess.
const LEAST: usize = 16;
/// Most prompt tokens in a step: one physical batch.
pub(super) const MOST: usize = 512;
/// Rows that kernels for processors multiply at once. What is left over costs as much as so many, or more: a step of seven takes longer
/// than one of eight.
const ROWS: usize = 4;
/// From so many rows on, attention on processors computes whole tiles of them against the cells of every sequence in the tile. For the
/// rows of one long prompt that takes a third of the time; for replies, each in a sequence of its own, many times as long.
const TILE: usize = 64;
/// A prompt pays for the replies in its tile once it has read a so-manieth part of their cells.
const PAYS: usize = 3;
/// A tile may take so many times the longest step: the same rows in smaller steps would take longer still.
const OVERDRAWN: usize = 2;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.3;
/// What is left of an old measurement of tiles with every step that had none: they may have become cheaper.
const FADES: f64 = 0.98;

/// What waits for the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Replies, each a row.
    pub writing: usize,
    /// Cells of their sequences.
    pub cells: usize,
    /// Prompt tokens that are not read.
    pub unread: usize,
    /// Cells of the prompt that is read next.
    pub depth: usize,
}

/// Learns what a step costs and says how many prompt tokens the next one can take.
#[derive(Debug)]
pub struct Budget {
    on_processor: bool,
    /// Seconds of a step that only writes.
    writing: Option<f64>,
    /// Seconds for each prompt token besides, in steps below a tile and, on a GPU, in all.
    by_row: Option<f64>,
    /// The same in steps of tiles.
    by_tile: Option<f64>,
}

impl Budget {
    /// For a model whose attention is computed on the processor, or on a GPU.
    pub fn new(on_processor: bool) -> Self {
        Self { on_processor, writing: None, by_row: None, by_tile: None }
    }

    /// How many of the unread prompt tokens to read in the next step.
    pub fn prompt_tokens(&self, load: Load) -> usize {
        let beside = |rows: usize| rows.saturating_sub(load.writing).max(LEAST);
        let by_row = |most: usize| {
            let fit = self.fitting(self.by_row, load.writing).unwrap_or(4 * LEAST);
            fit.clamp(LEAST, beside(most))
        };
        let fit = match (self.on_processor, self.tiles(load)) {
            (false, _) => by_row(MOST),
            (true, None) => by_row(TILE - 1),
            (true, Some(rows)) => beside(rows),
        };
        if load.unread <= fit { load.unread } else { fit - (load.writing + fit) % ROWS }
    }

    /// Rows of as many whole tiles as fit; `None` where smaller steps are better.
    fn tiles(&self, load: Load) -> Option<usize> {
        if PAYS * load.depth < load.cells {
            return None;
        }
        let one = TILE.saturating_sub(load.writing);
        let fit = self.fitting(self.by_tile, load.writing).unwrap_or(one);
        (OVERDRAWN * fit >= one).then(|| ((load.writing + fit) / TILE).clamp(1, MOST / TILE) * TILE)
    }

    /// Prompt tokens that keep a step beside `writing` replies as short as it should be, if it is known what one costs.
    fn fitting(&self, each: Option<f64>, writing: usize) -> Option<usize> {
        let (longest, spent) = if writing > 0 {
            let alone = self.writing.unwrap_or(0.0);
            let at_most = AT_MOST.as_secs_f64().max(AT_LEAST_TIMES * alone);
            (WHILE_WRITING.as_secs_f64().max((TIMES_WRITING * alone).min(at_most)), alone)
        } else {
            (WHILE_READING.as_secs_f64(), 0.0)
        };
        Some(((longest - spent).max(0.0) / each?.max(1e-9)) as usize)
    }

    /// Learns from a step with `writing` replies and `reading` prompt tokens.
    pub fn learn(&mut self, writing: usize, reading: usize, took: Duration) {
        let took = took.as_secs_f64();
        if reading == 0 {
            self.writing = Some(blend(self.writing, took));
            return;
        }
        let base = if writing > 0 { self.writing.unwrap_or(0.0) } else { 0.0 };
        // A small batch still reads all weights once, so its tokens seem dear; the next, larger one corrects that.
        let each = (took - base).max(took / 10.0) / reading as f64;
        if self.on_processor && writing + reading >= TILE {
            self.by_tile = Some(blend(self.by_tile, each));
        } else {
            self.by_row = Some(blend(self.by_row, each));
            self.by_tile = self.by_tile.map(|each| FADES * each);
        }
    }
}

fn blend(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| old + NEWEST * (new - old))
}

#[cfg(test)]
mod tests;
