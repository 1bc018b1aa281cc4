//! The task that executes one job, from its acceptance to its end.

mod assign;
mod output;

pub(super) use assign::REFUSAL_PAUSE;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use island_daemon::latest::Latest;
use island_protocol::{
    FABRIC_VERSION,
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    fabric::{Cancel, OutputReply},
    ids::{AttemptKey, HostId},
    job::{FailureCode, JobStatus, Usage},
    subjects::HostTopic,
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    Execution,
    finish::Loss,
    initial_placement::PlacementClaim,
    job_handle::{Command, JobHandle, Run},
    placer::{PlacementRequest, Request},
};
use crate::{
    catalogue::Cargo,
    fleet::PlacementHistory,
    job::{
        Job,
        state::{self, Trigger},
    },
    lease::Verdict,
    placement::reason,
    storage::jobs::{self, Step},
};

/// Interval between checks of leases and deadlines.
const TICK: Duration = Duration::from_millis(500);

/// Whether the runner continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The job is open and still this coordinator's.
    Continue,
    /// The job has ended, or is another coordinator's.
    Stop,
}

/// The runner of one job.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) execution: Arc<Execution>,
    pub(super) handle: Arc<JobHandle>,
    pub(super) job: Job,
    commands: mpsc::UnboundedReceiver<Command>,
    pub(super) history: PlacementHistory,
    /// Credits of the Island's owner, once the end is committed.
    pub(super) earned: Option<MicroCredits>,
    /// Model tokens delivered, as counted here; unknown after a restart.
    pub(super) tokens: Option<u64>,
    /// Bytes of events so far.
    bytes: u64,
    /// When the current attempt must have ended.
    run_deadline: Option<Instant>,
}

impl Runner {
    pub(super) fn new(
        execution: Arc<Execution>,
        handle: Arc<JobHandle>,
        job: Job,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        // After a restart the counts of the events are lost; the Island's own figure is used instead, with the usual
        // maximum.
        let tokens = (!handle.log.has_output()).then_some(0);
        Self {
            history: PlacementHistory::new(job.only),
            execution,
            handle,
            job,
            commands,
            earned: None,
            tokens,
            bytes: 0,
            run_deadline: None,
        }
    }

    /// Runs the job until it has ended or the coordinator stops. A job that is left open is resumed at the next start.
    pub(super) async fn run(mut self, claim: Option<PlacementClaim>) {
        let hard = self.execution.hard.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        if let Some((host, key)) = claim.map(PlacementClaim::into_parts) {
            // The attempt was committed with the job.
            tokio::select! {
                biased;
                () = hard.cancelled() => return,
                next = self.offered(host, key) => if next == Next::Stop {
                    return self.finish().await;
                }
            }
        } else if self.handle.state().run.is_none() {
            if self.unplaced("its coordinator was restarted").await == Next::Stop {
                return self.finish().await;
            }
        } else {
            self.run_deadline = self.deadline_of_run();
        }
        loop {
            let next = tokio::select! {
                biased;
                () = hard.cancelled() => return,
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command).await,
                    None => Next::Stop,
                },
                _ = tick.tick() => self.check_timeouts().await,
            };
            if next == Next::Stop {
                break;
            }
        }
        self.finish().await;
    }

    /// Ends the runner and releases the claim of its attempt, however the attempt ended.
    async fn finish(mut self) {
        let _ = self.execution.placer.send(Request::Remove(self.job.id));
        if let Some(run) = self.current() {
            self.execution.context.fleet.release(run.host, run.key);
        }
        self.execution.forget(self.job.id);
        self.reply_to_queued().await;
    }

    /// Replies to the commands that are still queued.
    async fn reply_to_queued(&mut self) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Cancel { answer } => drop(answer.send(self.job.status)),
                // The coordinator that executes the job now replies.
                Command::Output { .. } if self.handle.log.is_abandoned() => {}
                Command::Output { host, output, reply: Some(reply) } => {
                    let done =
                        OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None };
                    tracing::debug!(key = %output.key, "the end was received again");
                    self.execution.context.link.reply_to_island(host, &reply, &done).await;
                }
                Command::Placed { host, key } => self.execution.context.fleet.release(host, key),
                _ => {}
            }
        }
    }

    async fn handle(&mut self, command: Command) -> Next {
        match command {
            Command::Placed { host, key } => self.placed(host, key).await,
            Command::Waiting { reasons } => self.wait_for_island(reasons).await,
            Command::Output { host, output, reply } => self.receive(host, output, reply).await,
            Command::Started { host, key } => {
                if self.is_current(host, key) {
                    self.started();
                }
                Next::Continue
            }
            Command::Lost { key } => match self.current() {
                Some(run) if run.key == key => self.lost(Loss::Island).await,
                _ => Next::Continue,
            },
            Command::Cancel { answer } => {
                let next = self.cancelled().await;
                let _ = answer.send(self.job.status);
                next
            }
        }
    }

    /// Checks the deadline, the lease and progress.
    async fn check_timeouts(&mut self) -> Next {
        let context = &self.execution.context;
        let now = Instant::now();
        let is_late = context.clock.now() >= self.job.deadline;
        if is_late || self.run_deadline.is_some_and(|deadline| now >= deadline) {
            return self.timed_out().await;
        }
        let connectivity = context.link.connectivity().latest();
        let verdict = self
            .current()
            .filter(|_| connectivity.connected)
            .and_then(|run| run.lease.verdict(now, connectivity.since, &context.timeouts));
        match verdict {
            Some(Verdict::Expired) => self.lost(Loss::Island).await,
            Some(Verdict::Stalled) => self.lost(Loss::Stall).await,
            None => Next::Continue,
        }
    }

    pub(super) fn current(&self) -> Option<Run> {
        self.handle.state().run.clone()
    }

    fn is_current(&self, host: HostId, key: AttemptKey) -> bool {
        self.handle.state().run.as_ref().is_some_and(|run| run.host == host && run.key == key)
    }

    pub(super) fn cargo(&self) -> Option<&Cargo> {
        self.execution.context.catalogue.get(self.job.workload.as_str())
    }

    fn next_key(&self) -> AttemptKey {
        AttemptKey { job_id: self.job.id, attempt: self.job.attempt.max(1), epoch: self.job.epoch + 1 }
    }

    /// Requests another Island, or fails the job if it is an Island's check of itself.
    pub(super) async fn unplaced(&mut self, why: &str) -> Next {
        if self.job.only.is_none() {
            self.request_placement();
            return Next::Continue;
        }
        let message = format!("the Island did not take the job: {why}");
        self.fail(FailureCode::NoIslandAvailable, &message, Usage::default()).await
    }

    /// Requests an Island from the placer.
    pub(super) fn request_placement(&mut self) {
        let Some(cargo) = self.cargo() else {
            let _ = self
                .handle
                .send(Command::Waiting { reasons: BTreeMap::from([(reason::UNKNOWN_CARGO.to_owned(), 1)]) });
            return;
        };
        let request = PlacementRequest {
            priority: self.job.priority,
            created_ms: self.job.created_at.unix_ms(),
            key: self.next_key(),
            cargo: cargo.spec.clone(),
            history: self.history.clone(),
            answer: self.handle.commands(),
        };
        let _ = self.execution.placer.send(Request::Place(Box::new(request)));
    }

    /// Changes the status by the transition table. An illegal transition is a bug; it is logged and changes nothing.
    pub(super) fn transition(&mut self, trigger: Trigger) -> JobStatus {
        match state::next(self.job.status, trigger) {
            Ok(status) => self.set_status(status),
            Err(error) => tracing::error!(job = %self.job.id, %error, "illegal transition ignored"),
        }
        self.job.status
    }

    fn set_status(&mut self, status: JobStatus) {
        self.job.status = status;
        let mut state = self.handle.state();
        state.status = status;
        state.started_at = self.job.started_at;
        if status != JobStatus::Pending {
            state.waiting = None;
        }
    }

    /// Records that no Island can take the job now.
    async fn wait_for_island(&mut self, reasons: BTreeMap<String, u64>) -> Next {
        if self.current().is_some() {
            return Next::Continue;
        }
        let reason = Some(reason::in_words(&reasons));
        self.handle.state().waiting = Some(reasons);
        if self.job.status == JobStatus::Pending {
            return Next::Continue;
        }
        let Ok(status) = state::next(self.job.status, Trigger::NoneFits) else { return Next::Continue };
        let key = self.job.key();
        if !self.step(key, status, None, &self.handle.log.events()).await {
            return Next::Stop;
        }
        self.set_status(status);
        self.handle.log.append([JobEvent::Status { state: status.as_str().to_owned(), reason }]);
        Next::Continue
    }

    /// Writes the attempt's key and status. Returns `false` if another coordinator has changed them. Retries until the
    /// database replies.
    pub(super) async fn step(
        &mut self,
        to: AttemptKey,
        status: JobStatus,
        host: Option<HostId>,
        head: &[Numbered<JobEvent>],
    ) -> bool {
        let context = self.execution.context.clone();
        let first_event = head.len() as u64 + 1;
        let from = self.job.key();
        let step = Step { from, to, status, host, head, first_event, coordinator: context.instance };
        let mut pause = Duration::from_millis(50);
        let moved = loop {
            match jobs::step(&context.store, &step).await {
                Ok(moved) => break moved,
                Err(error) => {
                    tracing::error!(job = %self.job.id, error = %island_daemon::chain::Chain(&error), "attempt not written; will retry");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        };
        if moved {
            (self.job.attempt, self.job.epoch, self.job.host) = (to.attempt, to.epoch, host);
            self.job.first_event = first_event;
        } else {
            tracing::warn!(job = %self.job.id, "another coordinator executes the job now");
            self.handle.log.abandon();
        }
        moved
    }

    pub(super) fn append_status(&self, status: JobStatus) {
        self.handle.log.append([JobEvent::status(status.as_str())]);
    }

    pub(super) async fn send_cancel(&self, host: HostId, key: AttemptKey, code: FailureCode) {
        let cancel = Cancel { v: FABRIC_VERSION, key, code };
        self.execution.context.link.publish(HostTopic::Cancel.of(host), &cancel).await;
    }
}
