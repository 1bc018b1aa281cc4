//! Assigns a job to an Island: the attempt is committed before it is offered.

use std::time::Duration;

use island_protocol::{
    FABRIC_VERSION,
    event::{JobEvent, Numbered},
    fabric::{Assignment, AssignmentReply},
    ids::{AttemptKey, HostId},
    job::{FailureCode, JobStatus},
    subjects::HostTopic,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{Next, Runner};
use crate::{
    execution::job_handle::Run,
    job::state::{self, Trigger},
};

/// Maximum time for an Island's reply to an assignment.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which an Island that refused gets no further offer.
pub(in crate::execution) const REFUSAL_PAUSE: Duration = Duration::from_secs(2);

impl Runner {
    /// Commits an attempt on a claimed Island, then offers it.
    pub(super) async fn placed(&mut self, host: HostId, key: AttemptKey) -> Next {
        let fleet = self.execution.context.fleet.clone();
        if key != self.next_key() || self.current().is_some() {
            fleet.release(host, key);
            return Next::Continue;
        }
        let Ok(status) = state::next(self.job.status, Trigger::Assign) else {
            fleet.release(host, key);
            return Next::Continue;
        };
        let mut head = self.handle.log.events();
        let last_state = head.iter().rev().find_map(|numbered| match &numbered.event {
            JobEvent::Status { state, .. } => Some(state.as_str()),
            _ => None,
        });
        let announce = last_state != Some(status.as_str());
        if announce {
            let event = JobEvent::status(status.as_str());
            head.push(Numbered { n: head.len() as u64 + 1, event });
        }
        if !self.step(key, status, Some(host), &head).await {
            fleet.release(host, key);
            return Next::Stop;
        }
        if announce {
            self.append_status(status);
        }
        self.handle.state().run = Some(Run::new(key, host, Instant::now(), false));
        self.offer(host, key, status).await
    }

    /// Offers the attempt that was committed with the job.
    pub(super) async fn offered(&mut self, host: HostId, key: AttemptKey) -> Next {
        self.handle.state().run = Some(Run::new(key, host, Instant::now(), false));
        self.offer(host, key, self.job.status).await
    }

    async fn offer(&mut self, host: HostId, key: AttemptKey, accepted: JobStatus) -> Next {
        let context = self.execution.context.clone();
        let Some(assignment) = self.assignment(key) else { return Next::Continue };
        let subject = HostTopic::Jobs.of(host);
        let answer = context.link.request::<AssignmentReply>(subject, &assignment, ASSIGN_TIMEOUT).await;
        let reason = match answer {
            Ok(reply) if reply.accepted => {
                self.set_status(accepted);
                self.handle.accept();
                self.run_deadline = self.deadline_of_run();
                return Next::Continue;
            }
            Ok(reply) => {
                tracing::info!(%host, %key, refusal = ?reply.refusal, "assignment refused");
                reply.refusal.map_or_else(|| "it refused".to_owned(), |refusal| refusal.message)
            }
            Err(error) => {
                tracing::warn!(%host, %key, error = %island_daemon::chain::Chain(&error), "no reply to the assignment");
                self.send_cancel(host, key, FailureCode::IslandLost).await;
                "it did not answer".to_owned()
            }
        };
        // Events that it may have sent carry this epoch, and the next assignment has a higher one.
        self.handle.state().run = None;
        context.fleet.release(host, key);
        self.history.refused.insert(host, Instant::now() + REFUSAL_PAUSE);
        self.job.status = accepted;
        self.unplaced(&reason).await
    }

    fn assignment(&self, key: AttemptKey) -> Option<Assignment> {
        let context = &self.execution.context;
        let cargo = self.cargo()?;
        let now = context.clock.now();
        let timeout_ms = i64::try_from(cargo.spec.limits.timeout_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        Some(Assignment {
            v: FABRIC_VERSION,
            key,
            first_event: self.job.first_event,
            cargo: cargo.spec.as_ref().clone(),
            input: Value::Object(self.job.input.clone()),
            continues: self.handle.log.has_output().then(|| self.handle.log.text()),
            scope: self.job.account.to_string(),
            isolated: false,
            deadline: self.job.deadline.min(now.plus_ms(timeout_ms)),
            sent_at: now,
        })
    }

    pub(super) fn deadline_of_run(&self) -> Option<Instant> {
        let timeout = Duration::from_secs(self.cargo()?.spec.limits.timeout_s);
        Instant::now().checked_add(timeout)
    }
}
