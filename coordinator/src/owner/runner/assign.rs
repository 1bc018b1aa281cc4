//! Giving a job to an Island: the attempt is committed before it is offered.

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
    job::state::{self, Trigger},
    owner::live::Run,
};

/// How long an Island may take to answer an assignment.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an Island that refused is not asked again.
pub(in crate::owner) const REFUSAL_PAUSE: Duration = Duration::from_secs(2);

impl Runner {
    /// An Island was found: commit the attempt, then offer it.
    pub(super) async fn placed(&mut self, host: HostId, key: AttemptKey) -> Next {
        let fleet = self.owner.context.fleet.clone();
        if key != self.next_key() || self.current().is_some() {
            fleet.release(host, key);
            return Next::Continue;
        }
        let Ok(status) = state::next(self.job.status, Trigger::Assign) else {
            fleet.release(host, key);
            return Next::Continue;
        };
        let mut head = self.live.log.events();
        let told = head.iter().rev().find_map(|numbered| match &numbered.event {
            JobEvent::Status { state } => Some(state.as_str() == status.as_str()),
            _ => None,
        });
        let tell = told != Some(true);
        if tell {
            let event = JobEvent::Status { state: status.as_str().to_owned() };
            head.push(Numbered { n: head.len() as u64 + 1, event });
        }
        if !self.step(key, status, Some(host), &head).await {
            fleet.release(host, key);
            return Next::Stop;
        }
        if tell {
            self.tell_status(status);
        }
        self.live.state().run = Some(Run::new(key, host, Instant::now(), false));
        self.offer(host, key, status).await
    }

    /// Offers the attempt that was committed with the job itself.
    pub(super) async fn offered(&mut self, host: HostId, key: AttemptKey) -> Next {
        self.live.state().run = Some(Run::new(key, host, Instant::now(), false));
        self.offer(host, key, self.job.status).await
    }

    async fn offer(&mut self, host: HostId, key: AttemptKey, accepted: JobStatus) -> Next {
        let context = self.owner.context.clone();
        let Some(assignment) = self.assignment(key) else { return Next::Continue };
        let subject = HostTopic::Jobs.of(host);
        let answer = context.link.request::<AssignmentReply>(subject, &assignment, ASSIGN_TIMEOUT).await;
        let why = match answer {
            Ok(reply) if reply.accepted => {
                self.set_status(accepted);
                self.live.accept();
                self.run_deadline = self.deadline_of_run();
                return Next::Continue;
            }
            Ok(reply) => {
                tracing::info!(%host, %key, refusal = ?reply.refusal, "assignment refused");
                reply.refusal.map_or_else(|| "it refused".to_owned(), |refusal| refusal.message)
            }
            Err(error) => {
                tracing::warn!(%host, %key, error = %island_daemon::chain::Chain(&error), "assignment unanswered");
                self.tell_cancel(host, key, FailureCode::IslandLost).await;
                "it did not answer".to_owned()
            }
        };
        // What it may have sent meanwhile carries an epoch that the next offer outdates.
        self.live.state().run = None;
        context.fleet.release(host, key);
        self.past.refused.insert(host, Instant::now() + REFUSAL_PAUSE);
        self.job.status = accepted;
        self.unplaced(&why).await
    }

    fn assignment(&self, key: AttemptKey) -> Option<Assignment> {
        let context = &self.owner.context;
        let cargo = self.cargo()?;
        let now = context.clock.now();
        let timeout_ms = i64::try_from(cargo.spec.limits.timeout_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        Some(Assignment {
            v: FABRIC_VERSION,
            key,
            first_event: self.job.first_event,
            cargo: cargo.spec.as_ref().clone(),
            input: Value::Object(self.job.input.clone()),
            continues: self.live.log.has_output().then(|| self.live.log.text()),
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
