//! Removes what workers that have ended left behind. A worker removes its containers itself when it is stopped; one that was killed cannot.
//! The agent knows which workers have ended, and starts this program again for them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::{errors::Error, models::ContainerSummary, query_parameters::ListContainersOptionsBuilder};
use island_protocol::ids::InstanceId;
use island_runtimes_worker::host::Orphans;

use crate::{
    daemon::{Daemon, chain},
    labels::{ISLAND, LIFETIME, WORKER},
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

/// Removes the containers of the Island with this label that belong to workers which have ended; returns their number.
pub async fn remove(daemon: &Daemon, island: &str, orphans: &Orphans) -> Result<usize, OrphanError> {
    remove_those(daemon, island, |worker, _| orphans.include(worker)).await
}

/// Removes the containers of a worker that have existed for longer than their jobs may take; returns their number.
pub async fn remove_expired(daemon: &Daemon, island: &str, worker: InstanceId) -> Result<usize, OrphanError> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    remove_those(daemon, island, |other, found| other == worker && has_expired(found, now_s)).await
}

async fn remove_those(
    daemon: &Daemon,
    island: &str,
    is_chosen: impl Fn(InstanceId, &ContainerSummary) -> bool,
) -> Result<usize, OrphanError> {
    let ours = [("label".to_owned(), vec![format!("{ISLAND}={island}")])].into_iter().collect();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&ours).build();
    let found = daemon.quick.list_containers(Some(options)).await.map_err(OrphanError::List)?;
    let left = found.into_iter().filter(|container| {
        let worker = label(container, WORKER).and_then(|worker| worker.parse().ok());
        worker.is_some_and(|worker| is_chosen(worker, container))
    });
    let left: Vec<String> = left.filter_map(|container| container.id).collect();
    let gone = futures::future::join_all(left.iter().map(|id| remove_one(daemon, id))).await;
    match gone.iter().filter(|gone| !**gone).count() {
        0 => Ok(left.len()),
        count => Err(OrphanError::Left(count)),
    }
}

/// Whether a container has existed for longer than it may. One of an earlier version, without that label, may for as long as its worker runs.
fn has_expired(container: &ContainerSummary, now_s: u64) -> bool {
    let lifetime_s = label(container, LIFETIME).and_then(|lifetime| lifetime.parse::<u64>().ok());
    let age_s = container.created.and_then(|created| now_s.checked_sub(u64::try_from(created).ok()?));
    lifetime_s.zip(age_s).is_some_and(|(lifetime_s, age_s)| age_s > lifetime_s)
}

fn label<'a>(container: &'a ContainerSummary, name: &str) -> Option<&'a String> {
    container.labels.as_ref()?.get(name)
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
