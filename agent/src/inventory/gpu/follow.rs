//! Detects when a GPU appears, disappears or changes its properties.

use std::sync::Arc;

use island_daemon::latest::Latest;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::View;
use crate::inventory::meter::Sample;

/// Passes every sample to `note` and requests a registration when it returns `true`, until stopped.
pub async fn run(
    mut load: watch::Receiver<Arc<Sample>>,
    note: impl Fn(&View) -> bool,
    register: impl Fn(),
    stop: CancellationToken,
) {
    loop {
        let is_news = note(&load.latest().gpus);
        if is_news {
            register();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = load.changed() => if changed.is_err() { return },
        }
    }
}
