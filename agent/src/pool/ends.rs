//! How workers end: in order if they keep to it, and by force otherwise.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use island_protocol::{cargo::RuntimeType, ids::InstanceId};
use island_runtimes_worker::host::Process;
use tokio::task::JoinHandle;

use super::{ModelKey, Pool};
use crate::worker::{Command, KILL_GRACE, WorkerExit, WorkerHandle};

/// Time a worker has to stop before it is killed.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(10);
/// The same if the owner requires the machine at once.
const LEAVE_GRACE: Duration = Duration::from_millis(400);

impl Pool {
    /// Gives no further job to these workers. Returns `None`, and changes nothing, if one of them has a job by now. They stay on the list until
    /// they have ended, so that a pause ends them at once and their limits are enforced.
    pub(super) fn retire_idle(&self, chosen: &BTreeSet<InstanceId>) -> Option<Vec<Arc<WorkerHandle>>> {
        let mut workers = self.lock();
        let is_chosen = |worker: &WorkerHandle| chosen.contains(&worker.instance);
        if workers.iter().any(|(_, worker)| is_chosen(worker) && worker.stats().jobs > 0) {
            return None;
        }
        let retired = workers.iter_mut().filter(|(_, worker)| is_chosen(worker)).map(|(key, worker)| {
            *key = ModelKey::of_nothing(worker.instance);
            Arc::clone(worker)
        });
        Some(retired.collect())
    }

    /// Ends a worker that gets no further job and has none, or only one that ends now: as it does itself, or by force. This continues if the
    /// result is dropped, as with the job for which its memory is needed.
    pub fn end(&self, worker: &Arc<WorkerHandle>) -> JoinHandle<()> {
        self.end_within(worker, STOP_GRACE, false)
    }

    /// Ends the worker of this key, if it runs. The key must be that of an isolated attempt, which has ended.
    pub fn end_of(&self, key: &ModelKey) {
        if let Some(worker) = self.find(key) {
            drop(self.end(&worker));
        }
    }

    fn end_within(&self, worker: &Arc<WorkerHandle>, grace: Duration, now: bool) -> JoinHandle<()> {
        worker.send(Command::Stop { now });
        let worker = Arc::clone(worker);
        self.tasks.spawn(async move { await_end(&worker, grace).await })
    }

    /// Stops these workers at once, because the owner requires the machine or a GPU. Workers of containers have time to remove those. This
    /// continues if the result is dropped, as when the owner gives another order meanwhile.
    pub async fn stop_now(&self, which: impl Fn(&WorkerHandle) -> bool) {
        let workers = self.workers();
        let ends = workers.iter().filter(|worker| which(worker)).map(|worker| {
            let has_containers = worker.launch.cargo.runtime_type == RuntimeType::Container;
            let grace = if has_containers { STOP_GRACE } else { LEAVE_GRACE };
            self.end_within(worker, grace, true)
        });
        // All of them are stopped before the first is waited for.
        let ends: Vec<_> = ends.collect();
        futures::future::join_all(ends).await;
    }

    /// Stops every worker; when this returns, no process remains but those that hang.
    pub async fn stop_all(&self) {
        self.stop_all_within(STOP_GRACE).await;
    }

    async fn stop_all_within(&self, grace: Duration) {
        let workers = self.workers();
        for worker in &workers {
            worker.send(Command::Stop { now: true });
        }
        futures::future::join_all(workers.iter().map(|worker| await_end(worker, grace))).await;
        self.tasks.close();
        self.stopping.cancel();
        if workers.iter().any(|worker| worker.hangs()) {
            // The task of such a worker waits for its end.
            let _ = tokio::time::timeout(grace, self.tasks.wait()).await;
        } else {
            self.tasks.wait().await;
        }
    }
}

/// Ends a worker of which only the process is known.
pub(super) async fn end_unknown(mut process: Process) {
    let killed = process.kill();
    if tokio::time::timeout(KILL_GRACE, process.wait()).await.is_err() {
        tracing::error!(pid = process.pid(), ?killed, "an unknown worker does not end");
    }
}

/// Waits for the end of a worker that was stopped, and kills it after this time.
async fn await_end(worker: &WorkerHandle, grace: Duration) {
    // One that hangs was waited for before.
    if worker.hangs() || tokio::time::timeout(grace, worker.death()).await.is_ok() {
        return;
    }
    worker.send(Command::Kill(WorkerExit::Stalled));
    if tokio::time::timeout(KILL_GRACE, worker.death()).await.is_err() {
        worker.note_hang();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::{sync::watch, time::Instant};

    use super::*;
    use crate::{
        inventory::meter::Sample,
        owner::policy::Stance,
        testing,
        worker::{WorkerClaim, WorkerState},
    };

    async fn empty_pool(folder: &Path) -> Arc<Pool> {
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_stances, stance) = watch::channel(Stance::default());
        testing::pool(folder, load, stance).await
    }

    #[tokio::test]
    async fn all_chosen_workers_are_retired_or_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = empty_pool(folder.path()).await;
        let cargo = testing::assignment(1, 1).cargo;
        let key = ModelKey::of(&cargo, None);
        let (first, _commands) = WorkerHandle::without_process(cargo.clone());
        let (second, _commands) = WorkerHandle::without_process(cargo.clone());
        let chosen = BTreeSet::from([first.instance, second.instance]);
        *pool.lock() = vec![(key.clone(), Arc::clone(&first)), (key.clone(), Arc::clone(&second))];
        let claim = WorkerClaim::new(second, &cargo);
        assert!(pool.retire_idle(&chosen).is_none(), "a job took one meanwhile");
        drop(pool.claim(&key, &cargo).expect("and the other one is still there for jobs"));
        drop(claim);
        assert_eq!(pool.retire_idle(&chosen).expect("both are idle").len(), 2);
        assert!(pool.claim(&key, &cargo).is_none(), "no job finds them");
        assert_eq!(pool.workers().len(), 2, "a pause and their limits end them all the same");
    }

    #[tokio::test]
    async fn a_retired_worker_is_killed_also_if_nobody_waits_for_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = empty_pool(folder.path()).await;
        let (_lives, state) = watch::channel(WorkerState::Ready);
        let (worker, mut commands) =
            WorkerHandle::in_state(testing::assignment(1, 1).cargo, Vec::new(), state);
        // As with a job that is cancelled while it waits for memory.
        drop(pool.end_within(&worker, Duration::ZERO, false));
        assert!(matches!(commands.recv().await, Some(Command::Stop { now: false })));
        assert!(matches!(commands.recv().await, Some(Command::Kill(WorkerExit::Stalled))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_waits_for_a_slow_container_daemon_only_until_it_kills_the_worker() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = empty_pool(folder.path()).await;
        let mut cargo = testing::assignment(1, 1).cargo;
        (cargo.runtime_type, cargo.engine) = (RuntimeType::Container, serde_json::Value::Null);
        let (lives, state) = watch::channel(WorkerState::Ready);
        // It waits for its daemon, which removes none of its containers.
        let (worker, mut commands) = WorkerHandle::in_state(cargo.clone(), Vec::new(), state);
        *pool.lock() = vec![(ModelKey::of(&cargo, None), worker)];
        let begun = Instant::now();
        let killed_after = tokio::spawn(async move {
            assert!(matches!(commands.recv().await, Some(Command::Stop { now: true })));
            let Some(Command::Kill(exit)) = commands.recv().await else { panic!("it is killed") };
            lives.send(WorkerState::Gone(exit)).expect("the pool follows it");
            begun.elapsed()
        });
        let stopped = tokio::time::timeout(STOP_GRACE + KILL_GRACE, pool.stop_now(|_| true)).await;
        stopped.expect("the pause does not depend on the daemon");
        let killed_after = killed_after.await.expect("it was stopped and killed");
        assert!(killed_after >= STOP_GRACE, "it has time to remove its containers: {killed_after:?}");
    }

    #[tokio::test]
    async fn a_worker_that_cannot_be_killed_holds_nothing_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = empty_pool(folder.path()).await;
        let cargo = testing::assignment(1, 1).cargo;
        let (_lives, state) = watch::channel(WorkerState::Ready);
        // As a process in a driver that hangs.
        let (worker, mut commands) = WorkerHandle::in_state(cargo.clone(), Vec::new(), state);
        *pool.lock() = vec![(ModelKey::of(&cargo, None), Arc::clone(&worker))];
        let stopped = tokio::time::timeout(Duration::from_mins(1), pool.stop_now(|_| true)).await;
        stopped.expect("the owner's rules are evaluated again");
        assert!(matches!(commands.recv().await, Some(Command::Stop { now: true })));
        assert!(matches!(commands.recv().await, Some(Command::Kill(WorkerExit::Stalled))));
        assert!(worker.hangs());
        // The task that waits for its end.
        pool.tasks.spawn(std::future::pending::<()>());
        let stopped = pool.stop_all_within(Duration::ZERO);
        tokio::time::timeout(Duration::from_mins(1), stopped).await.expect("the agent ends");
    }
}
