//! Notices when this process itself was held up: stopped, swapped out, or its machine suspended.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::fabric::link::Link;

const BEAT: Duration = Duration::from_secs(1);
/// A pause longer than this makes everybody's lease begin anew.
const HELD_UP: Duration = Duration::from_secs(4);

/// Runs until `stop` is triggered. Leases do not run while nobody here could have heard a renewal.
pub(crate) async fn run(link: Link, stop: CancellationToken) {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = beat.tick() => {}
        }
        let now = Instant::now();
        if now.saturating_duration_since(before) > HELD_UP {
            tracing::warn!(pause = ?(now - before), "this process was held up: leases begin anew");
            link.resumed(now);
        }
        before = now;
        island_daemon::notify::watchdog();
    }
}
