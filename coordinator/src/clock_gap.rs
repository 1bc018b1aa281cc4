//! Detects that this process did not run for some time: it was stopped or swapped out, or its machine was suspended.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use island_coordinator_fabric::link::Link;

const INTERVAL: Duration = Duration::from_secs(1);
/// After a longer gap every lease is given its whole duration again.
const MAX_GAP: Duration = Duration::from_secs(4);

/// Runs until `stop` is triggered. A lease must not expire for time in which its renewal could not be received here.
pub(crate) async fn run(link: Link, stop: CancellationToken) {
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let now = Instant::now();
        if now.saturating_duration_since(last) > MAX_GAP {
            tracing::warn!(gap = ?(now - last), "this process did not run for some time; leases restart");
            link.resumed(now);
        }
        last = now;
        island_daemon::notify::watchdog();
    }
}
