//! Greedy, sampled and beam search over any decoder. The results are those of `transformers`, with the same order of equal scores.

use ndarray::Array2;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    Decoder,
    logits_processors::{self, Context},
    options::{EarlyStopping, Options},
};
use crate::{error::EngineError, job::Job, text::scores};

/// Added to a score to exclude it, as in the reference.
const OUT: f32 = -1.0e9;

/// Restricts the scores of the next token by the tokens before it.
pub type Rule<'r> = dyn Fn(&[u32], &mut [f32]) + 'r;

/// The prompt and limits of a generation.
#[derive(Clone, Copy)]
pub struct Task<'t> {
    /// Tokens that decoding begins with.
    pub begin: &'t [u32],
    /// Tokens of the input, if it is text.
    pub source: &'t [u32],
    /// Maximum number of tokens in total.
    pub longest: usize,
    /// A processor of the task, applied last: the tokens so far, and the scores of the next.
    pub rule: Option<&'t Rule<'t>>,
}

impl std::fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task")
            .field("begin", &self.begin)
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

/// A generated text.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// Its tokens without the prompt, with the one that ended it.
    pub tokens: Vec<u32>,
    /// Whether it ended with an end token rather than at the maximum length.
    pub has_ended: bool,
}

/// Generates one text. `on_token` receives each token as soon as it is final.
pub fn write(
    decoder: &mut dyn Decoder,
    options: &Options,
    task: Task<'_>,
    job: &Job,
    on_token: &mut dyn FnMut(u32),
) -> Result<Generated, EngineError> {
    if options.num_beams > 1 {
        beams(decoder, options, task, job, on_token)
    } else {
        single(decoder, options, task, job, on_token)
    }
}

fn single(
    decoder: &mut dyn Decoder,
    options: &Options,
    task: Task<'_>,
    job: &Job,
    on_token: &mut dyn FnMut(u32),
) -> Result<Generated, EngineError> {
    let mut chance = StdRng::seed_from_u64(options.seed.unwrap_or_else(rand::random));
    let mut tokens = task.begin.to_vec();
    let mut fed = 0;
    while tokens.len() < task.longest {
        job.step()?;
        let new = row(&tokens[fed..]);
        fed = tokens.len();
        let mut logits = decoder.step(new.view())?.row(0).to_vec();
        restrict(options, &tokens, task, &mut logits);
        let next = if options.do_sample {
            logits_processors::narrow(options, &mut logits);
            draw(&scores::softmax(&logits), &mut chance)
        } else {
            scores::argmax(logits)
        } as u32;
        tokens.push(next);
        on_token(next);
        if options.ends().contains(&next) {
            return Ok(Generated { tokens: tokens.split_off(task.begin.len()), has_ended: true });
        }
    }
    Ok(Generated { tokens: tokens.split_off(task.begin.len().min(tokens.len())), has_ended: false })
}

/// A text of a beam, finished or not.
#[derive(Debug, Clone)]
struct Beam {
    tokens: Vec<u32>,
    score: f32,
}

fn beams(
    decoder: &mut dyn Decoder,
    options: &Options,
    task: Task<'_>,
    job: &Job,
    on_token: &mut dyn FnMut(u32),
) -> Result<Generated, EngineError> {
    let width = options.num_beams;
    let begun = task.begin.len();
    // All rows begin equal: all but one are excluded until the first token distinguishes them.
    let mut running: Vec<Beam> = (0..width)
        .map(|beam| Beam { tokens: task.begin.to_vec(), score: if beam == 0 { 0.0 } else { OUT } })
        .collect();
    let mut finished: Vec<Beam> = Vec::new();
    let mut can_improve = true;
    let mut fed = 0;
    decoder.reorder(&vec![0; width])?;
    while running[0].tokens.len() < task.longest {
        job.step()?;
        let length = running[0].tokens.len();
        let new = Array2::from_shape_fn((width, length - fed), |(beam, place)| {
            i64::from(running[beam].tokens[fed + place])
        });
        fed = length;
        let logits = decoder.step(new.view())?;
        let candidates = candidates(&logits, &running, options, task);
        let ends = |beam: &Beam| {
            beam.tokens.len() >= task.longest
                || beam.tokens.last().is_some_and(|last| options.ends().contains(last))
        };
        let continued = |&(score, from, token): &(f32, usize, u32)| {
            let mut tokens = running[from].tokens.clone();
            tokens.push(token);
            Beam { tokens, score }
        };
        let next: Vec<Beam> = candidates.iter().map(continued).collect();
        // Only beams among the best `num_beams` may end.
        let is_full = finished.len() == width && options.early_stopping == EarlyStopping::Full;
        if can_improve && !is_full {
            let shared = ((length + 1 - begun) as f32).powf(options.length_penalty);
            let ended = next.iter().take(width).filter(|beam| ends(beam));
            finished.extend(ended.map(|beam| Beam { score: beam.score / shared, ..beam.clone() }));
            finished.sort_by(|a, b| b.score.total_cmp(&a.score));
            finished.truncate(width);
        }
        let all_ended = next.iter().all(ends);
        let mut kept: Vec<usize> = (0..next.len()).collect();
        let worth = |place: usize| next[place].score + if ends(&next[place]) { OUT } else { 0.0 };
        kept.sort_by(|&a, &b| worth(b).total_cmp(&worth(a)));
        kept.truncate(width);
        let order: Vec<usize> = kept.iter().map(|&place| candidates[place].1).collect();
        running = kept.iter().map(|&place| Beam { score: worth(place), ..next[place].clone() }).collect();
        can_improve = can_improve && improves(options, &running[0], &finished, begun, task.longest);
        let is_full = finished.len() == width && options.early_stopping == EarlyStopping::Full;
        if !can_improve || is_full || all_ended {
            break;
        }
        decoder.reorder(&order)?;
    }
    let best = finished.into_iter().next().unwrap_or_else(|| running.swap_remove(0));
    let tokens = best.tokens[begun..].to_vec();
    tokens.iter().for_each(|&token| on_token(token));
    let has_ended = tokens.last().is_some_and(|last| options.ends().contains(last));
    Ok(Generated { tokens, has_ended })
}

/// The most likely continuations of all beams: score, beam and token. Enough of them that `num_beams` have not ended.
fn candidates(
    logits: &Array2<f32>,
    running: &[Beam],
    options: &Options,
    task: Task<'_>,
) -> Vec<(f32, usize, u32)> {
    let kept = running.len() * (1 + options.ends().len()).max(2);
    let mut all: Vec<(f32, usize, u32)> = Vec::new();
    for (from, beam) in running.iter().enumerate() {
        let mut chances = log_softmax(&logits.row(from).to_vec());
        restrict(options, &beam.tokens, task, &mut chances);
        let mut order: Vec<u32> = (0..chances.len() as u32).collect();
        let greater =
            |&a: &u32, &b: &u32| chances[b as usize].total_cmp(&chances[a as usize]).then(a.cmp(&b));
        if kept < order.len() {
            order.select_nth_unstable_by(kept, greater);
            order.truncate(kept);
        }
        all.extend(order.into_iter().map(|token| (chances[token as usize] + beam.score, from, token)));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    all.truncate(kept);
    all
}

/// Whether the best beam could still become better than the worst finished text.
fn improves(options: &Options, best: &Beam, finished: &[Beam], begun: usize, longest: usize) -> bool {
    let length = match options.early_stopping {
        EarlyStopping::Never if options.length_penalty > 0.0 => longest - begun,
        _ => best.tokens.len() - begun,
    };
    let possible = best.score / (length as f32).powf(options.length_penalty);
    // An empty place has the lowest score.
    let worst = if finished.len() < options.num_beams { OUT } else { finished[finished.len() - 1].score };
    possible > worst
}

fn restrict(options: &Options, tokens: &[u32], task: Task<'_>, scores: &mut [f32]) {
    let place = Context { tokens, begun: task.begin.len(), longest: task.longest, source: task.source };
    logits_processors::apply(options, place, scores);
    if let Some(rule) = task.rule {
        rule(tokens, scores);
    }
}

fn row(tokens: &[u32]) -> Array2<i64> {
    Array2::from_shape_fn((1, tokens.len()), |(_, place)| i64::from(tokens[place]))
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(|logit| logit - most - sum.ln()).collect()
}

fn draw(shares: &[f32], chance: &mut StdRng) -> usize {
    let mut left = chance.random::<f32>();
    for (token, share) in shares.iter().enumerate() {
        left -= share;
        if left < 0.0 && *share > 0.0 {
            return token;
        }
    }
    scores::argmax(shares.iter().copied())
}
