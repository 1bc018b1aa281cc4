//! The task that executes one job: it gives the job's [`Machine`](super::machine::Machine) its inputs and performs the
//! effects.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use island_daemon::{
    chain::Chain,
    latest::Latest,
    traces::{Kind, Span},
};
use island_protocol::{
    FABRIC_VERSION,
    credits::MicroCredits,
    fabric::{Assignment, AssignmentReply, Cancel},
    ids::{AttemptKey, HostId},
    job::{FailureCode, JobStatus},
    subjects::HostTopic,
    time::Timestamp,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, timeout},
};
use tracing::Instrument as _;

use super::{
    Execution,
    input_memory::ReservedInput,
    job_handle::{Command, JobHandle},
    machine::{AttemptWrite, Effect, EndWrite, Input, OfferAnswer, Write, Written},
    placer::{PlacementRequest, Request},
    relays,
};
use crate::deferred_writes::DeferredWrite;
use island_coordinator_domain::{
    job::{Canceller, input::JobInput},
    ledger::{self, Earner},
    metrics::Ended,
};
use island_coordinator_storage::{
    StoreError,
    jobs::{self, Ending, Step},
};

/// Interval between checks of leases and deadlines.
const TICK: Duration = Duration::from_millis(500);
/// Time between two questions whether the job is read elsewhere, well below the time for which it may be unread.
const READERS_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time for an Island's reply to an assignment.
const ASSIGN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time to send a message while the fabric is away.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between tries of a write.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Maximum time for a write that has begun when the coordinator stops.
const LAST_WRITE: Duration = Duration::from_secs(2);
/// Tries of a write whose values the database does not accept.
const REJECTIONS: u32 = 3;

/// The runner of one job.
#[derive(Debug)]
pub(super) struct Runner {
    execution: Arc<Execution>,
    handle: Arc<JobHandle>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Held until the job has ended.
    _input: ReservedInput,
    /// Whether output was delivered, by this run of a coordinator or an earlier one.
    has_output: bool,
    /// From the job's acceptance to its end.
    trace: Span,
    /// While an Island is chosen.
    placing: Option<Span>,
    /// When the other coordinators were last asked whether they read the job.
    readers_asked: Option<Instant>,
}

/// The coordinator stops before a write was committed.
#[derive(Debug)]
struct Stopping;

impl Runner {
    pub(super) fn new(
        execution: Arc<Execution>,
        handle: Arc<JobHandle>,
        commands: mpsc::UnboundedReceiver<Command>,
        input: ReservedInput,
        trace: Span,
    ) -> Self {
        let has_output = handle.log.has_output();
        Self {
            execution,
            handle,
            commands,
            _input: input,
            has_output,
            trace,
            placing: None,
            readers_asked: None,
        }
    }

    /// Runs the job until it has ended or the coordinator stops. A job that is left open is resumed at the next start.
    pub(super) async fn run(mut self) {
        if self.process().await.is_err() {
            return;
        }
        let _ = self.execution.placer.send(Request::Remove(self.handle.id));
        self.execution.forget(self.handle.id);
        self.decline_queued().await;
    }

    async fn process(&mut self) -> Result<(), Stopping> {
        let hard = self.execution.hard.clone();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.apply(Input::Begin).await?;
        while !self.handle.is_over() {
            // The tick comes first: a sender that keeps the queue full must not keep a deadline from being checked.
            tokio::select! {
                biased;
                () = hard.cancelled() => return Err(Stopping),
                _ = tick.tick() => {
                    let mut connectivity = self.execution.context.link.connectivity().latest();
                    let renewals = &self.execution.renewals;
                    connectivity.since = connectivity.since.max(renewals.last_dropped().unwrap_or(connectivity.since));
                    let applied_until = renewals.applied_until(Instant::now());
                    self.ask_for_readers();
                    let has_readers = self.handle.has_readers();
                    self.apply(Input::Tick { connectivity, applied_until, has_readers }).await?;
                }
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_command(command).await?,
                    None => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// Asks now and then whether a job that nobody reads here is read elsewhere: its client may still be connected to the coordinator
    /// that lost the job.
    fn ask_for_readers(&mut self) {
        let has_peers = self.execution.context.store.heartbeats().is_some();
        if !has_peers || self.handle.is_read_here() || !self.handle.needs_readers() {
            return;
        }
        let now = Instant::now();
        if self.readers_asked.is_some_and(|asked| now.saturating_duration_since(asked) < READERS_INTERVAL) {
            return;
        }
        self.readers_asked = Some(now);
        let (execution, handle) = (self.execution.clone(), self.handle.clone());
        self.execution.spawn_task(async move {
            let link = &execution.context.link;
            tokio::select! {
                biased;
                () = execution.hard.cancelled() => {}
                is_read = relays::is_read_elsewhere(link, handle.id) => handle.set_read_elsewhere(is_read),
            }
        });
    }

    async fn handle_command(&mut self, command: Command) -> Result<(), Stopping> {
        match command {
            // The Island keeps its events and sends them again when it renews its lease.
            Command::Output { .. } if self.execution.is_fenced() => Ok(()),
            Command::Output { input, queued } => {
                let done = self.apply(input).await;
                drop(queued);
                self.count_first_output();
                done
            }
            Command::Input(input) => self.apply(input).await,
            Command::Cancel { canceller, answer } => {
                let done = self.apply(Input::Cancel(canceller)).await;
                let _ = answer.send(self.handle.status());
                done
            }
        }
    }

    /// Handles the commands that are still queued after the end.
    async fn decline_queued(&mut self) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            // If the job moved, the coordinator that executes it now replies to its Island.
            let is_reply = matches!(&command, Command::Output { .. });
            if is_reply && self.handle.log.is_abandoned() {
                continue;
            }
            if self.handle_command(command).await.is_err() {
                return;
            }
        }
    }

    /// Gives the machine an input, and performs its effects in order. The result of a write is the next input.
    async fn apply(&mut self, input: Input) -> Result<(), Stopping> {
        if matches!(input, Input::Placed { .. }) {
            self.placing = None;
        }
        let mut effects: VecDeque<Effect> = self.step(input).into();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Write(write) => {
                    let written = self.write(write).await?;
                    effects.extend(self.step(Input::Written(written)));
                }
                effect => self.perform(effect).await,
            }
        }
        Ok(())
    }

    fn step(&self, input: Input) -> Vec<Effect> {
        self.handle.machine().step(input, self.execution.now())
    }

    async fn perform(&mut self, effect: Effect) {
        let context = &self.execution.context;
        match effect {
            Effect::Write(_) => {}
            Effect::Offer { host, assignment } => self.offer(host, assignment),
            Effect::Accepted => {
                if self.handle.accept() {
                    context.metrics.jobs.placed(self.engine(), self.life(context.clock.now()));
                }
            }
            Effect::SendCancel { host, key, code } => self.send_cancel(host, key, code),
            Effect::Reply { host, subject, reply } => {
                // A lost reply is requested again.
                let _ = timeout(SEND_TIMEOUT, context.link.reply_to_island(host, &subject, &reply)).await;
            }
            Effect::Place { key, cargo, history } => {
                self.placing = Some(self.trace.child("place", Kind::Internal));
                let (priority, created_ms) = self.handle.order();
                let answer = self.handle.commands();
                let request = PlacementRequest { priority, created_ms, key, cargo, history, answer };
                let _ = self.execution.placer.send(Request::Place(Box::new(request)));
            }
            Effect::Release { host, key } => context.fleet.release(host, key),
            Effect::ShowEnd(end) => self.handle.log.append_end(end),
            Effect::RecordStart { key, times } => {
                let _ = context.deferred.send(DeferredWrite::Started(key, times));
            }
            Effect::CreditKarma { host, ms } => {
                if !self.is_own(host) {
                    context.fleet.credit_karma(host, ms);
                }
            }
            Effect::Compare { host, run } => {
                if let Some(cargo) = self.handle.cargo.as_ref().filter(|_| !self.is_own(host)) {
                    context.fleet.compare(host, &cargo.spec, run);
                }
            }
            Effect::Observe { host, conduct } => {
                context.fleet.observe(host, &self.handle.workload, conduct, Instant::now());
            }
            Effect::ReportFile { host, message } => {
                if context.fleet.report_file(host, &self.handle.workload, Instant::now()) {
                    let (cargo, at) = (self.handle.workload.clone(), context.clock.now());
                    let _ = context.deferred.send(DeferredWrite::PauseCargo { cargo, message, at });
                }
            }
            Effect::CountLoss(loss) => context.metrics.jobs.lost(loss),
        }
    }

    /// The Cargo's engine. A Cargo that the catalogue no longer has keeps its job, but not its engine.
    fn engine(&self) -> &str {
        self.handle.cargo.as_ref().map_or("unknown", |cargo| cargo.spec.runtime_type.as_str())
    }

    /// Time since the job was accepted.
    fn life(&self, now: Timestamp) -> Duration {
        let (_, created_ms) = self.handle.order();
        Duration::from_millis(u64::try_from(now.unix_ms() - created_ms).unwrap_or(0))
    }

    fn count_first_output(&mut self) {
        if !self.has_output && self.handle.log.has_output() {
            self.has_output = true;
            let context = &self.execution.context;
            context.metrics.jobs.delivered(self.engine(), self.life(context.clock.now()));
        }
    }

    /// Records a committed end.
    fn record_end(&mut self, write: &EndWrite) {
        let metrics = &self.execution.context.metrics;
        let EndWrite { job, status, end, karma, .. } = write;
        let ran = karma.map(|(_, ms)| Duration::from_millis(ms.unsigned_abs()));
        metrics.jobs.ended(&Ended {
            cargo: &job.workload,
            engine: self.engine(),
            status: *status,
            reason: end.error.as_ref().map(|error| error.code.as_str()),
            life: self.life(end.completed_at),
            reply: ran.map(|ran| (end.usage.completion_tokens, ran)),
        });
        if let (JobStatus::Completed, Some(identity), Some(host)) = (status, &job.conversation, job.host) {
            let write =
                DeferredWrite::Conversation { identity: identity.clone(), host, at: end.completed_at };
            // The task has ended if the coordinator stops: then the next job of the conversation goes anywhere.
            let _ = self.execution.context.deferred.send(write);
        }
        let charged = end.usage.credits_used.unwrap_or_default();
        metrics.books.moved(ledger::Kind::Settle.as_str(), charged);
        metrics.books.moved(ledger::Kind::Release.as_str(), job.price - charged);
        tracing::debug!(%status, reason = end.error.as_ref().map(|error| error.code.as_str()), "ended");
        self.trace.set("island.job.status", status);
        if let Some(error) = &end.error {
            self.trace.set("island.job.error", &error.code);
            self.trace.fail(&error.code);
        }
    }

    /// Whether an Island is the consumer's. Computing for oneself earns no karma: it costs nothing.
    fn is_own(&self, host: HostId) -> bool {
        let owner = self.execution.context.fleet.account_and_key(host);
        owner.is_some_and(|(account, _)| account == self.handle.account)
    }

    /// Offers an attempt in a separate task, so that the job can be cancelled meanwhile.
    fn offer(&self, host: HostId, mut assignment: Box<Assignment<JobInput>>) {
        assignment.instance = self.execution.context.fleet.instance(host);
        // The Island takes the difference of the two times.
        let limit_ms = assignment.deadline.unix_ms().saturating_sub(assignment.sent_at.unix_ms());
        let context = &self.execution.context;
        assignment.sent_at = context.clock.for_receiver(context.fleet.time_of(host, Instant::now()));
        assignment.deadline = assignment.sent_at.plus_ms(limit_ms);
        let (execution, handle) = (self.execution.clone(), self.handle.clone());
        let mut trace = self.trace.child("assign", Kind::Client);
        trace.set("island.host.id", host);
        trace.set("island.attempt", assignment.key.attempt);
        let offered = async move {
            let key = assignment.key;
            let subject = HostTopic::Jobs.of(host);
            let request = execution.context.link.request::<AssignmentReply>(
                subject,
                assignment.as_ref(),
                ASSIGN_TIMEOUT,
                trace.context(),
            );
            let answer = tokio::select! {
                biased;
                () = execution.hard.cancelled() => return,
                answer = timeout(SEND_TIMEOUT, request) => answer,
            };
            let metrics = &execution.context.metrics.jobs;
            let answer = match answer {
                Ok(Ok(reply)) if reply.accepted => OfferAnswer::Accepted,
                Ok(Ok(reply)) => {
                    tracing::info!(%host, %key, refusal = ?reply.refusal, "assignment refused");
                    metrics.refused(reply.refusal.as_ref().map(|refusal| refusal.reason));
                    let (reason, message) = reply.refusal.map_or_else(
                        || (None, "it refused".to_owned()),
                        |refusal| (Some(refusal.reason), refusal.message),
                    );
                    OfferAnswer::Refused { reason, message }
                }
                Ok(Err(error)) => {
                    tracing::warn!(%host, %key, error = %Chain(&error), "no reply to the assignment");
                    metrics.unanswered();
                    OfferAnswer::Silent
                }
                Err(_) => {
                    tracing::warn!(%host, %key, "assignment not sent in time");
                    metrics.unanswered();
                    OfferAnswer::Silent
                }
            };
            match &answer {
                OfferAnswer::Accepted => {}
                OfferAnswer::Refused { reason, .. } => {
                    trace.fail(reason.map_or_else(|| "refused".to_owned(), |reason| format!("{reason:?}")));
                }
                OfferAnswer::Silent => trace.fail("no reply"),
            }
            drop(trace);
            handle.send(Input::Answered { key, answer });
        };
        self.execution.spawn_task(offered.in_current_span());
    }

    /// Stops an attempt, in a separate task because the fabric may be away. An Island that does not get the message
    /// stops when its lease is not renewed.
    fn send_cancel(&self, host: HostId, key: AttemptKey, code: FailureCode) {
        let link = self.execution.context.link.clone();
        let sent = async move {
            let cancel = Cancel { v: FABRIC_VERSION, key, code };
            if timeout(SEND_TIMEOUT, link.publish(HostTopic::Cancel.of(host), &cancel)).await.is_err() {
                tracing::warn!(%host, %key, "cancellation not sent in time");
            }
        };
        self.execution.spawn_task(sent.in_current_span());
    }

    /// Writes, and retries until the database replies or the coordinator stops. A write that has begun by then gets some
    /// more time: it may be committed although nobody waits for it, and its effects, such as the message that cancels an
    /// attempt, would be lost.
    async fn write(&mut self, write: Write) -> Result<Written, Stopping> {
        let hard = self.execution.hard.clone();
        if hard.is_cancelled() {
            return Err(Stopping);
        }
        let too_late = async {
            hard.cancelled().await;
            tokio::time::sleep(LAST_WRITE).await;
        };
        tokio::select! {
            biased;
            written = self.write_until_done(write) => Ok(written),
            () = too_late => Err(Stopping),
        }
    }

    async fn write_until_done(&mut self, mut write: Write) -> Written {
        let mut pause = FIRST_PAUSE;
        let (mut rejections, mut earners) = (0, None);
        loop {
            let done = match &mut write {
                Write::Attempt(attempt) => self.write_attempt(attempt).await,
                Write::End(end) => self.write_end(end, &mut earners).await,
            };
            match done {
                Ok(Some(earned)) => return Written::Committed { earned },
                Ok(None) => return Written::Superseded,
                Err(error) => {
                    tracing::error!(job = %self.handle.id, error = %Chain(&error), "job not written; will retry");
                    rejections += u32::from(error.is_rejection());
                    if rejections >= REJECTIONS {
                        return Written::Rejected;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Writes an attempt. Returns `None` if another coordinator executes the job, otherwise what Islands earned.
    async fn write_attempt(
        &self,
        write: &AttemptWrite,
    ) -> Result<Option<Vec<(HostId, MicroCredits)>>, StoreError> {
        let context = &self.execution.context;
        let step = Step {
            from: write.from,
            to: write.to,
            status: write.status,
            host: write.host,
            head: &write.head,
            parts: &write.parts,
            times: write.times,
            first_event: write.head.len() as u64 + 1,
            coordinator: context.instance,
        };
        Ok(jobs::step(&context.store, &step).await?.then(Vec::new))
    }

    /// The Islands of an end whose owners are known, without the consumer's own: they cost and earn nothing.
    async fn earners(&self, write: &EndWrite) -> Result<Vec<Earner>, StoreError> {
        let mut earners = Vec::new();
        for &(host, share) in &write.shares {
            let owner = self.execution.account_and_key(host).await?.map(|(account, _)| account);
            if let Some(account) = owner.filter(|owner| *owner != write.job.account) {
                earners.push(Earner { host, account, share });
            }
        }
        Ok(earners)
    }

    /// Writes the end. Returns `None` if another coordinator executes the job, otherwise what Islands earned. The earners
    /// are found once: an earlier try may be committed although its reply was lost.
    async fn write_end(
        &mut self,
        write: &mut EndWrite,
        earners: &mut Option<Vec<Earner>>,
    ) -> Result<Option<Vec<(HostId, MicroCredits)>>, StoreError> {
        let context = &self.execution.context;
        let found = match earners {
            Some(found) => found,
            None => earners.insert(self.earners(write).await?),
        };
        let earned = found.iter().map(|earner| (earner.host, earner.share)).collect();
        write.set_charged(found.iter().map(|earner| earner.share).sum());
        let ending = Ending {
            job: &write.job,
            coordinator: context.instance,
            status: write.status,
            end: &write.end,
            earners: found,
            karma: write.karma.filter(|(host, _)| !self.is_own(*host)),
            canceller: write.canceller.as_ref(),
            events: &write.events,
        };
        let storing = self.trace.child("end", Kind::Internal);
        let is_ended = jobs::end(&context.store, &ending).await?;
        drop(storing);
        if is_ended {
            self.record_end(write);
        }
        Ok(is_ended.then_some(earned))
    }
}

/// Sends a cancellation to the runner of a job and waits for the job's status afterwards. Returns `None` if the runner
/// has ended.
pub(super) async fn cancel(handle: &JobHandle, canceller: Canceller) -> Option<JobStatus> {
    let (answer, reply) = oneshot::channel();
    handle.command(Command::Cancel { canceller, answer });
    reply.await.ok()
}
