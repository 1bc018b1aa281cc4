//! Removes containers. Everything that we create is in one list until the daemon reports that it is removed; dropping a [`Container`] kills
//! and removes it in a separate task.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bollard::{errors::Error, query_parameters::RemoveContainerOptionsBuilder};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::daemon::{Daemon, chain};

/// Time to remove one container; after that the agent has it removed by its labels, once this worker has ended.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(250);

type Book = Arc<Mutex<HashSet<String>>>;

/// A container that is removed on drop.
#[derive(Debug)]
pub struct Container {
    id: String,
    queue: mpsc::UnboundedSender<String>,
}

impl Container {
    /// The daemon's id for it.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A remover that has ended has removed every container in its list.
        let _ = self.queue.send(std::mem::take(&mut self.id));
    }
}

/// Removes containers in a separate task.
#[derive(Debug)]
pub struct Remover {
    book: Book,
    queue: mpsc::UnboundedSender<String>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Remover {
    /// Starts it.
    pub fn start(daemon: Daemon) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let book = Book::default();
        let stop = CancellationToken::new();
        let task = tokio::spawn(work(daemon, Arc::clone(&book), waiting, stop.clone()));
        Self { book, queue, stop, task: Mutex::new(Some(task)) }
    }

    /// Adds a container to the list.
    pub fn adopt(&self, id: String) -> Container {
        lock(&self.book).insert(id.clone());
        Container { id, queue: self.queue.clone() }
    }

    /// Removes all remaining containers, and ends.
    pub async fn stop(&self) {
        for id in lock(&self.book).iter() {
            // The task ends only below.
            let _ = self.queue.send(id.clone());
        }
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Its removals have their own deadline, and it handles those that fail.
            let _ = task.await;
        }
    }
}

async fn work(
    daemon: Daemon,
    book: Book,
    mut queue: mpsc::UnboundedReceiver<String>,
    stop: CancellationToken,
) {
    let mut removals = JoinSet::new();
    let mut under_way = HashSet::new();
    loop {
        tokio::select! {
            biased;
            Some(id) = queue.recv() => {
                if under_way.insert(id.clone()) {
                    let (daemon, book) = (daemon.clone(), Arc::clone(&book));
                    removals.spawn(async move { remove(&daemon, &book, &id).await; id });
                }
            }
            Some(removed) = removals.join_next() => match removed {
                Ok(id) => drop(under_way.remove(&id)),
                Err(error) => tracing::error!(%error, "removing a container failed"),
            },
            () = stop.cancelled(), if removals.is_empty() => return,
        }
    }
}

async fn remove(daemon: &Daemon, book: &Book, id: &str) {
    let tries = async {
        while let Err(error) = try_to_remove(daemon, id).await {
            tracing::debug!(container = id, error = chain(&error), "a container cannot be removed yet");
            sleep(PAUSE).await;
        }
    };
    if timeout(DEADLINE, tries).await.is_err() {
        tracing::warn!(
            container = id,
            "a container could not be removed; the agent removes it once this worker has ended"
        );
    }
    lock(book).remove(id);
}

pub(crate) async fn try_to_remove(daemon: &Daemon, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match daemon.quick.remove_container(id, Some(options)).await {
        // It is removed, or being removed.
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        other => other,
    }
}

fn lock(book: &Book) -> MutexGuard<'_, HashSet<String>> {
    book.lock()
}
