//! UniPC: a predictor, corrected once the model's output at its result is known.

use island_runtimes_kit::error::EngineError;

use super::{
    Draw, Scheduler, combine,
    config::{Config, LastSigma, Prediction, Spacing},
    dpm, sigmas, spacing, table,
};

#[derive(Debug)]
pub(super) struct UniPc {
    timesteps: Vec<f64>,
    sigmas: Vec<f64>,
    prediction: Prediction,
    order: usize,
    is_bh1: bool,
    lowers_at_the_end: bool,
    uncorrected: Vec<usize>,
    /// Clean samples of earlier steps, the latest last.
    seen: Vec<Vec<f32>>,
    /// The sample before the last step, and its order.
    last: Option<(Vec<f32>, usize)>,
}

/// The terms of one update between two noise levels.
struct Update {
    keep: f64,
    gain: f64,
    scale: f64,
    /// Positions of earlier levels in units of the step; those of the past are negative.
    places: Vec<f64>,
    /// The required sums of the differences' weights, by power of the position.
    moments: Vec<f64>,
}

impl UniPc {
    pub(super) fn new(config: &Config, steps: usize) -> Result<Self, EngineError> {
        let trained = sigmas::trained(&table::alphas_cumprod(config));
        let (highest, lowest) = (trained[trained.len() - 1], trained[0]);
        let (timesteps, sigmas) = if let Some(levels) = sigmas::curve(config, highest, lowest, steps) {
            let times = levels.iter().map(|sigma| sigmas::time_of(*sigma, &trained));
            let whole = config.karras();
            let times = times.map(|time| if whole { time.round_ties_even() } else { time.trunc() });
            let least = levels[steps - 1];
            (times.collect(), sigmas::ended(config, levels, least))
        } else {
            let times = spacing::intervals(config, config.spacing(Spacing::Linspace), steps);
            let levels = times.iter().map(|time| sigmas::at(&trained, *time)).collect();
            (times, sigmas::ended(config, levels, lowest))
        };
        let to_zero = config.final_sigmas_type != Some(LastSigma::SigmaMin);
        Ok(Self {
            timesteps,
            sigmas,
            prediction: config.prediction_type,
            order: config.order(3)?,
            is_bh1: config.solver_type.as_deref() == Some("bh1"),
            // A step to zero noise has infinite length in its parameter and no second order.
            lowers_at_the_end: config.lower_order_final || to_zero,
            uncorrected: config.disable_corrector.clone(),
            seen: Vec::new(),
            last: None,
        })
    }

    fn update(&self, from: usize, to: usize, order: usize) -> Update {
        let (sigma, sigma_to) = (self.sigmas[from], self.sigmas[to]);
        let (signal_to, noise_to) = sigmas::shares(sigma_to);
        let (_, noise) = sigmas::shares(sigma);
        let start = sigmas::lambda(sigma);
        let h = sigmas::lambda(sigma_to) - start;
        let mut places: Vec<f64> =
            (1..order).map(|back| (sigmas::lambda(self.sigmas[from - back]) - start) / h).collect();
        places.push(1.0);
        let phi = (-h).exp_m1();
        let scale = if self.is_bh1 { -h } else { phi };
        let (mut term, mut factorial) = (phi / -h - 1.0, 1.0);
        let mut moments = Vec::with_capacity(order);
        for power in 1..=order {
            moments.push(term * factorial / scale);
            factorial *= (power + 1) as f64;
            term = term / -h - 1.0 / factorial;
        }
        Update { keep: noise_to / noise, gain: -signal_to * phi, scale: -signal_to * scale, places, moments }
    }

    /// Adds the weighted differences between earlier clean samples and the latest.
    fn past(&self, next: Vec<f32>, update: &Update, weights: &[f64]) -> Vec<f32> {
        let latest = &self.seen[self.seen.len() - 1];
        weights.iter().zip(&update.places).enumerate().fold(next, |next, (at, (weight, place))| {
            let earlier = &self.seen[self.seen.len() - 2 - at];
            let part = update.scale * weight / place;
            combine([(1.0, next.as_slice()), (part, earlier.as_slice()), (-part, latest.as_slice())])
        })
    }

    fn predict(&self, index: usize, sample: &[f32], order: usize) -> Vec<f32> {
        let update = self.update(index, index + 1, order);
        let latest = &self.seen[self.seen.len() - 1];
        let next = combine([(update.keep, sample), (update.gain, latest.as_slice())]);
        let weights = match order {
            1 => Vec::new(),
            2 => vec![0.5],
            _ => solve(&update.places[..order - 1], &update.moments[..order - 1]),
        };
        self.past(next, &update, &weights)
    }

    fn correct(&self, index: usize, from: &[f32], clean: &[f32], order: usize) -> Vec<f32> {
        let update = self.update(index - 1, index, order);
        let latest = &self.seen[self.seen.len() - 1];
        let next = combine([(update.keep, from), (update.gain, latest.as_slice())]);
        let weights = if order == 1 { vec![0.5] } else { solve(&update.places, &update.moments) };
        let (of_new, of_past) = weights.split_last().unwrap_or((&0.5, &[]));
        let next = self.past(next, &update, of_past);
        let part = update.scale * of_new;
        combine([(1.0, next.as_slice()), (part, clean), (-part, latest.as_slice())])
    }
}

/// Weights whose sums over the powers of their positions are the moments.
fn solve(places: &[f64], moments: &[f64]) -> Vec<f64> {
    let size = places.len();
    let row = |power: usize| -> Vec<f64> {
        let powers = places.iter().map(|place| place.powi(power as i32));
        powers.chain([moments[power]]).collect()
    };
    let mut rows: Vec<Vec<f64>> = (0..size).map(row).collect();
    for pivot in 0..size {
        let best =
            (pivot..size).max_by(|one, other| rows[*one][pivot].abs().total_cmp(&rows[*other][pivot].abs()));
        rows.swap(pivot, best.unwrap_or(pivot));
        let used = rows[pivot].clone();
        for (at, row) in rows.iter_mut().enumerate().filter(|(at, _)| *at != pivot) {
            let factor = row[pivot] / used[pivot];
            debug_assert!(at < size);
            row.iter_mut().zip(&used).for_each(|(value, other)| *value -= factor * other);
        }
    }
    rows.iter().enumerate().map(|(at, row)| row[size] / row[at]).collect()
}

impl Scheduler for UniPc {
    fn timesteps(&self) -> &[f64] {
        &self.timesteps
    }

    fn sigmas(&self) -> &[f64] {
        &self.sigmas
    }

    fn step(&mut self, index: usize, output: &[f32], sample: &[f32], _draw: &mut Draw<'_>) -> Vec<f32> {
        let clean = dpm::clean(self.prediction, self.sigmas[index], output, sample);
        let sample = match self.last.take() {
            Some((from, order)) if !self.uncorrected.contains(&(index - 1)) => {
                self.correct(index, &from, &clean, order)
            }
            _ => sample.to_vec(),
        };
        self.seen.push(clean);
        if self.seen.len() > self.order {
            self.seen.remove(0);
        }
        let left = if self.lowers_at_the_end { self.timesteps.len() - index } else { self.order };
        let order = self.order.min(left).min(self.seen.len());
        let next = self.predict(index, &sample, order);
        self.last = Some((sample, order));
        next
    }

    fn add_noise(&self, index: usize, clean: &[f32], noise: &[f32]) -> Vec<f32> {
        let (signal, level) = sigmas::shares(self.sigmas[index]);
        combine([(signal, clean), (level, noise)])
    }
}
