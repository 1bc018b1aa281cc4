//! The task that owns one job, from its acceptance to its end.

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
    Owner,
    finish::Loss,
    first::First,
    live::{Command, Live, Run},
    placer::{Ask, Waiter},
};
use crate::{
    catalogue::Cargo,
    fleet::Past,
    job::{
        Job,
        state::{self, Trigger},
    },
    lease::Verdict,
    storage::job::{self as jobs, Step},
};

/// How often leases and deadlines are looked at.
const TICK: Duration = Duration::from_millis(500);

/// Whether the runner goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The job is still ours and open.
    Continue,
    /// The job has ended, or belongs to somebody else now.
    Stop,
}

/// The owner of one job.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) owner: Arc<Owner>,
    pub(super) live: Arc<Live>,
    pub(super) job: Job,
    commands: mpsc::UnboundedReceiver<Command>,
    pub(super) past: Past,
    /// What the Island's owner was credited, once the end is committed.
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
        owner: Arc<Owner>,
        live: Arc<Live>,
        job: Job,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        // After a restart the counts per event are gone: the Island's own figure stands in, capped as ever.
        let tokens = (!live.log.has_output()).then_some(0);
        Self {
            past: Past::none(job.only),
            owner,
            live,
            job,
            commands,
            earned: None,
            tokens,
            bytes: 0,
            run_deadline: None,
        }
    }

    /// Runs the job until it has ended or the coordinator stops; a job that is left open is taken up at the next start.
    pub(super) async fn run(mut self, first: Option<First>) {
        let hard = self.owner.hard.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        if let Some((host, key)) = first.map(First::take) {
            // Its attempt was committed with the job.
            tokio::select! {
                biased;
                () = hard.cancelled() => return,
                next = self.offered(host, key) => if next == Next::Stop {
                    return self.part().await;
                }
            }
        } else if self.live.state().run.is_none() {
            if self.unplaced("its coordinator was restarted").await == Next::Stop {
                return self.part().await;
            }
        } else {
            self.run_deadline = self.deadline_of_run();
        }
        loop {
            let next = tokio::select! {
                biased;
                () = hard.cancelled() => return,
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => Next::Stop,
                },
                _ = tick.tick() => self.look().await,
            };
            if next == Next::Stop {
                break;
            }
        }
        self.part().await;
    }

    /// The runner ends, and the Island's resources that its attempt claimed are free again, however the attempt ended.
    async fn part(mut self) {
        let _ = self.owner.placer.send(Ask::Forget(self.job.id));
        if let Some(run) = self.current() {
            self.owner.context.fleet.release(run.host, run.key);
        }
        self.owner.forget(self.job.id);
        self.decline_rest().await;
    }

    /// Commands that came too late still deserve an answer.
    async fn decline_rest(&mut self) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Cancel { answer } => drop(answer.send(self.job.status)),
                // Whoever has the job now answers for it.
                Command::Output { .. } if self.live.log.is_abandoned() => {}
                Command::Output { host, output, reply: Some(reply) } => {
                    let done =
                        OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None };
                    tracing::debug!(key = %output.key, "the end came again");
                    self.owner.context.link.answer(host, &reply, &done).await;
                }
                Command::Placed { host, key } => self.owner.context.fleet.release(host, key),
                _ => {}
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Next {
        match command {
            Command::Placed { host, key } => self.placed(host, key).await,
            Command::Waiting { reasons } => self.waits(reasons).await,
            Command::Output { host, output, reply } => self.take(host, output, reply).await,
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

    /// Deadline, lease and stall.
    async fn look(&mut self) -> Next {
        let context = &self.owner.context;
        let now = Instant::now();
        let late = context.clock.now() >= self.job.deadline;
        if late || self.run_deadline.is_some_and(|deadline| now >= deadline) {
            return self.timed_out().await;
        }
        let hearing = context.link.hearing().latest();
        let verdict = self
            .current()
            .filter(|_| hearing.connected)
            .and_then(|run| run.lease.verdict(now, hearing.since, &context.patience));
        match verdict {
            Some(Verdict::Expired) => self.lost(Loss::Island).await,
            Some(Verdict::Stalled) => self.lost(Loss::Stall).await,
            None => Next::Continue,
        }
    }

    pub(super) fn current(&self) -> Option<Run> {
        self.live.state().run.clone()
    }

    fn is_current(&self, host: HostId, key: AttemptKey) -> bool {
        self.live.state().run.as_ref().is_some_and(|run| run.host == host && run.key == key)
    }

    pub(super) fn cargo(&self) -> Option<&Cargo> {
        self.owner.context.catalogue.get(self.job.workload.as_str())
    }

    fn next_key(&self) -> AttemptKey {
        AttemptKey { job_id: self.job.id, attempt: self.job.attempt.max(1), epoch: self.job.epoch + 1 }
    }

    /// No Island has the job: another is asked for, unless it is the check of the one that did not take it.
    pub(super) async fn unplaced(&mut self, why: &str) -> Next {
        if self.job.only.is_none() {
            self.ask();
            return Next::Continue;
        }
        let message = format!("the Island did not take the job: {why}");
        self.fail(FailureCode::NoIslandAvailable, &message, Usage::default()).await
    }

    /// Asks for an Island.
    pub(super) fn ask(&mut self) {
        let Some(cargo) = self.cargo() else {
            let _ = self
                .live
                .send(Command::Waiting { reasons: BTreeMap::from([("unknown_cargo".to_owned(), 1)]) });
            return;
        };
        let waiter = Waiter {
            priority: self.job.priority,
            created_ms: self.job.created_at.unix_ms(),
            key: self.next_key(),
            cargo: cargo.spec.clone(),
            past: self.past.clone(),
            answer: self.live.commands(),
        };
        let _ = self.owner.placer.send(Ask::Place(Box::new(waiter)));
    }

    /// Moves the status by the table. An impossible move is a bug worth a line in the log, not a crash.
    pub(super) fn transit(&mut self, trigger: Trigger) -> JobStatus {
        match state::next(self.job.status, trigger) {
            Ok(status) => self.set_status(status),
            Err(error) => tracing::error!(job = %self.job.id, %error, "status left as it is"),
        }
        self.job.status
    }

    fn set_status(&mut self, status: JobStatus) {
        self.job.status = status;
        let mut state = self.live.state();
        state.status = status;
        state.started_at = self.job.started_at;
        if status != JobStatus::Pending {
            state.waiting = None;
        }
    }

    /// Nobody fits for now.
    async fn waits(&mut self, reasons: BTreeMap<String, u64>) -> Next {
        if self.current().is_some() {
            return Next::Continue;
        }
        if self.job.status != JobStatus::Pending {
            let Ok(status) = state::next(self.job.status, Trigger::NoneFits) else { return Next::Continue };
            let key = self.job.key();
            if !self.step(key, status, None, &self.live.log.events()).await {
                return Next::Stop;
            }
            self.set_status(status);
            self.tell_status(status);
        }
        self.live.state().waiting = Some(reasons);
        Next::Continue
    }

    /// Writes the fence; false if somebody else has moved it. Waits for the database as long as it takes.
    pub(super) async fn step(
        &mut self,
        to: AttemptKey,
        status: JobStatus,
        host: Option<HostId>,
        head: &[Numbered<JobEvent>],
    ) -> bool {
        let context = self.owner.context.clone();
        let first_event = head.len() as u64 + 1;
        let from = self.job.key();
        let step = Step { from, to, status, host, head, first_event, owner: context.instance };
        let mut pause = Duration::from_millis(50);
        let moved = loop {
            match jobs::step(&context.store, &step).await {
                Ok(moved) => break moved,
                Err(error) => {
                    tracing::error!(job = %self.job.id, error = %island_daemon::chain::Chain(&error), "job not moved yet");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        };
        if moved {
            (self.job.attempt, self.job.epoch, self.job.host) = (to.attempt, to.epoch, host);
            self.job.first_event = first_event;
        } else {
            tracing::warn!(job = %self.job.id, "the job belongs to another coordinator now");
            self.live.log.abandon();
        }
        moved
    }

    pub(super) fn tell_status(&self, status: JobStatus) {
        self.live.log.append([JobEvent::Status { state: status.as_str().to_owned() }]);
    }

    pub(super) async fn tell_cancel(&self, host: HostId, key: AttemptKey, code: FailureCode) {
        let cancel = Cancel { v: FABRIC_VERSION, key, code };
        self.owner.context.link.publish(HostTopic::Cancel.of(host), &cancel).await;
    }
}
