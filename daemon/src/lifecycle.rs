//! Owned tasks, signals, and the order of stopping.

use std::{
    error::Error,
    future::Future,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{chain::Chain, notify};

/// Owns every task that lives as long as the process.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
    failed: Arc<AtomicBool>,
    restarts: Arc<AtomicBool>,
    drain_limit: Duration,
}

impl Lifecycle {
    /// A lifecycle whose tasks get `drain_limit` to finish once asked.
    pub fn new(drain_limit: Duration) -> Self {
        let hard = CancellationToken::new();
        Self {
            soft: hard.child_token(),
            hard,
            tasks: TaskTracker::new(),
            failed: Arc::default(),
            restarts: Arc::default(),
            drain_limit,
        }
    }

    /// Triggered: take no new work and finish.
    pub fn soft(&self) -> CancellationToken {
        self.soft.clone()
    }

    /// Triggered: stop now.
    pub fn hard(&self) -> CancellationToken {
        self.hard.clone()
    }

    /// Stops everything in order, while the process goes on with another lifecycle.
    pub fn stop_to_restart(&self) {
        self.restarts.store(true, Ordering::Release);
        self.soft.cancel();
    }

    /// Runs a task until it ends. One that ends before it was asked to, or with an error, stops the program with a
    /// failing exit code; a panic counts as that.
    pub fn spawn<E>(&self, name: &'static str, task: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: Error + Send + 'static,
    {
        let lifecycle = self.clone();
        self.tasks.spawn(async move {
            let mut guard = EndGuard { lifecycle: &lifecycle, name, ended_well: false };
            match task.await {
                Ok(()) => guard.ended_well = lifecycle.soft.is_cancelled(),
                Err(error) => tracing::error!(task = name, error = %Chain(&error), "task failed"),
            }
        });
    }

    /// Waits for a signal or a failing task, stops everything in order, and returns how it went.
    pub async fn run(self) -> ExitCode {
        let stop = async {
            tokio::select! {
                biased;
                () = self.soft.cancelled() => {}
                () = stop_signal() => tracing::info!("asked to stop"),
            }
        };
        stop.await;
        // The service manager would end a process that announced its end.
        if !self.restarts.load(Ordering::Acquire) {
            notify::stopping();
        }
        self.soft.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = stop_signal() => tracing::warn!("asked again: stopping at once"),
            () = tokio::time::sleep(self.drain_limit) => tracing::warn!("drain limit met: stopping at once"),
        }
        self.hard.cancel();
        // Tasks see `hard` at their next await; one that never gets there must not hold the process for ever.
        if tokio::time::timeout(Duration::from_secs(10), self.tasks.wait()).await.is_err() {
            tracing::error!("some tasks did not stop");
            return ExitCode::FAILURE;
        }
        if self.failed.load(Ordering::Acquire) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Turns an unexpected end, a panic's unwinding included, into an orderly stop with a failing exit code.
struct EndGuard<'a> {
    lifecycle: &'a Lifecycle,
    name: &'static str,
    ended_well: bool,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if self.ended_well {
            return;
        }
        tracing::error!(task = self.name, "task ended unexpectedly: stopping the program");
        self.lifecycle.failed.store(true, Ordering::Release);
        self.lifecycle.soft.cancel();
    }
}

/// Resolves at SIGTERM or SIGINT.
async fn stop_signal() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be handled");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn stops_in_order_and_reports_success() {
        let life = Lifecycle::new(Duration::from_secs(5));
        let (soft, trigger) = (life.soft(), life.soft());
        life.spawn("worker", async move {
            soft.cancelled().await;
            Ok::<_, Infallible>(())
        });
        trigger.cancel();
        assert_eq!(life.run().await, ExitCode::SUCCESS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_by_itself_fails_the_program() {
        let life = Lifecycle::new(Duration::from_secs(5));
        life.spawn("short", async { Ok::<_, Infallible>(()) });
        assert_eq!(life.run().await, ExitCode::FAILURE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_fails_the_program() {
        let life = Lifecycle::new(Duration::from_secs(5));
        life.spawn("bad", async { Err::<(), _>(std::io::Error::other("gone")) });
        let soft = life.soft();
        life.spawn("panics", async move {
            soft.cancelled().await;
            assert!(!soft.is_cancelled(), "on purpose");
            Ok::<_, Infallible>(())
        });
        assert_eq!(life.run().await, ExitCode::FAILURE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_task_is_stopped_at_the_drain_limit() {
        let life = Lifecycle::new(Duration::from_secs(5));
        let hard = life.hard();
        life.spawn("slow", async move {
            hard.cancelled().await;
            Ok::<_, Infallible>(())
        });
        let before = tokio::time::Instant::now();
        life.soft().cancel();
        assert_eq!(life.clone().run().await, ExitCode::SUCCESS);
        assert_eq!(before.elapsed(), Duration::from_secs(5));
    }
}
