//! Who takes containers away. Everything we create is in one book until the daemon says that it is gone; dropping a
//! [`Container`] is enough to have it killed and removed, off the path of the job that it belonged to.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bollard::{errors::Error, query_parameters::RemoveContainerOptionsBuilder};
use island_protocol::ids::AttemptKey;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::daemon::{Daemon, chain};

/// For one container to be gone; past it the next worker finds it by its labels.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

type Book = Arc<Mutex<HashMap<String, Option<AttemptKey>>>>;

/// A container that is removed when this is dropped.
#[derive(Debug)]
pub struct Container {
    id: String,
    queue: mpsc::UnboundedSender<String>,
}

impl Container {
    /// The daemon's name for it.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A remover that is gone has removed everything in its book.
        let _ = self.queue.send(std::mem::take(&mut self.id));
    }
}

/// Removes containers in a task of its own.
#[derive(Debug)]
pub struct Remover {
    daemon: Daemon,
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
        let task = tokio::spawn(work(daemon.clone(), Arc::clone(&book), waiting, stop.clone()));
        Self { daemon, book, queue, stop, task: Mutex::new(Some(task)) }
    }

    /// Takes charge of a container.
    pub fn adopt(&self, id: String, key: Option<AttemptKey>) -> Container {
        lock(&self.book).insert(id.clone(), key);
        Container { id, queue: self.queue.clone() }
    }

    /// Notes that a container made ahead works for this attempt now.
    pub fn assign(&self, container: &Container, key: AttemptKey) {
        lock(&self.book).insert(container.id.clone(), Some(key));
    }

    /// Removes our containers of attempts that are not alive, and waits until they are gone.
    pub async fn reap(&self, alive: &[AttemptKey]) {
        let dead = |(id, key): (&String, &Option<AttemptKey>)| {
            key.is_some_and(|key| !alive.contains(&key)).then(|| id.clone())
        };
        let dead: Vec<_> = lock(&self.book).iter().filter_map(dead).collect();
        futures::future::join_all(dead.iter().map(|id| remove(&self.daemon, &self.book, id))).await;
    }

    /// Removes a container that another worker of ours left behind.
    pub async fn remove_orphan(&self, id: &str) {
        remove(&self.daemon, &self.book, id).await;
    }

    /// Removes all that is left, and ends.
    pub async fn stop(&self) {
        for id in lock(&self.book).keys() {
            // The task ends only below.
            let _ = self.queue.send(id.clone());
        }
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Its removals have a deadline of their own, and it catches those that break down.
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
                Err(error) => tracing::error!(%error, "removing a container broke down"),
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
        tracing::warn!(container = id, "a container stays behind; the next worker removes it");
    }
    lock(book).remove(id);
}

async fn try_to_remove(daemon: &Daemon, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match daemon.quick.remove_container(id, Some(options)).await {
        // It is gone, or somebody is at it.
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        other => other,
    }
}

fn lock(book: &Book) -> MutexGuard<'_, HashMap<String, Option<AttemptKey>>> {
    book.lock()
}
