//! Detects when a GPU appears, disappears or changes its properties.

use std::sync::Arc;

use island_daemon::latest::Latest;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::View;
use crate::inventory::{
    meter::Sample,
    probe_requests::{ProbeRequests, Schedule},
};

/// Passes every sample to `note` and requests a registration when it returns `true`, until stopped. When the GPUs are others than before, or
/// a probe was requested, `probe` runs first; its argument is whether the GPUs are others.
pub async fn run(
    mut load: watch::Receiver<Arc<Sample>>,
    note: impl Fn(&View) -> bool,
    probe: impl AsyncFn(bool),
    requests: Arc<ProbeRequests>,
    register: impl Fn(),
    stop: CancellationToken,
) {
    let ids = |view: &View| view.cards.iter().map(|card| card.seen.id.clone()).collect::<Vec<_>>();
    let mut known = ids(&load.latest().gpus);
    let mut schedule = Schedule::default();
    loop {
        let view = load.latest().gpus.clone();
        let now = ids(&view);
        let is_other = now != known;
        let is_probed = is_other || schedule.is_due(Instant::now());
        if is_probed {
            known = now;
            schedule.met();
            probe(is_other).await;
        }
        if note(&view) || is_probed {
            register();
        }
        let due = schedule.due();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = load.changed() => if changed.is_err() { return },
            () = requests.requested(), if due.is_none() => schedule.request(Instant::now()),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}
