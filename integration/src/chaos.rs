//! Killing, freezing, cutting and filling parts of a whole network by a seeded plan, while consumers use it, and checking afterwards that no
//! promise was broken.

pub mod check;
pub mod detection;
pub mod load;
pub mod network;
pub mod plan;
pub mod proxy;
mod standby;

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

pub use self::check::Counts;
use self::{
    load::Load,
    network::Network,
    plan::{Size, strikes},
};

/// Two coordinators, a cluster of three servers and three Islands.
pub const SIZE: Size = Size { servers: 3, coordinators: 2, islands: 3 };
/// The lease of the network. It is a fifth of the usual one, and all times of the plan with it.
pub const LEASE: Duration = Duration::from_secs(6);

/// What a run showed.
#[derive(Debug)]
pub struct Report {
    /// Broken promises.
    pub violations: Vec<String>,
    /// Faults that were inflicted, and those that were not possible.
    pub faults: (u64, u64),
    /// Parts that ended although no fault killed them, with their exit status and the last line of their log.
    pub ended: Vec<String>,
    /// Requests of consumers that hung up.
    pub hang_ups: u64,
    /// Jobs whose streams were read.
    pub streams: usize,
    /// The longest wait for an event of each stream, in order.
    pub pauses: Vec<Duration>,
    /// Ends of all jobs.
    pub counts: Counts,
    /// Time of the strikes.
    pub took: Duration,
    /// The end of every log.
    pub logs: String,
}

#[expect(clippy::print_stdout, reason = "a failing test shows what happened before")]
fn show(at: Duration, what: &str) {
    println!("{:8.1} s  {what}", at.as_secs_f64());
}

/// Strikes a network of its own `count` times. If a promise is broken and `ISLAND_CHAOS_KEEP` names a folder, it gets the whole logs, the rows of
/// the jobs, and what is left on the Islands.
pub async fn run(seed: u64, count: usize) -> Report {
    let network = Arc::new(Network::start(SIZE, LEASE).await);
    let load = Load::start(&network, seed).await;
    let begin = Instant::now();
    let (mut faults, mut ended, mut underway) = ((0, 0), Vec::new(), JoinSet::new());
    let mut count_fault = |inflicted: bool| if inflicted { faults.0 += 1 } else { faults.1 += 1 };
    for (number, strike) in strikes(seed, SIZE, LEASE).take(count).enumerate() {
        sleep(strike.after).await;
        ended.extend(network.revive().into_iter().map(|(part, status)| format!("{part}: {status}")));
        for fault in strike.faults {
            show(begin.elapsed(), &format!("{number}: {fault}"));
            let network = network.clone();
            underway.spawn(async move { network.inflict(fault).await });
        }
        while let Some(done) = underway.try_join_next() {
            count_fault(done.expect("a fault panics"));
        }
    }
    while let Some(done) = underway.join_next().await {
        count_fault(done.expect("a fault panics"));
    }
    let took = begin.elapsed();
    network.settle().await;
    let (seen, hang_ups) = load.finish().await;
    let streams = seen.logs.len();
    let mut pauses: Vec<Duration> = seen.logs.iter().map(|log| log.pause).collect();
    pauses.sort_unstable();
    let (violations, counts) = check::check(&network, seen).await;
    if let (false, Some(folder)) = (violations.is_empty(), std::env::var_os("ISLAND_CHAOS_KEEP")) {
        network.keep(folder.as_ref());
    }
    let logs = network.logs();
    Report { violations, faults, ended, hang_ups, streams, pauses, counts, took, logs }
}
