//! A day of demand, replayed in virtual time: the cost of an Island's choices, compared with a cache that removes the least recently used.
//! The day is artificial and the same for both: demand falls like 1/rank, every model has a peak hour, and once an hour one model is
//! popular for twenty minutes.

mod disk;
mod memory;

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// A day, in seconds.
const DAY: u64 = 24 * 3600;
/// Number of models.
const MODELS: usize = 24;

/// A model, as demand and both policies see it.
#[derive(Debug, Clone, Copy)]
struct Model {
    /// Memory and disk space that it uses, megabytes.
    mb: u64,
    /// Time to load it.
    load: Duration,
    /// Credits per job.
    price: f64,
    /// Jobs per hour, averaged over the day.
    rate: f64,
    /// Hour of the day with the highest demand.
    peak: f64,
}

/// A job that arrives at this Island.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Duration,
    model: usize,
    takes: Duration,
}

#[derive(Debug)]
struct Day {
    models: Vec<Model>,
    arrivals: Vec<Arrival>,
}

impl Day {
    fn made(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let models: Vec<Model> = (1..=MODELS).map(|rank| Model::made(rank, &mut random)).collect();
        let mut arrivals = Vec::new();
        let mut fashion = 0;
        for minute in 0..DAY / 60 {
            if minute % 60 == 0 {
                fashion = random.random_range(0..MODELS);
            }
            for (number, model) in models.iter().enumerate() {
                let hour = minute as f64 / 60.0;
                let swing = 1.0 + ((hour - model.peak) / 24.0 * std::f64::consts::TAU).cos();
                let fashionable = if number == fashion && minute % 60 < 20 { 6.0 } else { 1.0 };
                let wanted = model.rate * swing * fashionable / 60.0;
                // At most one per minute and model: a good approximation at these rates.
                if random.random::<f64>() < wanted {
                    let at = Duration::from_secs(minute * 60 + random.random_range(0..60));
                    arrivals.push(Arrival {
                        at,
                        model: number,
                        takes: Duration::from_secs(random.random_range(2..40)),
                    });
                }
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        Self { models, arrivals }
    }
}

impl Model {
    fn made(rank: usize, random: &mut StdRng) -> Self {
        let mb = random.random_range(400..9000);
        // From a disk that reads a gigabyte per second, plus one second of preparation.
        let load = Duration::from_millis(1000 + mb);
        let price = mb as f64 / 4000.0 * random.random_range(0.5..2.0);
        Self { mb, load, price, rate: 30.0 / rank as f64, peak: random.random_range(0.0..24.0) }
    }
}
