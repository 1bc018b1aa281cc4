//! How many prompt tokens to read in one step.

use std::time::Duration;

/// Maximum duration of a step while replies are written: the gap between two tokens that a reader tolerates.
const WHILE_WRITING: Duration = Duration::from_millis(40);
/// The same if a step without prompts is already slow: this multiple of its duration, up to a limit. While prompts wait, few replies share
/// the cost of a step, so finishing the prompts is worth it.
const TIMES_WRITING: f64 = 8.0;
/// That limit, unless it leaves hardly any time for prompts.
const AT_MOST: Duration = Duration::from_millis(250);
/// In that case the limit is this multiple of the duration of a step without prompts.
const AT_LEAST_TIMES: f64 = 4.0;
/// Maximum duration of a step without replies: the delay of a cancellation or of a new job. A short prompt is read at once; the more rows
/// of a long prompt share the weights and the cells, the less time each takes.
const WHILE_READING: Duration = Duration::from_secs(1);
/// Minimum number of prompt tokens in a step; also the first estimate.
const LEAST: usize = 16;
/// Maximum number of prompt tokens in a step: one physical batch.
pub const MOST: usize = 512;
/// Number of rows that processor kernels multiply at once. A remainder costs at least as much: a step of seven rows takes longer than one
/// of eight.
const ROWS: usize = 4;
/// From this number of rows on, attention on processors computes whole tiles of them against the cells of every sequence in the tile. For
/// the rows of one long prompt that takes a third of the time; for replies, each in its own sequence, many times as long.
const TILE: usize = 64;
/// A prompt is worth the cost of replies in its tile once it has read this share of their cells.
const PAYS: usize = 3;
/// A tile may take this multiple of the maximum duration: the same rows in smaller steps would take even longer.
const OVERDRAWN: usize = 2;
/// Weight of the newest measurement.
const NEWEST: f64 = 0.3;
/// Factor by which an old measurement of tiles decays with every step without one: tiles may have become cheaper.
const FADES: f64 = 0.98;

/// The load of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Number of replies, each a row.
    pub writing: usize,
    /// Cells of their sequences.
    pub cells: usize,
    /// Number of unread prompt tokens.
    pub unread: usize,
    /// Cells of the prompt that is read next.
    pub depth: usize,
}

/// Measures the cost of steps, and computes how many prompt tokens the next one can read.
#[derive(Debug)]
pub struct Budget {
    on_processor: bool,
    /// Duration of a step without prompts, seconds.
    writing: Option<f64>,
    /// Additional seconds per prompt token, in steps below a tile and, on a GPU, in all steps.
    by_row: Option<f64>,
    /// The same in steps of tiles.
    by_tile: Option<f64>,
}

impl Budget {
    /// Creates one for a model whose attention is computed on the processor, or on a GPU.
    pub fn new(on_processor: bool) -> Self {
        Self { on_processor, writing: None, by_row: None, by_tile: None }
    }

    /// Returns how many of the unread prompt tokens to read in the next step.
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

    /// Rows of as many whole tiles as fit; `None` if smaller steps are better.
    fn tiles(&self, load: Load) -> Option<usize> {
        if PAYS * load.depth < load.cells {
            return None;
        }
        let one = TILE.saturating_sub(load.writing);
        let fit = self.fitting(self.by_tile, load.writing).unwrap_or(one);
        (OVERDRAWN * fit >= one).then(|| ((load.writing + fit) / TILE).clamp(1, MOST / TILE) * TILE)
    }

    /// Number of prompt tokens that keep a step with `writing` replies within its maximum duration, if the cost of a token is known.
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

    /// Measures a step with `writing` replies and `reading` prompt tokens.
    pub fn learn(&mut self, writing: usize, reading: usize, took: Duration) {
        let took = took.as_secs_f64();
        if reading == 0 {
            self.writing = Some(blend(self.writing, took));
            return;
        }
        let base = if writing > 0 { self.writing.unwrap_or(0.0) } else { 0.0 };
        // A small batch still reads all weights once, so its tokens seem expensive; the next, larger one corrects that.
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
