//! Removes what workers that have ended left behind. A worker removes its containers itself when it is stopped; one that was killed cannot.
//! The agent knows which workers have ended, and starts this program again for them.

use std::{collections::HashMap, time::Duration};

use bollard::{errors::Error, query_parameters::ListContainersOptionsBuilder};
use island_runtimes_worker::host::Orphans;

use crate::{
    daemon::{Daemon, chain},
    labels::{ISLAND, WORKER},
    remover::try_to_remove,
};

/// Time to remove all of them. The agent tries again.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Containers that could not be listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum OrphanError {
    /// The daemon does not list them.
    #[error("list the containers of this Island")]
    List(#[source] Error),
    /// Some still exist.
    #[error("{0} containers could not be removed in time")]
    Left(usize),
}

/// Removes the containers of the Island with this label; returns their number.
pub async fn remove(daemon: &Daemon, island: &str, orphans: &Orphans) -> Result<usize, OrphanError> {
    let ours = [("label".to_owned(), vec![format!("{ISLAND}={island}")])].into_iter().collect();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&ours).build();
    let found = daemon.quick.list_containers(Some(options)).await.map_err(OrphanError::List)?;
    let is_orphan = |labels: &HashMap<String, String>| {
        labels
            .get(WORKER)
            .and_then(|worker| worker.parse().ok())
            .is_some_and(|worker| orphans.include(worker))
    };
    let left = found.into_iter().filter(|container| container.labels.as_ref().is_some_and(is_orphan));
    let left: Vec<String> = left.filter_map(|container| container.id).collect();
    let gone = futures::future::join_all(left.iter().map(|id| remove_one(daemon, id))).await;
    match gone.iter().filter(|gone| !**gone).count() {
        0 => Ok(left.len()),
        count => Err(OrphanError::Left(count)),
    }
}

async fn remove_one(daemon: &Daemon, id: &str) -> bool {
    let tries = async {
        while let Err(error) = try_to_remove(daemon, id).await {
            tracing::debug!(container = id, error = chain(&error), "a container cannot be removed yet");
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(DEADLINE, tries).await.is_ok()
}
