//! The life of one job, pure: from its acceptance to its end.
//!
//! [`Machine::step`] takes an [`Input`] and returns the [`Effect`]s that it causes. Nothing here waits, reads a clock or
//! does I/O; a driver does ([`super::runner`], and in tests a simulation). The only effect with a result is
//! [`Effect::Write`], which is the last of its step: until the driver returns the result as [`Input::Written`], it gives
//! the machine no other input. What follows a write, such as an offer to an Island, is returned with that result, so
//! that nothing is sent that SQL does not know.

mod attempt;
mod intake;
mod port;
mod price;
mod retry;
mod transcript;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use island_protocol::{
    FABRIC_VERSION,
    cargo::RuntimeType,
    credits::MicroCredits,
    event::JobEvent,
    fabric::{Assignment, Lease as LeaseAnswer, LeasedJob, Output, OutputReply, RefusalReason},
    ids::{AttemptKey, HostId},
    job::{Failure, FailureCode, Fault, FinishReason, JobStatus, Outcome, Usage},
};
use island_protocol_api::JobError;
use serde_json::Value;
use tokio::time::Instant;

use super::log::Log;
use attempt::Attempt;
pub(super) use attempt::Hosts;
use intake::TokenLimits;
use island_coordinator_domain::{
    catalogue::Cargo,
    fleet::{Conduct, PlacementHistory},
    job::{
        Agreement, Canceller, End, Job, LiveState, Part,
        input::JobInput,
        state::{self, Trigger},
    },
    lease::{LeaseTimeouts, Verdict},
    metrics::Loss,
    placement::{Reason, pace::Run, reason},
};
use island_coordinator_fabric::link::Connectivity;
pub(super) use port::{AttemptWrite, Effect, EndWrite, Input, Now, OfferAnswer, Write, Written};
use price::{Delivery, Ending, Tariff};
use retry::Delivered;
use transcript::Transcript;

/// After a longer time without a tick this process did not run, and leases get their whole duration again.
const MAX_GAP: Duration = Duration::from_secs(4);
/// How long a job that no Island has accepted waits for one after a restart, at least.
const RESUME_WAIT: Duration = Duration::from_secs(30);
/// How long a job that only its disconnected client could read is kept after a restart.
const UNREAD_LIMIT: Duration = Duration::from_secs(30);
const TIME_LIMIT: &str = "the time limit was reached";

/// Settings of all jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub timeouts: LeaseTimeouts,
    /// Attempts after the first one, while nothing was delivered.
    pub retries: u32,
}

/// An input in progress: its time, and what it causes.
#[derive(Debug)]
struct Step {
    now: Now,
    effects: Vec<Effect>,
}

impl Step {
    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

/// Where an Island waits for a reply.
#[derive(Debug)]
struct ReplyTo {
    host: HostId,
    subject: String,
}

/// What the Island of an attempt is sent when the attempt is over in SQL.
#[derive(Debug, Default)]
struct Notice {
    /// Why it must stop the attempt, if it may still execute it.
    stop: Option<FailureCode>,
    /// The reply to the message that ended the attempt.
    reply: Option<ReplyTo>,
}

impl Notice {
    /// The attempt may still execute.
    fn stop(code: FailureCode) -> Self {
        Self { stop: Some(code), reply: None }
    }

    /// The Island has ended the attempt.
    fn reply(reply: Option<ReplyTo>) -> Self {
        Self { stop: None, reply }
    }
}

/// What follows when a write is committed.
#[derive(Debug)]
enum Then {
    /// Offer the attempt to these Islands.
    Offer { hosts: Hosts },
    /// The attempt is taken away: request another Island.
    Place { notice: Notice },
    /// The offer had no reply.
    Withdraw,
    /// Wait for an Island.
    Wait,
    /// The job is over.
    End { trigger: Trigger, notice: Notice },
}

/// A write whose result is awaited.
#[derive(Debug)]
struct Pending {
    write: Write,
    then: Then,
}

/// The result of a job before its price is known.
#[derive(Debug)]
struct Conclusion {
    trigger: Trigger,
    ending: Ending,
    output: Option<Value>,
    usage: Usage,
    error: Option<JobError>,
    finish_reason: Option<FinishReason>,
    stop_text: Option<String>,
    /// The result as the Island sent it, for the last event.
    sent: Option<Value>,
    canceller: Option<Canceller>,
}

/// Whether an engine may deliver output before its end.
fn streams(engine: &RuntimeType) -> bool {
    !matches!(engine, RuntimeType::Onnx | RuntimeType::Coreml)
}

fn release(hosts: &Hosts, key: AttemptKey, step: &mut Step) {
    step.effects.extend(hosts.all().map(|host| Effect::Release { host, key }));
}

fn send_cancel(hosts: &Hosts, key: AttemptKey, code: FailureCode, step: &mut Step) {
    step.effects.extend(hosts.all().map(|host| Effect::SendCancel { host, key, code }));
}

fn reply_to(to: Option<ReplyTo>, reply: OutputReply, step: &mut Step) {
    if let Some(ReplyTo { host, subject }) = to {
        step.push(Effect::Reply { host, subject, reply });
    }
}

/// The reply to an Island whose events are no longer needed.
fn discarded() -> OutputReply {
    OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None }
}

/// One job.
#[derive(Debug)]
pub(super) struct Machine {
    job: Job,
    transcript: Transcript,
    /// As it was when the job was accepted; `None` if the catalogue no longer has it so.
    cargo: Option<Arc<Cargo>>,
    /// Whether the catalogue has another version of the Cargo instead.
    is_cargo_changed: bool,
    /// The Island whose output did not fit the Cargo's schema.
    violator: Option<HostId>,
    terms: Terms,
    attempt: Option<Attempt>,
    pending: Option<Pending>,
    history: PlacementHistory,
    refusals: HashMap<HostId, u32>,
    /// Attempts that owners handed back, as far as this process knows.
    hand_backs: u32,
    /// Number of Islands for each reason, while no Island can take the job.
    waiting: Option<BTreeMap<String, u64>>,
    deadline: Instant,
    /// Until when an Island must have accepted the job for the first time.
    accept_by: Option<Instant>,
    last_tick: Instant,
    /// When this process last resumed after a gap.
    resumed: Instant,
    /// Whether SQL accepts all that an end has. Once it has rejected values, only the last event is stored.
    is_storable: bool,
    /// Since when nobody has followed a job that only its disconnected client could read.
    unread_since: Option<Instant>,
    is_over: bool,
}

impl Machine {
    /// A job that was accepted here. `log` has its first events.
    pub(super) fn new(job: Job, log: Arc<Log>, cargo: Option<Arc<Cargo>>, terms: Terms, now: Now) -> Self {
        let remaining = |until: i64| {
            let ms = u64::try_from(until - now.wall.unix_ms()).unwrap_or(0);
            now.instant
                .checked_add(Duration::from_millis(ms))
                .unwrap_or(now.instant + Duration::from_hours(24 * 365))
        };
        let deadline = remaining(job.deadline.unix_ms());
        let mut machine = Self {
            transcript: Transcript::new(log),
            history: PlacementHistory::new(job.only, job.selection()),
            refusals: HashMap::new(),
            hand_backs: 0,
            waiting: None,
            attempt: None,
            pending: None,
            deadline,
            accept_by: None,
            last_tick: now.instant,
            resumed: now.instant,
            is_storable: true,
            unread_since: None,
            is_over: job.status.is_final(),
            job,
            cargo,
            is_cargo_changed: false,
            violator: None,
            terms,
        };
        // Its deadline is the longest wait for an Island and the time limit of one attempt.
        let limit_ms =
            machine.time_limit().map_or(0, |limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        let accept_by = remaining(machine.job.deadline.unix_ms().saturating_sub(limit_ms));
        machine.accept_by = (machine.job.attempt <= 1).then_some(accept_by);
        if let Some(host) = machine.job.host {
            machine.attempt = Some(Attempt::new(machine.job.key(), Hosts::one(host), 0, now.instant));
        }
        machine
    }

    /// A job that another run of a coordinator executed. Its attempt, if it has one, continues.
    pub(super) fn resumed(
        job: Job,
        log: Arc<Log>,
        cargo: Option<Arc<Cargo>>,
        terms: Terms,
        now: Now,
    ) -> Self {
        let cancel_unread = job.cancel_unread;
        let life = Duration::from_millis(
            u64::try_from(job.deadline.unix_ms() - job.created_at.unix_ms()).unwrap_or(0),
        );
        let mut machine = Self::new(job, log, cargo, terms, now);
        // The row's times are of another clock, and one of the two may be wrong: the job gets the time of one attempt at
        // least, and no more than a new job.
        let shortest = machine.time_limit().unwrap_or(life).min(life);
        let left = machine.deadline.saturating_duration_since(now.instant).clamp(shortest, life);
        machine.deadline = now.instant + left;
        machine.accept_by = machine.accept_by.map(|until| until.max(now.instant + RESUME_WAIT));
        let deadline = machine.attempt_deadline(now);
        let is_untouched = machine.is_untouched();
        if let Some(attempt) = &mut machine.attempt {
            machine.transcript.assume_incomplete();
            if is_untouched {
                attempt.repeat_offer();
            } else {
                attempt.resume(deadline);
                machine.accept_by = None;
            }
        }
        machine.unread_since = cancel_unread.then_some(now.instant);
        machine
    }

    /// Ends the job instead of placing it: the catalogue has another version of its Cargo than was agreed to. An attempt that an Island
    /// executes continues.
    pub(super) fn forbid_other_versions(&mut self) {
        self.is_cargo_changed = true;
    }

    /// Whether nothing is known of the current attempt but that it was committed: its coordinator may have stopped before it
    /// offered it.
    fn is_untouched(&self) -> bool {
        self.cargo.is_some()
            && self.job.status == JobStatus::Queued
            && self.transcript.log().next() == self.job.first_event
    }

    /// The job's row, as it was last committed.
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Whether an Island has accepted the current attempt.
    pub(super) fn is_accepted(&self) -> bool {
        self.attempt.as_ref().is_some_and(Attempt::is_accepted)
    }

    /// The job's status.
    pub(super) fn status(&self) -> JobStatus {
        self.job.status
    }

    /// Whether the job has ended here, or is another coordinator's.
    /// Whether the job is cancelled unless a consumer reads it.
    pub(super) fn needs_readers(&self) -> bool {
        self.unread_since.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The current attempt: the Island that leads it, and its key.
    pub(super) fn attempt(&self) -> Option<(HostId, AttemptKey)> {
        self.attempt.as_ref().map(|attempt| (attempt.leader(), attempt.key()))
    }

    /// Whether this is the current attempt.
    pub(super) fn is_current(&self, host: HostId, key: AttemptKey) -> bool {
        self.attempt() == Some((host, key))
    }

    /// Number of Islands for each reason, while no Island can take the job.
    pub(super) fn waiting(&self) -> Option<&BTreeMap<String, u64>> {
        self.waiting.as_ref()
    }

    /// State of the job, or `None` if it has ended: an end is read only from SQL, which has all of its parts.
    pub(super) fn live_state(&self) -> Option<LiveState> {
        LiveState::new(self.job.status, self.job.times, self.waiting.clone())
    }

    /// Puts a former defect back, so that the simulation can show that it finds it.
    #[cfg(test)]
    pub(super) fn assume_complete_log(&mut self) {
        self.transcript.assume_complete();
    }

    /// Puts another former defect back: an attempt that was committed counts as offered and accepted.
    #[cfg(test)]
    pub(super) fn assume_accepted(&mut self, now: Now) {
        let deadline = self.attempt_deadline(now);
        if let Some(attempt) = &mut self.attempt {
            attempt.resume(deadline);
        }
    }

    /// Renews the lease of an attempt. The reply states whether it is still valid and from which number events are
    /// missing. `connected_since` is when the fabric's connection was established.
    pub(super) fn renew(
        &mut self,
        host: HostId,
        job: &LeasedJob,
        now: Instant,
        connected_since: Instant,
    ) -> LeaseAnswer {
        let next = self.transcript.log().next();
        let is_current = self.is_current(host, job.key);
        let Some(attempt) = self.attempt.as_mut().filter(|_| is_current) else {
            return LeaseAnswer { key: job.key, held: false, replay_from: None };
        };
        let (is_missing, moved) = attempt.renew(job, next, connected_since, now);
        self.deadline += moved;
        self.transcript.sent_up_to(job.last_event);
        LeaseAnswer { key: job.key, held: true, replay_from: is_missing.then_some(next) }
    }

    /// Applies an input.
    pub(super) fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut step = Step { now, effects: Vec::new() };
        if let Input::Written(result) = input {
            self.written(result, &mut step);
        } else if self.is_over {
            Self::decline(input, &mut step);
        } else {
            debug_assert!(self.pending.is_none(), "an input before the result of a write");
            self.apply(input, &mut step);
        }
        step.effects
    }

    fn apply(&mut self, input: Input, step: &mut Step) {
        match input {
            Input::Begin => self.begin(step),
            Input::Placed { hosts, key } => self.placed(hosts, key, step),
            Input::NoIsland { reasons } => self.no_island(reasons, step),
            Input::Answered { key, answer } => self.answered(key, answer, step),
            Input::Output { host, output, reply } => self.output(host, output, reply, step),
            Input::Started { host, key } => {
                if self.is_current(host, key) {
                    self.accept(step);
                    self.started(step);
                }
            }
            Input::Lost { key } => {
                // An Island that is just being offered an attempt again does not list it yet: its answer decides.
                let is_lost = |attempt: &Attempt| attempt.key() == key && !attempt.awaits_repeated_offer();
                if self.attempt.as_ref().is_some_and(is_lost) {
                    self.lost(Loss::Forgotten, step);
                }
            }
            Input::Cancel(canceller) => self.cancelled(canceller, step),
            Input::Moved => self.moved(step),
            Input::Tick { connectivity, applied_until, has_readers } => {
                self.tick(connectivity, applied_until, has_readers, step);
            }
            Input::Written(_) => {}
        }
    }

    /// What an input causes after the end.
    fn decline(input: Input, step: &mut Step) {
        match input {
            Input::Placed { hosts, key } => release(&hosts, key, step),
            Input::Output { host, reply: Some(subject), .. } => {
                step.push(Effect::Reply { host, subject, reply: discarded() });
            }
            _ => {}
        }
    }

    pub(super) fn cargo(&self) -> Option<&Arc<Cargo>> {
        self.cargo.as_ref()
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.cargo()?.spec.limits.timeout_s))
    }

    fn attempt_deadline(&self, now: Now) -> Option<Instant> {
        now.instant.checked_add(self.time_limit()?)
    }

    fn next_key(&self) -> AttemptKey {
        AttemptKey { job_id: self.job.id, attempt: self.job.attempt.max(1), epoch: self.job.epoch + 1 }
    }

    /// Commits `write`; `then` follows.
    fn write(&mut self, write: Write, then: Then, step: &mut Step) {
        step.push(Effect::Write(write.clone()));
        self.pending = Some(Pending { write, then });
    }

    /// Commits an attempt's key and status and appends `events` to the log.
    fn write_attempt(
        &mut self,
        to: AttemptKey,
        status: JobStatus,
        host: Option<HostId>,
        events: impl IntoIterator<Item = JobEvent>,
        then: Then,
        step: &mut Step,
    ) {
        let head = self.transcript.with(events);
        let (from, parts, times) = (self.job.key(), self.job.parts.clone(), self.job.times);
        let write = AttemptWrite { from, to, status, host, head, parts, times };
        self.write(Write::Attempt(write), then, step);
    }

    fn begin(&mut self, step: &mut Step) {
        match &self.attempt {
            None => self.place_again("its coordinator was restarted", step),
            Some(attempt) if attempt.is_accepted() => {}
            // The attempt was committed with the job, or by a coordinator that may have stopped before it offered it.
            Some(_) => self.offer(step),
        }
    }

    /// Requests another Island, or fails the job if it is an Island's check of itself.
    fn place_again(&mut self, why: &str, step: &mut Step) {
        if self.job.only.is_none() {
            return self.place(step);
        }
        let failure = Failure::of_host(
            FailureCode::NoIslandAvailable,
            format!("the Island did not take the job: {why}"),
        );
        self.fail(failure, Usage::default(), Notice::default(), step);
    }

    fn place(&mut self, step: &mut Step) {
        let Some(cargo) = self.cargo().map(|cargo| cargo.spec.clone()) else {
            if self.is_cargo_changed {
                let message =
                    "the Cargo was replaced while the job waited; submit it again for the new version";
                let failure = Failure::of_host(FailureCode::CargoChanged, message);
                return self.fail(failure, Usage::default(), Notice::default(), step);
            }
            return self.no_island(BTreeMap::from([(reason::UNKNOWN_CARGO.to_owned(), 1)]), step);
        };
        let mut history = self.history.clone();
        if self.continues_form() {
            Arc::make_mut(&mut history.selection).continues_form = true;
        }
        step.push(Effect::Place { key: self.next_key(), cargo, history });
    }

    /// Whether the next attempt continues a reply whose form a grammar enforces: the engine has to bring the grammar behind the delivered text.
    fn continues_form(&self) -> bool {
        retry::has_enforced_form(&self.job.input) && self.transcript.log().has_output()
    }

    fn placed(&mut self, hosts: Hosts, key: AttemptKey, step: &mut Step) {
        let status = state::next(self.job.status, Trigger::Assign);
        let (Ok(status), true) = (status, key == self.next_key() && self.attempt.is_none()) else {
            return release(&hosts, key, step);
        };
        let announced = self.transcript.log().last_state();
        let is_new = announced.as_deref() != Some(status.as_str());
        let events = is_new.then(|| JobEvent::status(status.as_str()));
        self.write_attempt(key, status, Some(hosts.leader), events, Then::Offer { hosts }, step);
    }

    fn offer(&mut self, step: &mut Step) {
        let Some(assignment) = self.assignment(step.now) else {
            // The Cargo was removed from the catalogue.
            self.release(step);
            return self.place(step);
        };
        let Some(attempt) = &self.attempt else { return };
        step.push(Effect::Offer { host: attempt.leader(), assignment: Box::new(assignment) });
    }

    fn assignment(&self, now: Now) -> Option<Assignment<JobInput>> {
        let cargo = self.cargo()?;
        let left = self.deadline.saturating_duration_since(now.instant).min(self.time_limit()?);
        let log = self.transcript.log();
        Some(Assignment {
            v: FABRIC_VERSION,
            key: self.job.key(),
            instance: None,
            first_event: self.job.first_event,
            cargo: cargo.spec.as_ref().clone(),
            input: self.job.input.clone(),
            continues: log.has_output().then(|| log.written()),
            continues_reasoning: log.reasoning(),
            scope: self.job.account.to_string(),
            isolated: false,
            deadline: now.wall.plus_ms(i64::try_from(left.as_millis()).unwrap_or(i64::MAX)),
            sent_at: now.wall,
        })
    }

    fn answered(&mut self, key: AttemptKey, answer: OfferAnswer, step: &mut Step) {
        // Output that arrives before the answer shows that the Island has accepted.
        let is_open = |attempt: &&Attempt| attempt.key() == key && !attempt.is_accepted();
        let Some(attempt) = self.attempt.as_ref().filter(is_open) else { return };
        let (host, is_repeated) = (attempt.leader(), attempt.awaits_repeated_offer());
        match answer {
            OfferAnswer::Accepted => self.accept(step),
            // The attempt has ended there, and a consumer may have seen its output.
            OfferAnswer::Refused { reason: Some(RefusalReason::Invalid), .. } if is_repeated => {
                self.lost(Loss::Forgotten, step);
            }
            // The Island may execute the attempt: its lease decides.
            OfferAnswer::Silent if is_repeated => self.resume_attempt(step),
            OfferAnswer::Refused { reason, message } => {
                if is_repeated {
                    // The Island has never had the attempt: the row has all events from before it.
                    self.transcript.assume_complete();
                }
                self.release(step);
                step.push(Effect::Observe { host, conduct: retry::refusal_conduct(reason) });
                self.avoid(host, reason, step.now);
                self.place_again(&message, step);
            }
            OfferAnswer::Silent => {
                // The key is given up before the Island is stopped: a coordinator that lost the job meanwhile must
                // not stop the attempt that its successor continues.
                self.write_attempt(self.next_key(), self.job.status, None, [], Then::Withdraw, step);
            }
        }
    }

    /// Does not offer the job to an Island for some time.
    fn avoid(&mut self, host: HostId, reason: Option<RefusalReason>, now: Now) {
        let refusals = self.refusals.entry(host).or_default();
        *refusals += 1;
        let until = now.instant + retry::refusal_pause(reason, *refusals);
        self.history.refused.insert(host, until);
    }

    /// Records that the Island has accepted the attempt.
    fn accept(&mut self, step: &mut Step) {
        let deadline = self.attempt_deadline(step.now);
        if !self.attempt.as_mut().is_some_and(|attempt| attempt.accept(deadline)) {
            return;
        }
        self.waiting = None;
        self.accept_by = None;
        self.job.times.placed_at.get_or_insert(step.now.wall);
        step.push(Effect::Accepted);
    }

    /// Continues an attempt that its Island may execute. The Island has the time of a lease to renew it.
    fn resume_attempt(&mut self, step: &mut Step) {
        let deadline = self.attempt_deadline(step.now);
        let Some(attempt) = &mut self.attempt else { return };
        attempt.resume(deadline);
        self.accept_by = None;
        step.push(Effect::Accepted);
    }

    /// Records that no Island can take the job now.
    fn no_island(&mut self, reasons: BTreeMap<String, u64>, step: &mut Step) {
        if self.attempt.is_some() {
            return;
        }
        let is_vain =
            |name: &String| [Reason::NoRuntime, Reason::Preferences].iter().any(|vain| vain.as_str() == name);
        if self.continues_form() && !reasons.is_empty() && reasons.keys().all(is_vain) {
            // Engines that could continue it come only with new versions of agents, and what the request excludes stays excluded.
            let message =
                "the Island was lost while the job ran, and no other can continue a reply of this form";
            let failure = Failure::of_host(FailureCode::IslandLost, message);
            return self.fail(failure, Usage::default(), Notice::default(), step);
        }
        let reason = Some(reason::in_words(&reasons));
        self.waiting = Some(reasons);
        if self.job.status == JobStatus::Pending {
            return;
        }
        let Ok(status) = state::next(self.job.status, Trigger::NoneFits) else { return };
        let event = JobEvent::Status { state: status.as_str().to_owned(), reason };
        self.write_attempt(self.job.key(), status, None, [event], Then::Wait, step);
    }

    /// Records that the attempt executes.
    fn started(&mut self, step: &mut Step) {
        if let Some(attempt) = &mut self.attempt {
            attempt.execute(step.now.instant);
        }
        if self.job.status != JobStatus::Queued {
            return;
        }
        self.job.times.started_at.get_or_insert(step.now.wall);
        self.transition(Trigger::Start);
        step.push(Effect::RecordStart { key: self.job.key(), times: self.job.times });
    }

    /// Changes the status by the transition table. An illegal transition is a bug; it is logged and changes nothing.
    fn transition(&mut self, trigger: Trigger) {
        match state::next(self.job.status, trigger) {
            Ok(status) => self.set_status(status),
            Err(error) => tracing::error!(job = %self.job.id, %error, "illegal transition ignored"),
        }
    }

    fn set_status(&mut self, status: JobStatus) {
        self.job.status = status;
        if status != JobStatus::Pending {
            self.waiting = None;
        }
    }

    /// Applies events of the current attempt, in order and once.
    fn output(&mut self, host: HostId, output: Output, subject: Option<String>, step: &mut Step) {
        let reply = subject.map(|subject| ReplyTo { host, subject });
        if !self.is_current(host, output.key) {
            tracing::debug!(%host, key = %output.key, "stale output dropped");
            return reply_to(reply, discarded(), step);
        }
        self.accept(step);
        let had_output = self.job.times.first_output_at.is_some() || self.transcript.log().has_output();
        let added = self.transcript.add(output.events);
        if added.has_output && !had_output {
            self.job.times.first_output_at = Some(step.now.wall);
        }
        if added.executes {
            self.started(step);
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.progress(added.has_gap, step.now.instant);
        }
        let outcome = match added.end {
            Some(Err(error)) => {
                let failure = Failure::of_host(FailureCode::InvalidOutput, error.to_string());
                let notice = Notice::stop(failure.code);
                return self.attempt_failed(failure, Usage::default(), notice, step);
            }
            Some(Ok(outcome)) => Some(outcome),
            None => None,
        };
        let limit = self.cargo().map_or(u64::MAX, |cargo| cargo.spec.limits.max_output_bytes);
        if self.transcript.exceeds(limit) {
            let failure =
                Failure::of_job(FailureCode::OutputLimit, "the job produced more output than allowed");
            let notice = Notice::stop(failure.code);
            return self.fail(failure, Usage::default(), notice, step);
        }
        if let Some(outcome) = outcome {
            return self.ended(outcome, reply, step);
        }
        let replay_from = added.has_gap.then(|| self.transcript.log().next());
        reply_to(reply, OutputReply { committed: false, replay_from, ..discarded() }, step);
    }

    /// Handles the end that an attempt reported.
    fn ended(&mut self, outcome: Outcome, reply: Option<ReplyTo>, step: &mut Step) {
        let notice = Notice::reply(reply);
        let (claimed, output, finish_reason, stop_text) = match outcome {
            Outcome::Completed { usage, output, finish_reason, stop_text } => {
                (usage, output, finish_reason, stop_text)
            }
            Outcome::Failed { failure, usage } => return self.attempt_failed(failure, usage, notice, step),
        };
        let stored = output.clone().unwrap_or_else(|| Value::String(self.transcript.log().text()));
        if let Some(violation) = self.schema_violation(&stored) {
            return self.violated(violation, claimed, notice, step);
        }
        // The Island whose output did not fit is contradicted.
        if let (Some(host), Some((other, _))) = (self.violator, self.attempt())
            && host != other
        {
            step.push(Effect::Observe { host, conduct: Conduct::Failed });
        }
        let stop_text = stop_text.filter(|text| self.is_stop_text(text));
        let conclusion = Conclusion {
            trigger: Trigger::Complete,
            ending: Ending::Completed,
            usage: self.transcript.usage(claimed, self.token_limits(), stop_text.as_deref()),
            error: None,
            finish_reason,
            stop_text,
            sent: output,
            output: Some(stored),
            canceller: None,
        };
        self.end(conclusion, notice, step);
    }

    fn token_limits(&self) -> TokenLimits {
        TokenLimits { prompt: self.job.input.tokens().max, completion: self.job.max_tokens }
    }

    /// Whether the request has this stop text.
    fn is_stop_text(&self, text: &str) -> bool {
        match self.job.input.get("stop") {
            Some(Value::Array(stops)) => stops.iter().any(|stop| stop == text),
            stop => stop.as_ref().and_then(Value::as_str) == Some(text),
        }
    }

    /// Checks an output against the Cargo's schema.
    fn schema_violation(&self, output: &Value) -> Option<String> {
        let violation = self.cargo()?.check_output(output).err()?;
        Some(format!(
            "the output does not fit the Cargo's schema: {}: {}",
            violation.field, violation.message
        ))
    }

    /// Handles an output that does not fit the Cargo's schema. Where an author decides what fits, the fault is the Cargo's: otherwise anybody
    /// could make Islands look unreliable with a Cargo of their own. Where the engine decides, another Island is tried, and only a valid output
    /// of that one counts against the first.
    fn violated(&mut self, violation: String, claimed: Usage, notice: Notice, step: &mut Step) {
        let host = self.attempt().map(|(host, _)| host);
        if self.cargo().is_some_and(|cargo| cargo.has_own_outputs()) {
            let failure = Failure::of_job(FailureCode::InvalidOutput, violation);
            return self.fail(failure, claimed, notice, step);
        }
        let failure = Failure::of_host(FailureCode::InvalidOutput, violation);
        if self.violator.is_some() {
            // A second Island has the same: neither is to blame.
            return self.fail(failure, claimed, notice, step);
        }
        self.violator = host;
        self.retry_or_fail(failure, claimed, notice, step);
    }

    /// Requeues the job after a failed attempt, or fails it. Counts the failure against its Island.
    fn attempt_failed(&mut self, failure: Failure, claimed: Usage, notice: Notice, step: &mut Step) {
        // Another Island would reach the same limit.
        if failure.code == FailureCode::DeadlineExceeded && failure.fault != Fault::Host {
            return self.timed_out(TIME_LIMIT, notice, step);
        }
        let is_handed_back = failure.code == FailureCode::HandedBack;
        let host = self.attempt.as_ref().map(Attempt::leader);
        if let Some(host) = host.filter(|_| failure.fault != Fault::Job && !is_handed_back) {
            step.push(Effect::Observe { host, conduct: Conduct::Failed });
            if failure.code == FailureCode::ModelHashMismatch {
                step.push(Effect::ReportFile { host, message: failure.message.clone() });
            }
        }
        self.retry_or_fail(failure, claimed, notice, step);
    }

    fn retry_or_fail(&mut self, failure: Failure, claimed: Usage, notice: Notice, step: &mut Step) {
        let is_handed_back = failure.code == FailureCode::HandedBack;
        let host = self.attempt.as_ref().map(Attempt::leader);
        let (attempt, retries) = (self.job.attempt, self.terms.retries);
        let is_retry = self.job.only.is_none()
            && retry::may_retry(&failure, self.delivered(), attempt, self.hand_backs, retries);
        if !is_retry {
            return self.fail(failure, claimed, notice, step);
        }
        self.hand_backs += u32::from(retry::is_handed_back(&failure));
        tracing::info!(key = %self.job.key(), code = %failure.code, "attempt failed, another follows");
        if let Some(host) = host.filter(|_| is_handed_back) {
            // The fleet may still list it as free until its next heartbeat.
            self.avoid(host, None, step.now);
        }
        self.requeue(notice, step);
    }

    /// Returns what was delivered so far.
    fn delivered(&self) -> Delivered {
        let log = self.transcript.log();
        let spec = self.cargo().map(|cargo| &cargo.spec);
        let streams = spec.is_some_and(|spec| streams(&spec.runtime_type));
        if !self.transcript.is_complete() && (streams || log.has_output()) {
            // The consumer may have seen output that no longer exists; other events must not get its numbers.
            return Delivered::Final;
        }
        let continues = || spec.is_some_and(|spec| spec.continues_text()) && log.is_text_alone();
        match log.has_output() {
            false => Delivered::Nothing,
            true if continues() => Delivered::Beginning,
            true => Delivered::Final,
        }
    }

    /// Requeues the job with the next attempt's key, which is committed before any message is sent.
    fn requeue(&mut self, notice: Notice, step: &mut Step) {
        let Ok(status) = state::next(self.job.status, Trigger::Requeue) else { return };
        let to = AttemptKey { attempt: self.job.attempt + 1, epoch: self.job.epoch + 1, job_id: self.job.id };
        if let Some(part) = self.part().filter(|part| part.units > 0) {
            self.job.parts.push(part);
        }
        let event = JobEvent::status(status.as_str());
        self.write_attempt(to, status, None, [event], Then::Place { notice }, step);
    }

    /// What the current attempt has delivered. Its leader is paid for all members.
    fn part(&self) -> Option<Part> {
        let attempt = self.attempt.as_ref()?;
        let units = self.transcript.tokens(None).saturating_sub(attempt.tokens_before());
        Some(Part { host: attempt.leader(), units })
    }

    /// Takes the attempt away from its Island: requeues the job if nothing was delivered, otherwise ends it.
    fn lost(&mut self, loss: Loss, step: &mut Step) {
        let (code, message) = match loss {
            Loss::Stalled => (FailureCode::RuntimeStalled, "the run stopped making progress"),
            Loss::LeaseExpired | Loss::Forgotten => {
                (FailureCode::IslandLost, "the Island was lost while the job ran")
            }
        };
        step.push(Effect::CountLoss(loss));
        tracing::warn!(key = %self.job.key(), host = ?self.job.host, code = %code, "attempt lost");
        let failure = Failure::of_host(code, message);
        self.attempt_failed(failure, Usage::default(), Notice::stop(code), step);
    }

    fn fail(&mut self, failure: Failure, claimed: Usage, notice: Notice, step: &mut Step) {
        let code = match failure.fault {
            Fault::Interrupted if failure.code != FailureCode::HandedBack => FailureCode::IslandLost,
            Fault::Job | Fault::Host | Fault::Interrupted => failure.code,
        };
        let ending = if failure.fault == Fault::Job { Ending::OwnFault } else { Ending::NetworkFault };
        let error = JobError { code: code.as_str().to_owned(), message: failure.message };
        let conclusion = self.without_result(Trigger::Fail, ending, error, claimed);
        self.end(conclusion, notice, step);
    }

    fn timed_out(&mut self, message: &str, notice: Notice, step: &mut Step) {
        let code = FailureCode::DeadlineExceeded.as_str().to_owned();
        let error = JobError { code, message: message.to_owned() };
        let conclusion = self.without_result(Trigger::Expire, Ending::OwnFault, error, Usage::default());
        self.end(conclusion, notice, step);
    }

    /// Cancels the job. Only its error and the audit log depend on the canceller; what is charged does not.
    fn cancelled(&mut self, canceller: Canceller, step: &mut Step) {
        let error = canceller.error();
        let conclusion = self.without_result(Trigger::Cancel, Ending::Cancelled, error, Usage::default());
        let conclusion = Conclusion { canceller: Some(canceller), ..conclusion };
        self.end(conclusion, Notice::stop(FailureCode::CancelledByUser), step);
    }

    fn without_result(
        &self,
        trigger: Trigger,
        ending: Ending,
        error: JobError,
        claimed: Usage,
    ) -> Conclusion {
        Conclusion {
            trigger,
            ending,
            output: None,
            usage: self.transcript.usage(claimed, self.token_limits(), None),
            error: Some(error),
            finish_reason: None,
            stop_text: None,
            sent: None,
            canceller: None,
        }
    }

    /// Commits the end.
    fn end(&mut self, conclusion: Conclusion, notice: Notice, step: &mut Step) {
        let Conclusion {
            trigger,
            ending,
            output,
            mut usage,
            error,
            finish_reason,
            stop_text,
            sent,
            canceller,
        } = conclusion;
        let now = step.now;
        if trigger == Trigger::Complete && self.job.status == JobStatus::Queued {
            self.job.times.started_at.get_or_insert(now.wall);
        }
        let Ok(status) = state::next(self.job.status, trigger) else { return };
        let shares = self.shares(ending, output.as_ref(), stop_text.is_some(), &usage, now);
        let charged: MicroCredits = shares.iter().map(|(_, share)| *share).sum();
        usage.credits_used = Some(charged);
        let event = match &error {
            Some(error) => JobEvent::Error { error: error.message.clone(), code: error.code.clone() },
            None => JobEvent::Done { usage: usage.clone(), output: sent, finish_reason, stop_text },
        };
        let mut events = self.transcript.with_end(event);
        if !self.is_storable {
            events.drain(..events.len() - 1);
        }
        let earns_karma = status == JobStatus::Completed && self.job.only.is_none();
        let karma = self.attempt.as_ref().filter(|_| earns_karma).map(|attempt| {
            // By the clock that does not step.
            let ran = attempt.executed(now.instant);
            (attempt.leader(), i64::try_from(ran.as_millis()).unwrap_or(i64::MAX))
        });
        let end = EndWrite {
            job: self.job.clone(),
            status,
            end: End { completed_at: now.wall, output, usage, error },
            shares,
            karma,
            canceller,
            events,
        };
        self.write(Write::End(Box::new(end)), Then::End { trigger, notice }, step);
    }

    /// What each Island earns.
    fn shares(
        &self,
        ending: Ending,
        output: Option<&Value>,
        has_stop_text: bool,
        usage: &Usage,
        now: Now,
    ) -> Vec<(HostId, MicroCredits)> {
        let Agreement { base_price, token_prices, .. } = &self.job.agreement;
        let tariff = Tariff { held: self.job.price, base: *base_price, tokens: *token_prices };
        let has_output = self.transcript.log().has_output();
        let is_empty_text = output.and_then(Value::as_str).is_some_and(str::is_empty);
        // Counting the tokens of a prompt computes none of them.
        let is_count = self.job.input.get("count_tokens") == Some(Value::Bool(true));
        let delivery = Delivery {
            // An Island that was interrupted has not reported it.
            prompt_tokens: match usage.prompt_tokens {
                0 => self.job.input.tokens().usual,
                reported => reported,
            },
            has_output,
            is_empty: is_empty_text && !has_output && !has_stop_text,
            has_prompt: !is_count,
            tokens: usage.completion_tokens,
            max_tokens: self.job.max_tokens,
            executed: self.attempt.as_ref().map_or(Duration::ZERO, |attempt| attempt.executed(now.instant)),
            time_limit: self.time_limit().unwrap_or(Duration::MAX),
        };
        let charged = price::charge(&tariff, ending, &delivery);
        let mut parts = self.job.parts.clone();
        parts.extend(self.part());
        let mut shares = price::divide(charged, &parts);
        shares.retain(|(_, share)| *share > MicroCredits::ZERO);
        shares
    }

    /// Checks the deadline, the lease and progress.
    fn tick(
        &mut self,
        connectivity: Connectivity,
        applied_until: Instant,
        has_readers: bool,
        step: &mut Step,
    ) {
        let now = step.now.instant;
        if now.saturating_duration_since(self.last_tick) > MAX_GAP {
            self.resumed = now;
        }
        self.last_tick = now;
        let is_past = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        if is_past(Some(self.deadline)) && !self.is_accepted() && self.transcript.log().has_output() {
            // The Island that began the reply did not finish it, and the time passed while no other had it.
            let message = "the Island was lost while the job ran, and no other continued it in time";
            let failure = Failure::of_host(FailureCode::IslandLost, message);
            let notice = Notice::stop(failure.code);
            return self.fail(failure, Usage::default(), notice, step);
        }
        let attempt_deadline = self.attempt.as_ref().and_then(Attempt::deadline);
        let is_unaccepted = self.attempt.is_none() && is_past(self.accept_by);
        if is_past(Some(self.deadline)) || is_past(attempt_deadline) || is_unaccepted {
            let message = if is_unaccepted { "no Island took the job in time" } else { TIME_LIMIT };
            return self.timed_out(message, Notice::stop(FailureCode::DeadlineExceeded), step);
        }
        if let Some(since) = &mut self.unread_since {
            if has_readers {
                *since = now;
            } else if now.saturating_duration_since(*since) >= UNREAD_LIMIT {
                return self.cancelled(Canceller::Consumer, step);
            }
        }
        let resumed = connectivity.since.max(self.resumed);
        let attempt = self.attempt.as_ref().filter(|_| connectivity.connected);
        // What arrived later may contain a renewal.
        let until = now.min(applied_until);
        match attempt.and_then(|attempt| attempt.verdict(resumed, &self.terms.timeouts, until)) {
            Some(Verdict::Expired) => self.lost(Loss::LeaseExpired, step),
            Some(Verdict::Stalled) => self.lost(Loss::Stalled, step),
            None => {}
        }
    }

    fn written(&mut self, result: Written, step: &mut Step) {
        let Some(Pending { write, then }) = self.pending.take() else {
            tracing::error!(job = %self.job.id, "result of a write that was not requested");
            return;
        };
        match (result, write) {
            (Written::Committed { .. }, Write::Attempt(write)) => self.attempt_committed(write, then, step),
            (Written::Committed { earned }, Write::End(end)) => {
                self.end_committed(*end, &earned, then, step);
            }
            (Written::Superseded, _) => {
                if let Then::Offer { hosts } = then {
                    release(&hosts, self.next_key(), step);
                }
                self.moved(step);
            }
            (Written::Rejected, write) => self.rejected(write, then, step),
        }
    }

    /// Leaves the job to the coordinator that executes it now.
    fn moved(&mut self, step: &mut Step) {
        tracing::warn!(job = %self.job.id, "another coordinator executes the job now");
        self.transcript.log().abandon();
        self.is_over = true;
        self.release(step);
    }

    /// Releases the claims of the current attempt.
    fn release(&mut self, step: &mut Step) {
        if let Some(attempt) = self.attempt.take() {
            release(attempt.hosts(), attempt.key(), step);
        }
    }

    fn attempt_committed(&mut self, write: AttemptWrite, then: Then, step: &mut Step) {
        let AttemptWrite { from, to, status, host, head, .. } = write;
        (self.job.attempt, self.job.epoch, self.job.host) = (to.attempt, to.epoch, host);
        self.job.first_event = head.len() as u64 + 1;
        self.transcript.append_committed(head);
        let former = if to == from { None } else { self.attempt.take() };
        match then {
            Then::Offer { hosts } => {
                self.set_status(status);
                let tokens = self.transcript.tokens(None);
                self.attempt = Some(Attempt::new(to, hosts, tokens, step.now.instant));
                self.offer(step);
            }
            Then::Place { notice } => {
                self.set_status(status);
                if let Some(attempt) = former {
                    *self.history.failures.entry(attempt.leader()).or_default() += 1;
                    release(attempt.hosts(), attempt.key(), step);
                    if let Some(code) = notice.stop {
                        send_cancel(attempt.hosts(), attempt.key(), code, step);
                    }
                }
                reply_to(notice.reply, discarded(), step);
                self.transcript.assume_complete();
                self.place(step);
            }
            Then::Withdraw => {
                let Some(attempt) = former else { return };
                release(attempt.hosts(), attempt.key(), step);
                send_cancel(attempt.hosts(), attempt.key(), FailureCode::IslandLost, step);
                let host = attempt.leader();
                step.push(Effect::Observe { host, conduct: Conduct::Silent });
                self.avoid(host, None, step.now);
                self.place_again("it did not answer", step);
            }
            Then::Wait => self.job.status = status,
            Then::End { .. } => {}
        }
    }

    fn end_committed(
        &mut self,
        mut end: EndWrite,
        earned: &[(HostId, MicroCredits)],
        then: Then,
        step: &mut Step,
    ) {
        let Then::End { trigger, notice } = then else { return };
        // Readers of the last event see what the row has.
        end.set_charged(earned.iter().map(|(_, share)| *share).sum());
        let host = self.attempt.as_ref().map(Attempt::leader);
        if let (Some(attempt), Some(code)) = (&self.attempt, notice.stop) {
            send_cancel(attempt.hosts(), attempt.key(), code, step);
        }
        self.release(step);
        if let Some((host, ms)) = end.karma {
            step.push(Effect::CreditKarma { host, ms });
            let run = Run { ms: ms.unsigned_abs(), tokens: end.end.usage.completion_tokens };
            step.push(Effect::Compare { host, run });
        }
        if let Some(host) = host.filter(|_| trigger == Trigger::Complete) {
            step.push(Effect::Observe { host, conduct: Conduct::Completed });
        }
        self.transition(trigger);
        self.is_over = true;
        // Who sees the end may start the next job at once: the Island is free by then. It does not wait for the fabric.
        step.effects.extend(end.events.into_iter().next_back().map(Effect::ShowEnd));
        let of = |host| earned.iter().filter(|(earner, _)| *earner == host).map(|(_, share)| *share).sum();
        let earned = notice.reply.as_ref().map(|reply| of(reply.host));
        reply_to(notice.reply, OutputReply { earned, ..discarded() }, step);
    }

    /// Ends the job with a row that the database accepts.
    fn rejected(&mut self, write: Write, then: Then, step: &mut Step) {
        let notice = match then {
            Then::End { notice, .. } | Then::Place { notice } => notice,
            Then::Offer { hosts } => {
                release(&hosts, self.next_key(), step);
                Notice::default()
            }
            Then::Withdraw | Then::Wait => Notice::stop(FailureCode::InternalError),
        };
        if !std::mem::replace(&mut self.is_storable, false) {
            // Nothing smaller exists; the driver tries this one until it succeeds.
            return self.write(write, Then::End { trigger: Trigger::Fail, notice }, step);
        }
        let failure = Failure::of_host(FailureCode::InternalError, "the result could not be stored");
        self.fail(failure, Usage::default(), notice, step);
    }
}
