//! What others see of a running job, and how they speak to its runner.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use island_protocol::{
    fabric::{Lease as LeaseAnswer, LeasedJob, Output},
    ids::{AccountId, AttemptKey, HostId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::log::Log;
use crate::{
    job::{Job, Standing},
    lease::Lease,
};

/// What a runner can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// An Island was claimed for this job.
    Placed { host: HostId, key: AttemptKey },
    /// Nobody fits, and why.
    Waiting { reasons: BTreeMap<String, u64> },
    /// An Island sent events; `reply` is where it waits for the commit of the end.
    Output { host: HostId, output: Output, reply: Option<String> },
    /// An Island says the attempt executes.
    Started { host: HostId, key: AttemptKey },
    /// The Island's agent restarted and does not hold this attempt.
    Lost { key: AttemptKey },
    /// The consumer does not want it any more; the answer is where the job stands then.
    Cancel { answer: oneshot::Sender<JobStatus> },
}

/// The attempt that runs.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub key: AttemptKey,
    pub host: HostId,
    pub lease: Lease,
    /// Events are missing, or may be.
    pub gap: bool,
    /// What the log was waiting for when the lease was last renewed.
    waited_for: u64,
    /// Start of the uninterrupted hearing in which it was last renewed.
    heard_since: Instant,
}

impl Run {
    /// An attempt given to an Island now.
    pub(crate) fn new(key: AttemptKey, host: HostId, now: Instant, gap: bool) -> Self {
        Self { key, host, lease: Lease::new(now), gap, waited_for: 0, heard_since: now }
    }
}

/// Where a running job stands.
#[derive(Debug)]
pub(crate) struct State {
    pub status: JobStatus,
    pub started_at: Option<Timestamp>,
    /// Number of Islands per reason, while nobody fits.
    pub waiting: Option<BTreeMap<String, u64>>,
    pub run: Option<Run>,
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Live {
    pub id: JobId,
    pub account: AccountId,
    pub log: Arc<Log>,
    state: Mutex<State>,
    /// Whether an Island has ever accepted it.
    accepted: watch::Sender<bool>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Live {
    pub(crate) fn new(job: &Job, log: Log, commands: mpsc::UnboundedSender<Command>) -> Self {
        let state = State { status: job.status, started_at: job.started_at, waiting: None, run: None };
        let accepted = watch::Sender::new(job.host.is_some());
        let (id, account) = (job.id, job.account);
        Self { id, account, log: Arc::new(log), state: Mutex::new(state), accepted, commands }
    }

    /// The state, for as long as the guard lives; never across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the runner something; a runner that has ended needs to know nothing.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    /// Where the runner listens.
    pub(crate) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    /// An Island took the job.
    pub(crate) fn accept(&self) {
        self.accepted.send_replace(true);
    }

    /// Waits until an Island has taken the job.
    pub(crate) async fn accepted(&self) {
        let mut accepted = self.accepted.subscribe();
        // The sender lives as long as `self`.
        let _ = accepted.wait_for(|accepted| *accepted).await;
    }

    /// Renews the lease of an attempt and says whether it goes on, and from where events are missing.
    pub(crate) fn renew(
        &self,
        host: HostId,
        job: &LeasedJob,
        now: Instant,
        heard_since: Instant,
    ) -> LeaseAnswer {
        let next = self.log.next();
        let mut state = self.state();
        let run = state.run.as_mut().filter(|run| run.key == job.key && run.host == host);
        let Some(run) = run else { return LeaseAnswer { key: job.key, held: false, replay_from: None } };
        run.lease.renew(now, &job.phase, job.work);
        // Events may be on their way; they are asked for again only if they should have been here by now.
        let overdue = run.gap || run.waited_for == next || run.heard_since < heard_since;
        run.waited_for = next;
        run.heard_since = run.heard_since.max(heard_since);
        let missing = job.last_event >= next && overdue;
        run.gap = false;
        LeaseAnswer { key: job.key, held: true, replay_from: missing.then_some(next) }
    }

    /// State of the job. `None` once it has ended: an end is read from SQL alone, where it has all its parts.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.state();
        Standing::new(state.status, state.started_at, state.waiting.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_never_taken_from_memory() {
        let job = crate::job::tests::open();
        let (commands, _inbox) = mpsc::unbounded_channel();
        let live = Live::new(&job, Log::new(Vec::new()), commands);
        live.state().status = JobStatus::Running;
        assert_eq!(job.clone().view(live.standing()).status, JobStatus::Running);
        for status in JobStatus::ALL.into_iter().filter(|status| status.is_final()) {
            // The row was read before the end was committed, and the memory after it.
            live.state().status = status;
            let view = job.clone().view(live.standing());
            assert!(!view.status.is_final(), "{status} without its parts");
        }
    }
}
