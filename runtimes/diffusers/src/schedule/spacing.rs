//! The training timesteps of a scheduler.

use super::config::{Config, Spacing};

/// Timesteps from the last of `count` even ones to the first.
pub(super) fn linspace(last: f64, count: usize) -> Vec<f64> {
    if count == 1 {
        return vec![0.0];
    }
    (0..count).rev().map(|at| at as f64 * (last / (count - 1) as f64)).collect()
}

/// Timesteps of schedulers with `steps` points.
pub(super) fn points(config: &Config, spacing: Spacing, steps: usize, whole: bool) -> Vec<f64> {
    let trained = config.num_train_timesteps;
    match spacing {
        Spacing::Linspace => {
            let times = linspace((trained - 1) as f64, steps).into_iter();
            times.map(|time| if whole { time.round_ties_even() } else { f64::from(time as f32) }).collect()
        }
        Spacing::Leading => leading(trained / steps, steps, config.steps_offset, trained),
        Spacing::Trailing => trailing(trained, steps),
    }
}

/// Timesteps of schedulers with `steps` intervals, the last of which ends without noise.
pub(super) fn intervals(config: &Config, spacing: Spacing, steps: usize) -> Vec<f64> {
    let trained = config.num_train_timesteps;
    match spacing {
        Spacing::Linspace => {
            let mut times = linspace((trained - 1) as f64, steps + 1);
            times.truncate(steps);
            times.into_iter().map(f64::round_ties_even).collect()
        }
        Spacing::Leading => {
            let mut times = leading(trained / (steps + 1), steps + 1, config.steps_offset, trained);
            times.truncate(steps);
            times
        }
        Spacing::Trailing => trailing(trained, steps),
    }
}

/// With an offset the last one can exceed the training range if every timestep is used.
fn leading(ratio: usize, count: usize, offset: i64, trained: usize) -> Vec<f64> {
    let last = (trained - 1) as f64;
    (0..count).rev().map(|at| ((at * ratio) as f64 + offset as f64).min(last)).collect()
}

fn trailing(trained: usize, steps: usize) -> Vec<f64> {
    let (start, ratio) = (trained as f64, trained as f64 / steps as f64);
    let step = (start - ratio) - start;
    (0..steps).map(|at| (start + at as f64 * step).round_ties_even() - 1.0).collect()
}
