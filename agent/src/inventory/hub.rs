//! Whether models that are not cached could be fetched: looked at now and then, and told when it changes.

use std::{sync::Arc, time::Duration};

use island_cache::Cache;
use tokio_util::sync::CancellationToken;

use crate::{link::fabric::Fabric, supervisor::Supervisor};

/// Between two looks while the hub answers, and while it does not.
const WHEN_REACHABLE: Duration = Duration::from_mins(5);
const WHEN_NOT: Duration = Duration::from_mins(1);

/// Looks until stopped.
pub async fn run(cache: Cache, supervisor: Arc<Supervisor>, fabric: Arc<Fabric>, stop: CancellationToken) {
    loop {
        let reachable = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            reachable = cache.is_hub_reachable() => reachable,
        };
        if supervisor.set_hub_reachable(reachable) {
            fabric.ask_to_register();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(if reachable { WHEN_REACHABLE } else { WHEN_NOT }) => {}
        }
    }
}
