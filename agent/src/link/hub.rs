//! Polls the model hub, and registers again when its reachability changes.

use std::{sync::Arc, time::Duration};

use island_cache::Cache;
use tokio_util::sync::CancellationToken;

use crate::{fabric::Fabric, supervisor::Supervisor};

/// Time between two polls while the hub answers, and while it does not.
const WHEN_REACHABLE: Duration = Duration::from_mins(5);
const WHEN_NOT: Duration = Duration::from_mins(1);

/// Polls until stopped.
pub async fn run(cache: Cache, supervisor: Arc<Supervisor>, fabric: Arc<Fabric>, stop: CancellationToken) {
    loop {
        let reachable = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            reachable = cache.is_hub_reachable() => reachable,
        };
        if supervisor.set_hub_reachable(reachable) {
            fabric.request_registration();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(if reachable { WHEN_REACHABLE } else { WHEN_NOT }) => {}
        }
    }
}
