//! The shared state of a running job, and the commands to its runner.

use std::{collections::BTreeMap, sync::Arc};

use island_protocol::{
    fabric::{Lease as LeaseReply, LeasedJob, Output},
    ids::{AccountId, AttemptKey, HostId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::log::Log;
use crate::{
    job::{Job, LiveState},
    lease::Lease,
};

/// A command to a runner.
#[derive(Debug)]
pub(crate) enum Command {
    /// An Island was claimed for this job.
    Placed { host: HostId, key: AttemptKey },
    /// No Island can take the job, with the number of Islands for each reason.
    Waiting { reasons: BTreeMap<String, u64> },
    /// An Island sent events. `reply` is the inbox that waits for the commit of the end.
    Output { host: HostId, output: Output, reply: Option<String> },
    /// The Island reported that the attempt executes.
    Started { host: HostId, key: AttemptKey },
    /// The Island's agent restarted and does not have this attempt.
    Lost { key: AttemptKey },
    /// The consumer cancels the job. `answer` receives the status afterwards.
    Cancel { answer: oneshot::Sender<JobStatus> },
}

/// The current attempt.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub key: AttemptKey,
    pub host: HostId,
    pub lease: Lease,
    /// Whether events are missing, or may be.
    pub gap: bool,
    /// Number of the event that the log waited for when the lease was last renewed.
    expected: u64,
    /// When the connection was established in which the lease was last renewed.
    connected_since: Instant,
}

impl Run {
    /// An attempt that is assigned to an Island now.
    pub(crate) fn new(key: AttemptKey, host: HostId, now: Instant, gap: bool) -> Self {
        Self { key, host, lease: Lease::new(now), gap, expected: 0, connected_since: now }
    }
}

/// State of a running job.
#[derive(Debug)]
pub(crate) struct State {
    pub status: JobStatus,
    pub started_at: Option<Timestamp>,
    /// Number of Islands for each reason, while no Island can take the job.
    pub waiting: Option<BTreeMap<String, u64>>,
    pub run: Option<Run>,
}

/// A running job.
#[derive(Debug)]
pub(crate) struct JobHandle {
    pub id: JobId,
    pub account: AccountId,
    pub log: Arc<Log>,
    state: Mutex<State>,
    /// Whether an Island has ever accepted the job.
    accepted: watch::Sender<bool>,
    commands: mpsc::UnboundedSender<Command>,
}

impl JobHandle {
    pub(crate) fn new(job: &Job, log: Log, commands: mpsc::UnboundedSender<Command>) -> Self {
        let state = State { status: job.status, started_at: job.started_at, waiting: None, run: None };
        let accepted = watch::Sender::new(job.host.is_some());
        let (id, account) = (job.id, job.account);
        Self { id, account, log: Arc::new(log), state: Mutex::new(state), accepted, commands }
    }

    /// Locks the state. Do not hold the guard across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Sends a command to the runner. Returns `false` if the runner has ended.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    /// A sender of commands to the runner.
    pub(crate) fn commands(&self) -> mpsc::UnboundedSender<Command> {
        self.commands.clone()
    }

    /// Records that an Island accepted the job.
    pub(crate) fn accept(&self) {
        self.accepted.send_replace(true);
    }

    /// Waits until an Island has accepted the job.
    pub(crate) async fn accepted(&self) {
        let mut accepted = self.accepted.subscribe();
        // The sender lives as long as `self`.
        let _ = accepted.wait_for(|accepted| *accepted).await;
    }

    /// Renews the lease of an attempt. The reply states whether it is still valid and from which number events are
    /// missing.
    pub(crate) fn renew(
        &self,
        host: HostId,
        job: &LeasedJob,
        now: Instant,
        connected_since: Instant,
    ) -> LeaseReply {
        let next = self.log.next();
        let mut state = self.state();
        let run = state.run.as_mut().filter(|run| run.key == job.key && run.host == host);
        let Some(run) = run else { return LeaseReply { key: job.key, held: false, replay_from: None } };
        run.lease.renew(now, &job.phase, job.work);
        // Events may be in flight; they are requested again only if they should have arrived by now.
        let overdue = run.gap || run.expected == next || run.connected_since < connected_since;
        run.expected = next;
        run.connected_since = run.connected_since.max(connected_since);
        let missing = job.last_event >= next && overdue;
        run.gap = false;
        LeaseReply { key: job.key, held: true, replay_from: missing.then_some(next) }
    }

    /// State of the job, or `None` if it has ended: an end is read only from SQL, which has all of its parts.
    pub(crate) fn live_state(&self) -> Option<LiveState> {
        let state = self.state();
        LiveState::new(state.status, state.started_at, state.waiting.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_only_from_sql() {
        let job = crate::job::tests::open();
        let (commands, _inbox) = mpsc::unbounded_channel();
        let handle = JobHandle::new(&job, Log::new(Vec::new()), commands);
        handle.state().status = JobStatus::Running;
        assert_eq!(job.clone().view(handle.live_state()).status, JobStatus::Running);
        for &status in JobStatus::ALL.iter().filter(|status| status.is_final()) {
            // The row was read before the end was committed, and the memory afterwards.
            handle.state().status = status;
            let view = job.clone().view(handle.live_state());
            assert!(!view.status.is_final(), "{status} without its parts");
        }
    }
}
