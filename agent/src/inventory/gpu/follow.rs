//! Detects when a GPU appears, disappears or changes its properties.

use std::sync::Arc;

use island_daemon::latest::Latest;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::View;
use crate::inventory::meter::Sample;

/// Passes every sample to `note` and requests a registration when it returns `true`, until stopped. When the GPUs are others than before,
/// `probe` runs first.
pub async fn run(
    mut load: watch::Receiver<Arc<Sample>>,
    note: impl Fn(&View) -> bool,
    probe: impl AsyncFn(),
    register: impl Fn(),
    stop: CancellationToken,
) {
    let ids = |view: &View| view.cards.iter().map(|card| card.seen.id.clone()).collect::<Vec<_>>();
    let mut known = ids(&load.latest().gpus);
    loop {
        let view = load.latest().gpus.clone();
        let now = ids(&view);
        let is_other = now != known;
        if is_other {
            known = now;
            probe().await;
        }
        if note(&view) || is_other {
            register();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = load.changed() => if changed.is_err() { return },
        }
    }
}
