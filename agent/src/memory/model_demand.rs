//! Demand for each model: its jobs, weighted by age. Pure.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// Time in which a job's weight falls to about a third.
const SPAN: Duration = Duration::from_hours(1);
/// Weight below which a model is dropped.
const FORGOTTEN: f64 = 0.001;

/// Weighted jobs by model. Kept after the model's worker has stopped, because the demand continues.
#[derive(Debug)]
pub struct ModelDemand<K> {
    known: BTreeMap<K, (f64, Instant)>,
}

impl<K> Default for ModelDemand<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new() }
    }
}

impl<K: Ord> ModelDemand<K> {
    /// Counts a job.
    pub fn note(&mut self, key: K, now: Instant) {
        let jobs = self.of(&key, now) + 1.0;
        self.known.retain(|_, known| faded(*known, now) > FORGOTTEN);
        self.known.insert(key, (jobs, now));
    }

    /// Number of models with a demand.
    pub fn models(&self) -> usize {
        self.known.len()
    }

    /// Jobs of about the last hour.
    pub fn of(&self, key: &K, now: Instant) -> f64 {
        self.known.get(key).map_or(0.0, |known| faded(*known, now))
    }
}

fn faded((jobs, at): (f64, Instant), now: Instant) -> f64 {
    jobs * (-now.saturating_duration_since(at).as_secs_f64() / SPAN.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_jobs_decays_until_they_are_dropped() {
        let (mut jobs, begin) = (ModelDemand::default(), Instant::now());
        let hours = |hours: u64| begin + Duration::from_hours(hours);
        jobs.note("often", begin);
        jobs.note("often", begin);
        jobs.note("late", hours(2));
        assert!((jobs.of(&"often", begin) - 2.0).abs() < 1e-9);
        assert!(
            jobs.of(&"late", hours(2)) > jobs.of(&"often", hours(2)),
            "two jobs two hours ago weigh a third of one now"
        );
        jobs.note("late", hours(30));
        assert_eq!(jobs.known.len(), 1, "dropped after a day");
        assert!(jobs.of(&"often", hours(30)) < f64::EPSILON);
    }
}
