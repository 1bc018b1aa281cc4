//! Tasks of one owner: it notices when one of them panics, and waits for all at the end.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Tasks that somebody awaits. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    /// Triggered when one of the tasks panicked.
    failed: CancellationToken,
}

/// Reports the panic of the task that holds it.
struct PanicGuard(CancellationToken);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

impl Tasks {
    /// Runs a task that [`Self::stopped`] waits for and whose panic triggers [`Self::failed`].
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let guard = PanicGuard(self.failed.clone());
        self.tracker.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Waits until one of the tasks has panicked. The program must stop then.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Waits until all tasks have ended. Later tasks are not waited for.
    pub async fn stopped(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
