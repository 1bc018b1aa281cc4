//! What one coordinator asks of another: to cancel a job that is the other's.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    ids::{InstanceId, JobId},
    job::JobStatus,
    subjects,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::oneshot, time::Instant};

use super::{Cancelled, Owner, live::Command};
use crate::storage::{StoreError, job as jobs};

/// How long another coordinator may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a job that is between two coordinators is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// `coordinator.<id>.cancel`, a request among coordinators.
#[derive(Debug, Serialize, Deserialize)]
struct Wish {
    v: u32,
    job_id: JobId,
}

/// Its answer: where the job stands now; none if it is not looked after there.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    v: u32,
    status: Option<JobStatus>,
}

impl Owner {
    /// Cancels a job, here or at the coordinator that has it; whose it is was checked before.
    pub(crate) async fn cancel(&self, job: JobId) -> Result<Cancelled, StoreError> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.cancel_here(job).await.filter(|status| status.is_final()) {
                return Ok(Cancelled::of(status));
            }
            let Some(held) = jobs::held(self.context.store.reader(), job).await? else {
                return Ok(Cancelled::Unknown);
            };
            if held.status.is_final() {
                return Ok(Cancelled::of(held.status));
            }
            if let Some(peer) = held.by.filter(|by| *by != self.context.instance)
                && let Some(status) = self.ask(peer, job).await.filter(|status| status.is_final())
            {
                return Ok(Cancelled::of(status));
            }
            if begin.elapsed() >= PATIENCE {
                return Ok(Cancelled::Moving);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Where a job of ours stands after an attempt to cancel it; none if it is not ours.
    async fn cancel_here(&self, job: JobId) -> Option<JobStatus> {
        let live = self.find(job)?;
        let (answer, answered) = oneshot::channel();
        live.send(Command::Cancel { answer });
        answered.await.ok()
    }

    async fn ask(&self, peer: InstanceId, job: JobId) -> Option<JobStatus> {
        let wish = Wish { v: FABRIC_VERSION, job_id: job };
        let answer =
            self.context.link.request::<Answer>(subjects::coordinator_cancel(peer), &wish, TIMEOUT).await;
        match answer {
            Ok(answer) => answer.status,
            Err(error) => {
                tracing::debug!(%peer, %job, error = %Chain(&error), "the job's coordinator did not answer");
                None
            }
        }
    }

    /// Another coordinator asks. Each wish has a task of its own: a commit may take its time.
    pub(super) fn on_wish(self: &Arc<Self>, message: async_nats::Message) {
        let Ok(wish) = serde_json::from_slice::<Wish>(&message.payload) else { return };
        let Some(reply) = message.reply else { return };
        let owner = self.clone();
        self.spawn_task(async move {
            let status = tokio::select! {
                biased;
                () = owner.hard.cancelled() => return,
                status = owner.cancel_here(wish.job_id) => status,
            };
            owner.context.link.answer_peer(&reply, &Answer { v: FABRIC_VERSION, status }).await;
        });
    }
}
