//! Cancels a job that another coordinator executes, by a request to that coordinator.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    ids::{InstanceId, JobId},
    job::JobStatus,
    subjects,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Cancelled, Execution, runner};
use island_coordinator_domain::job::Canceller;
use island_coordinator_storage::{StoreError, jobs};

/// How long another coordinator may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for a job that is being moved between coordinators.
const MAX_WAIT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Body of `coordinator.<id>.cancel`.
#[derive(Debug, Serialize, Deserialize)]
struct CancelRequest {
    v: u32,
    job_id: JobId,
    /// Earlier coordinators cancel for consumers only.
    #[serde(default)]
    canceller: Canceller,
}

/// The job's state at that coordinator; `None` if it does not execute the job.
#[derive(Debug, Serialize, Deserialize)]
struct CancelResponse {
    v: u32,
    status: Option<JobStatus>,
}

impl Execution {
    /// Requests the cancellation of a job for its consumer, here or at the coordinator that executes it, and does not wait for
    /// it. A job that has ended ignores it.
    pub fn request_cancel(self: &Arc<Self>, job: JobId) {
        let execution = self.clone();
        self.spawn_task(async move {
            let cancelled = tokio::select! {
                biased;
                () = execution.hard.cancelled() => return,
                cancelled = execution.cancel(job, &Canceller::Consumer) => cancelled,
            };
            if let Err(error) = cancelled {
                tracing::warn!(%job, error = %Chain(&error), "job of a client that has left not cancelled");
            }
        });
    }

    /// Cancels a job here or at the coordinator that executes it. The caller has checked that the canceller may.
    pub async fn cancel(&self, job: JobId, canceller: &Canceller) -> Result<Cancelled, StoreError> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.cancel_here(job, canceller).await.filter(|status| status.is_final()) {
                return Ok(Cancelled::from_status(status));
            }
            let Some(assigned) = jobs::assigned_coordinator(self.context.store.reader(), job).await? else {
                return Ok(Cancelled::Unknown);
            };
            if assigned.status.is_final() {
                return Ok(Cancelled::from_status(assigned.status));
            }
            if let Some(peer) = assigned.coordinator.filter(|id| *id != self.context.instance)
                && let Some(status) =
                    self.cancel_at(peer, job, canceller).await.filter(|status| status.is_final())
            {
                return Ok(Cancelled::from_status(status));
            }
            if begin.elapsed() >= MAX_WAIT {
                return Ok(Cancelled::Moving);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Cancels a job that this coordinator executes and returns its state afterwards; `None` if it does not execute the
    /// job.
    async fn cancel_here(&self, job: JobId, canceller: &Canceller) -> Option<JobStatus> {
        runner::cancel(&*self.find(job)?, canceller.clone()).await
    }

    async fn cancel_at(&self, peer: InstanceId, job: JobId, canceller: &Canceller) -> Option<JobStatus> {
        let request = CancelRequest { v: FABRIC_VERSION, job_id: job, canceller: canceller.clone() };
        let answer = self
            .context
            .link
            .request::<CancelResponse>(subjects::coordinator_cancel(peer), &request, TIMEOUT, None)
            .await;
        match answer {
            Ok(answer) => answer.status,
            Err(error) => {
                tracing::debug!(%peer, %job, error = %Chain(&error), "no reply from the job's coordinator");
                None
            }
        }
    }

    /// Handles another coordinator's request, in a separate task because the commit may take long.
    pub(super) fn on_cancel_request(self: &Arc<Self>, message: async_nats::Message) {
        let Ok(request) = serde_json::from_slice::<CancelRequest>(&message.payload) else { return };
        let Some(reply) = message.reply else { return };
        let execution = self.clone();
        self.spawn_task(async move {
            let status = tokio::select! {
                biased;
                () = execution.hard.cancelled() => return,
                status = execution.cancel_here(request.job_id, &request.canceller) => status,
            };
            execution.context.link.reply_to_peer(&reply, &CancelResponse { v: FABRIC_VERSION, status }).await;
        });
    }
}
