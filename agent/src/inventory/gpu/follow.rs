//! Tells when a GPU appears or disappears, or says other things of itself.

use std::sync::Arc;

use island_daemon::latest::Latest;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::View;
use crate::inventory::meter::Sample;

/// Has every sample noted, and has the Island register anew where `note` says that it is news; until stopped.
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
