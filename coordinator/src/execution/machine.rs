//! The life of one job, pure: from its acceptance to its end.
//!
//! [`Machine::step`] takes an [`Input`] and returns the [`Effect`]s that it causes. Nothing here waits, reads a clock or
//! does I/O; a driver does ([`super::runner`], and in tests a simulation). The only effect with a result is
//! [`Effect::Write`], which is the last of its step: until the driver returns the result as [`Input::Written`], it gives
//! the machine no other input. What follows a write, such as an offer to an Island, is returned with that result, so
//! that nothing is sent that SQL does not know.

mod intake;
mod port;
mod price;
mod retry;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use island_protocol::{
    FABRIC_VERSION,
    api::JobError,
    cargo::RuntimeType,
    credits::MicroCredits,
    event::{END_GAP, JobEvent, Numbered},
    fabric::{Assignment, Lease as LeaseAnswer, LeasedJob, Output, OutputReply, RefusalReason},
    ids::{AttemptKey, HostId},
    job::{Failure, FailureCode, Fault, FinishReason, JobStatus, Outcome, Usage},
};
use serde_json::Value;
use tokio::time::Instant;

use super::log::Log;
use crate::{
    catalogue::{Cargo, Catalogue},
    fabric::link::Connectivity,
    fleet::{Conduct, PlacementHistory},
    job::{
        End, Job, LiveState, Part,
        state::{self, Trigger},
    },
    lease::{Lease, LeaseTimeouts, Verdict},
    placement::reason,
};
use intake::{Counter, Taken};
pub(super) use port::{AttemptWrite, Effect, EndWrite, Input, Now, OfferAnswer, Write, Written};
use price::{Delivery, Ending};
use retry::Delivered;

/// After a longer time without a tick this process did not run, and leases get their whole duration again.
const MAX_GAP: Duration = Duration::from_secs(4);
/// How long a job that only its disconnected client could read is kept after a restart.
const UNREAD_LIMIT: Duration = Duration::from_secs(30);
const TIME_LIMIT: &str = "the time limit was reached";
/// Fields of an input that constrain the form of a reply. The rest of a reply alone does not have that form.
const FORMS: [&str; 3] = ["tools", "functions", "response_format"];

/// Settings of all jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub timeouts: LeaseTimeouts,
    /// Attempts after the first one, while nothing was delivered.
    pub retries: u32,
}

/// The current attempt.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub key: AttemptKey,
    pub host: HostId,
    lease: Lease,
    /// Whether the Island has accepted it.
    is_accepted: bool,
    /// Whether events are missing, or may be.
    gap: bool,
    /// Number of the event that the log waited for when the lease was last renewed.
    expected: u64,
    /// When the connection was established in which the lease was last renewed.
    connected_since: Instant,
    /// When it must have ended.
    deadline: Option<Instant>,
    /// Since when it executes.
    executes: Option<Instant>,
    /// Model tokens delivered before it.
    tokens_before: u64,
}

impl Run {
    fn new(key: AttemptKey, host: HostId, now: Instant, tokens_before: u64) -> Self {
        Self {
            key,
            host,
            lease: Lease::new(now),
            is_accepted: false,
            gap: false,
            expected: 0,
            connected_since: now,
            deadline: None,
            executes: None,
            tokens_before,
        }
    }
}

/// What follows when a write is committed.
#[derive(Debug)]
enum Then {
    /// Offer the attempt to this Island.
    Offer { host: HostId },
    /// The attempt is taken away: stop it if `code` is set, and request another Island.
    Place { code: Option<FailureCode>, reply: Option<(HostId, String)> },
    /// The offer had no reply.
    Withdraw,
    /// Wait for an Island.
    Wait,
    /// The job is over.
    End { trigger: Trigger, code: Option<FailureCode>, reply: Option<(HostId, String)> },
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
    /// The result as the Island sent it, for the last event.
    sent: Option<Value>,
    /// Why the Island must stop the attempt, if it has not ended it.
    code: Option<FailureCode>,
}

/// Whether an engine may deliver output before its end.
fn streams(engine: &RuntimeType) -> bool {
    !matches!(engine, RuntimeType::Onnx | RuntimeType::Coreml)
}

/// The reply to an Island whose events are no longer needed.
fn discarded() -> OutputReply {
    OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None }
}

/// One job.
#[derive(Debug)]
pub(super) struct Machine {
    job: Job,
    log: Arc<Log>,
    catalogue: Arc<Catalogue>,
    terms: Terms,
    run: Option<Run>,
    pending: Option<Pending>,
    history: PlacementHistory,
    refusals: HashMap<HostId, u32>,
    /// Number of Islands for each reason, while no Island can take the job.
    waiting: Option<BTreeMap<String, u64>>,
    counter: Counter,
    deadline: Instant,
    /// Until when an Island must have accepted the job for the first time.
    accept_by: Option<Instant>,
    last_tick: Instant,
    /// When this process last resumed after a gap.
    resumed: Instant,
    /// Whether the log has all events that a consumer may have seen. After a restart this is unknown until the Island
    /// reports its last event.
    is_log_complete: bool,
    /// Since when nobody has followed a job that only its disconnected client could read.
    unread_since: Option<Instant>,
    is_over: bool,
}

impl Machine {
    /// A job that was accepted here. `log` has its first events.
    pub(super) fn new(job: Job, log: Arc<Log>, catalogue: Arc<Catalogue>, terms: Terms, now: Now) -> Self {
        let remaining = |until: i64| {
            let ms = u64::try_from(until - now.wall.unix_ms()).unwrap_or(0);
            now.instant
                .checked_add(Duration::from_millis(ms))
                .unwrap_or(now.instant + Duration::from_hours(24 * 365))
        };
        let deadline = remaining(job.deadline.unix_ms());
        let mut machine = Self {
            counter: Counter::of_log(&log.events()),
            history: PlacementHistory::new(job.only),
            refusals: HashMap::new(),
            waiting: None,
            run: None,
            pending: None,
            deadline,
            accept_by: None,
            last_tick: now.instant,
            resumed: now.instant,
            is_log_complete: true,
            unread_since: None,
            is_over: job.status.is_final(),
            job,
            log,
            catalogue,
            terms,
        };
        // Its deadline is the longest wait for an Island and the time limit of one attempt.
        let limit_ms =
            machine.time_limit().map_or(0, |limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        let accept_by = remaining(machine.job.deadline.unix_ms().saturating_sub(limit_ms));
        machine.accept_by = (machine.job.attempt <= 1).then_some(accept_by);
        if let Some(host) = machine.job.host {
            machine.run = Some(Run::new(machine.job.key(), host, now.instant, 0));
        }
        machine
    }

    /// A job that another run of a coordinator executed. Its attempt, if it has one, continues.
    pub(super) fn resumed(
        job: Job,
        log: Arc<Log>,
        catalogue: Arc<Catalogue>,
        terms: Terms,
        now: Now,
    ) -> Self {
        let cancel_unread = job.cancel_unread;
        let mut machine = Self::new(job, log, catalogue, terms, now);
        let deadline = machine.attempt_deadline(now);
        if let Some(run) = &mut machine.run {
            (run.is_accepted, run.gap, run.deadline) = (true, true, deadline);
            machine.is_log_complete = false;
            machine.accept_by = None;
        }
        machine.unread_since = cancel_unread.then_some(now.instant);
        machine
    }

    /// The job's row, as it was last committed.
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Whether an Island has accepted the current attempt.
    pub(super) fn is_accepted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_accepted)
    }

    /// The job's status.
    pub(super) fn status(&self) -> JobStatus {
        self.job.status
    }

    /// Whether the job has ended here, or is another coordinator's.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The current attempt's Island and key.
    pub(super) fn attempt(&self) -> Option<(HostId, AttemptKey)> {
        self.run.as_ref().map(|run| (run.host, run.key))
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
        LiveState::new(self.job.status, self.job.started_at, self.waiting.clone())
    }

    /// Puts a former defect back, so that the simulation can show that it finds it.
    #[cfg(test)]
    pub(super) fn assume_complete_log(&mut self) {
        self.is_log_complete = true;
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
        let next = self.log.next();
        let run = self.run.as_mut().filter(|run| run.key == job.key && run.host == host);
        let Some(run) = run else { return LeaseAnswer { key: job.key, held: false, replay_from: None } };
        run.lease.renew(now, &job.phase, job.work);
        self.is_log_complete |= job.last_event < next;
        // Events may be in flight; they are requested again only if they should have arrived by now.
        let overdue = run.gap || run.expected == next || run.connected_since < connected_since;
        run.expected = next;
        run.connected_since = run.connected_since.max(connected_since);
        let missing = job.last_event >= next && overdue;
        run.gap = false;
        LeaseAnswer { key: job.key, held: true, replay_from: missing.then_some(next) }
    }

    /// Applies an input.
    pub(super) fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Input::Written(result) = input {
            self.written(result, now, &mut effects);
        } else if self.is_over {
            Self::decline(input, &mut effects);
        } else {
            debug_assert!(self.pending.is_none(), "an input before the result of a write");
            self.apply(input, now, &mut effects);
        }
        effects
    }

    fn apply(&mut self, input: Input, now: Now, effects: &mut Vec<Effect>) {
        match input {
            Input::Begin => self.begin(now, effects),
            Input::Placed { host, key } => self.placed(host, key, effects),
            Input::NoIsland { reasons } => self.no_island(reasons, effects),
            Input::Answered { key, answer } => self.answered(key, answer, now, effects),
            Input::Output { host, output, reply } => self.output(host, output, reply, now, effects),
            Input::Started { host, key } => {
                if self.is_current(host, key) {
                    self.accept(now, effects);
                    self.started(now, effects);
                }
            }
            Input::Lost { key } => {
                if self.run.as_ref().is_some_and(|run| run.key == key) {
                    self.lost(FailureCode::IslandLost, now, effects);
                }
            }
            Input::Cancel => self.cancelled(now, effects),
            Input::Tick { connectivity, has_readers } => self.tick(connectivity, has_readers, now, effects),
            Input::Written(_) => {}
        }
    }

    /// What an input causes after the end.
    fn decline(input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Placed { host, key } => effects.push(Effect::Release { host, key }),
            Input::Output { host, reply: Some(subject), .. } => {
                effects.push(Effect::Reply { host, subject, reply: discarded() });
            }
            _ => {}
        }
    }

    fn cargo(&self) -> Option<&Cargo> {
        self.catalogue.get(self.job.workload.as_str())
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
    fn write(&mut self, write: Write, then: Then, effects: &mut Vec<Effect>) {
        effects.push(Effect::Write(write.clone()));
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
        effects: &mut Vec<Effect>,
    ) {
        let head = self.with_events(events);
        let write =
            AttemptWrite { from: self.job.key(), to, status, host, head, parts: self.job.parts.clone() };
        self.write(Write::Attempt(write), then, effects);
    }

    /// The log with further events.
    fn with_events(&self, events: impl IntoIterator<Item = JobEvent>) -> Vec<Numbered<JobEvent>> {
        let mut all = self.log.events();
        for event in events {
            all.push(Numbered { n: all.len() as u64 + 1, event });
        }
        all
    }

    /// The log with the end. Where a consumer may have seen events that the log has lost, the end is numbered behind all of
    /// them, so that a consumer who continues after the last one gets it.
    fn with_end(&self, event: JobEvent) -> Vec<Numbered<JobEvent>> {
        let mut all = self.with_events([event]);
        if let Some(last) = all.last_mut().filter(|_| !self.is_log_complete) {
            last.n += END_GAP;
        }
        all
    }

    /// Appends to the log what a write has that the log has not.
    fn append_committed(&self, events: Vec<Numbered<JobEvent>>) {
        let next = self.log.next();
        let new: Vec<_> =
            events.into_iter().filter(|event| event.n >= next).map(|event| event.event).collect();
        if !new.is_empty() {
            self.log.append(new);
        }
    }

    fn begin(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match &self.run {
            None => self.place_again("its coordinator was restarted", now, effects),
            Some(run) if run.is_accepted => {}
            // The attempt was committed with the job.
            Some(run) => {
                let host = run.host;
                self.offer(host, now, effects);
            }
        }
    }

    /// Requests another Island, or fails the job if it is an Island's check of itself.
    fn place_again(&mut self, why: &str, now: Now, effects: &mut Vec<Effect>) {
        if self.job.only.is_none() {
            return self.place(effects);
        }
        let failure = Failure::of_host(
            FailureCode::NoIslandAvailable,
            format!("the Island did not take the job: {why}"),
        );
        self.fail(failure, Usage::default(), None, None, now, effects);
    }

    fn place(&mut self, effects: &mut Vec<Effect>) {
        let Some(cargo) = self.cargo().map(|cargo| cargo.spec.clone()) else {
            return self.no_island(BTreeMap::from([(reason::UNKNOWN_CARGO.to_owned(), 1)]), effects);
        };
        effects.push(Effect::Place { key: self.next_key(), cargo, history: self.history.clone() });
    }

    fn placed(&mut self, host: HostId, key: AttemptKey, effects: &mut Vec<Effect>) {
        let status = state::next(self.job.status, Trigger::Assign);
        let (Ok(status), true) = (status, key == self.next_key() && self.run.is_none()) else {
            return effects.push(Effect::Release { host, key });
        };
        let announced = self.log.last_state();
        let is_new = announced.as_deref() != Some(status.as_str());
        let events = is_new.then(|| JobEvent::status(status.as_str()));
        self.write_attempt(key, status, Some(host), events, Then::Offer { host }, effects);
    }

    fn offer(&mut self, host: HostId, now: Now, effects: &mut Vec<Effect>) {
        let Some(assignment) = self.assignment(now) else {
            // The Cargo was removed from the catalogue.
            let key = self.job.key();
            self.run = None;
            effects.push(Effect::Release { host, key });
            return self.place(effects);
        };
        effects.push(Effect::Offer { host, assignment: Box::new(assignment) });
    }

    fn assignment(&self, now: Now) -> Option<Assignment> {
        let cargo = self.cargo()?;
        let left = self.deadline.saturating_duration_since(now.instant).min(self.time_limit()?);
        Some(Assignment {
            v: FABRIC_VERSION,
            key: self.job.key(),
            first_event: self.job.first_event,
            cargo: cargo.spec.as_ref().clone(),
            input: Value::Object(self.job.input.clone()),
            continues: self.log.has_output().then(|| self.log.text()),
            scope: self.job.account.to_string(),
            isolated: false,
            deadline: now.wall.plus_ms(i64::try_from(left.as_millis()).unwrap_or(i64::MAX)),
            sent_at: now.wall,
        })
    }

    fn answered(&mut self, key: AttemptKey, answer: OfferAnswer, now: Now, effects: &mut Vec<Effect>) {
        // Output that arrives before the answer shows that the Island has accepted.
        let Some(run) = self.run.as_ref().filter(|run| run.key == key && !run.is_accepted) else { return };
        let host = run.host;
        match answer {
            OfferAnswer::Accepted => self.accept(now, effects),
            OfferAnswer::Refused { reason, message } => {
                self.run = None;
                effects.push(Effect::Release { host, key });
                effects.push(Effect::Observe { host, conduct: Conduct::Refused });
                self.avoid(host, reason, now);
                self.place_again(&message, now, effects);
            }
            OfferAnswer::Silent => {
                // The key is given up before the Island is stopped: a coordinator that lost the job meanwhile must
                // not stop the attempt that its successor continues.
                let to = self.next_key();
                self.write_attempt(to, self.job.status, None, [], Then::Withdraw, effects);
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
    fn accept(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let deadline = self.attempt_deadline(now);
        let Some(run) = self.run.as_mut().filter(|run| !run.is_accepted) else { return };
        (run.is_accepted, run.deadline) = (true, deadline);
        self.waiting = None;
        self.accept_by = None;
        effects.push(Effect::Accepted);
    }

    /// Records that no Island can take the job now.
    fn no_island(&mut self, reasons: BTreeMap<String, u64>, effects: &mut Vec<Effect>) {
        if self.run.is_some() {
            return;
        }
        let reason = Some(reason::in_words(&reasons));
        self.waiting = Some(reasons);
        if self.job.status == JobStatus::Pending {
            return;
        }
        let Ok(status) = state::next(self.job.status, Trigger::NoneFits) else { return };
        let event = JobEvent::Status { state: status.as_str().to_owned(), reason };
        self.write_attempt(self.job.key(), status, None, [event], Then::Wait, effects);
    }

    /// Records that the attempt executes.
    fn started(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Some(run) = &mut self.run {
            run.executes.get_or_insert(now.instant);
        }
        if self.job.status != JobStatus::Queued {
            return;
        }
        self.job.started_at.get_or_insert(now.wall);
        self.transition(Trigger::Start);
        effects.push(Effect::RecordStart { key: self.job.key(), at: now.wall });
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
    fn output(
        &mut self,
        host: HostId,
        output: Output,
        subject: Option<String>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let reply = |committed, replay_from, effects: &mut Vec<Effect>| {
            let Some(subject) = subject.clone() else { return };
            let reply = OutputReply { v: FABRIC_VERSION, committed, replay_from, earned: None };
            effects.push(Effect::Reply { host, subject, reply });
        };
        if !self.is_current(host, output.key) {
            tracing::debug!(%host, key = %output.key, "stale output dropped");
            return reply(true, None, effects);
        }
        self.accept(now, effects);
        let (due, gap) = intake::in_order(self.log.next(), output.events);
        let mut fresh = Vec::with_capacity(due.len());
        let mut ended = None;
        for event in due {
            match self.counter.take(event) {
                Ok(Taken::Event(event)) => fresh.push(event),
                Ok(Taken::End(outcome)) => {
                    ended = Some(outcome);
                    break;
                }
                Err(error) => {
                    let failure = Failure::of_host(FailureCode::InvalidOutput, error.to_string());
                    self.append(fresh, gap, now, effects);
                    let code = Some(FailureCode::InvalidOutput);
                    return self.attempt_failed(failure, Usage::default(), code, None, now, effects);
                }
            }
        }
        self.append(fresh, gap, now, effects);
        let limit = self.cargo().map_or(u64::MAX, |cargo| cargo.spec.limits.max_output_bytes);
        if self.counter.exceeds(limit) {
            let failure =
                Failure::of_job(FailureCode::OutputLimit, "the job produced more output than allowed");
            let code = Some(failure.code);
            return self.fail(failure, Usage::default(), code, None, now, effects);
        }
        // The end follows all other events of the attempt.
        self.is_log_complete |= ended.is_some();
        match ended {
            Some(outcome) => self.ended(outcome, subject.map(|subject| (host, subject)), now, effects),
            None => reply(false, gap.then(|| self.log.next()), effects),
        }
    }

    fn append(&mut self, fresh: Vec<JobEvent>, gap: bool, now: Now, effects: &mut Vec<Effect>) {
        if fresh.iter().any(intake::is_execution) {
            self.started(now, effects);
        }
        if !fresh.is_empty() {
            self.log.append(fresh);
        }
        if let Some(run) = &mut self.run {
            run.lease.progressed(now.instant);
            run.gap |= gap;
        }
    }

    /// Handles the end that an attempt reported.
    fn ended(
        &mut self,
        outcome: Outcome,
        reply: Option<(HostId, String)>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let (claimed, output, finish_reason) = match outcome {
            Outcome::Completed { usage, output, finish_reason } => (usage, output, finish_reason),
            Outcome::Failed { failure, usage } => {
                return self.attempt_failed(failure, usage, None, reply, now, effects);
            }
        };
        let stored = output.clone().unwrap_or_else(|| Value::String(self.log.text()));
        if let Some(violation) = self.schema_violation(&stored) {
            let failure = Failure::of_host(FailureCode::InvalidOutput, violation);
            return self.attempt_failed(failure, claimed, None, reply, now, effects);
        }
        let conclusion = Conclusion {
            trigger: Trigger::Complete,
            ending: Ending::Completed,
            usage: self.counter.usage(claimed, self.job.max_tokens),
            error: None,
            finish_reason,
            sent: output,
            output: Some(stored),
            code: None,
        };
        self.end(conclusion, reply, now, effects);
    }

    /// Checks an output against the Cargo's schema.
    fn schema_violation(&self, output: &Value) -> Option<String> {
        let violation = self.cargo()?.check_output(output).err()?;
        Some(format!(
            "the output does not fit the Cargo's schema: {}: {}",
            violation.field, violation.message
        ))
    }

    /// Requeues the job after a failed attempt, or fails it. `stop` is set if the attempt may still run.
    fn attempt_failed(
        &mut self,
        failure: Failure,
        claimed: Usage,
        stop: Option<FailureCode>,
        reply: Option<(HostId, String)>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        // Another Island would reach the same limit.
        if failure.code == FailureCode::DeadlineExceeded && failure.fault != Fault::Host {
            return self.timed_out(TIME_LIMIT, stop, reply, now, effects);
        }
        let is_handed_back = failure.code == FailureCode::HandedBack;
        if let Some(run) = self.run.as_ref().filter(|_| failure.fault != Fault::Job && !is_handed_back) {
            effects.push(Effect::Observe { host: run.host, conduct: Conduct::Failed });
        }
        let is_retry = self.job.only.is_none()
            && retry::may_retry(&failure, self.delivered(), self.job.attempt, self.terms.retries);
        if !is_retry {
            return self.fail(failure, claimed, stop, reply, now, effects);
        }
        tracing::info!(key = %self.job.key(), code = %failure.code, "attempt failed, another follows");
        if let Some(run) = self.run.as_ref().filter(|_| is_handed_back) {
            // The fleet may still list it as free until its next heartbeat.
            let host = run.host;
            self.avoid(host, None, now);
        }
        self.requeue(stop, reply, effects);
    }

    /// Returns what was delivered so far.
    fn delivered(&self) -> Delivered {
        let spec = self.cargo().map(|cargo| &cargo.spec);
        let streams = spec.is_some_and(|spec| streams(&spec.runtime_type));
        if !self.is_log_complete && (streams || self.log.has_output()) {
            // The consumer may have seen output that no longer exists; other events must not get its numbers.
            return Delivered::Final;
        }
        let continues = || {
            let has_form = FORMS.iter().any(|form| self.job.input.contains_key(*form));
            spec.is_some_and(|spec| spec.continues_text()) && !has_form && self.log.is_text_alone()
        };
        match self.log.has_output() {
            false => Delivered::Nothing,
            true if continues() => Delivered::Beginning,
            true => Delivered::Final,
        }
    }

    /// Requeues the job with the next attempt's key, which is committed before any message is sent.
    fn requeue(
        &mut self,
        stop: Option<FailureCode>,
        reply: Option<(HostId, String)>,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(status) = state::next(self.job.status, Trigger::Requeue) else { return };
        let to = AttemptKey { attempt: self.job.attempt + 1, epoch: self.job.epoch + 1, job_id: self.job.id };
        if let Some(part) = self.part().filter(|part| part.units > 0) {
            self.job.parts.push(part);
        }
        let event = JobEvent::status(status.as_str());
        self.write_attempt(to, status, None, [event], Then::Place { code: stop, reply }, effects);
    }

    /// What the current attempt has delivered.
    fn part(&self) -> Option<Part> {
        let run = self.run.as_ref()?;
        let units = self.counter.tokens(None).saturating_sub(run.tokens_before);
        Some(Part { host: run.host, units })
    }

    /// Takes the attempt away from its Island: requeues the job if nothing was delivered, otherwise ends it.
    fn lost(&mut self, code: FailureCode, now: Now, effects: &mut Vec<Effect>) {
        let message = match code {
            FailureCode::RuntimeStalled => "the run stopped making progress",
            _ => "the Island was lost while the job ran",
        };
        tracing::warn!(key = %self.job.key(), host = ?self.job.host, code = %code, "attempt lost");
        let failure = Failure::of_host(code, message);
        self.attempt_failed(failure, Usage::default(), Some(code), None, now, effects);
    }

    fn fail(
        &mut self,
        failure: Failure,
        claimed: Usage,
        stop: Option<FailureCode>,
        reply: Option<(HostId, String)>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let code = match failure.fault {
            Fault::Interrupted if failure.code != FailureCode::HandedBack => FailureCode::IslandLost,
            Fault::Job | Fault::Host | Fault::Interrupted => failure.code,
        };
        let ending = if failure.fault == Fault::Job { Ending::OwnFault } else { Ending::NetworkFault };
        let conclusion = self.without_result(Trigger::Fail, ending, code, failure.message, claimed, stop);
        self.end(conclusion, reply, now, effects);
    }

    fn timed_out(
        &mut self,
        message: &str,
        stop: Option<FailureCode>,
        reply: Option<(HostId, String)>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let code = FailureCode::DeadlineExceeded;
        let conclusion = self.without_result(
            Trigger::Expire,
            Ending::OwnFault,
            code,
            message.to_owned(),
            Usage::default(),
            stop,
        );
        self.end(conclusion, reply, now, effects);
    }

    fn cancelled(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let code = FailureCode::CancelledByUser;
        let message = "cancelled by its consumer".to_owned();
        let conclusion = self.without_result(
            Trigger::Cancel,
            Ending::Cancelled,
            code,
            message,
            Usage::default(),
            Some(code),
        );
        self.end(conclusion, None, now, effects);
    }

    fn without_result(
        &self,
        trigger: Trigger,
        ending: Ending,
        code: FailureCode,
        message: String,
        claimed: Usage,
        stop: Option<FailureCode>,
    ) -> Conclusion {
        let usage = self.counter.usage(claimed, self.job.max_tokens);
        let error = Some(JobError { code: code.as_str().to_owned(), message });
        Conclusion {
            trigger,
            ending,
            output: None,
            usage,
            error,
            finish_reason: None,
            sent: None,
            code: stop,
        }
    }

    /// Commits the end.
    fn end(
        &mut self,
        conclusion: Conclusion,
        reply: Option<(HostId, String)>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Conclusion { trigger, ending, output, mut usage, error, finish_reason, sent, code } = conclusion;
        if trigger == Trigger::Complete && self.job.status == JobStatus::Queued {
            self.job.started_at.get_or_insert(now.wall);
        }
        let Ok(status) = state::next(self.job.status, trigger) else { return };
        let shares = self.shares(ending, output.as_ref(), now);
        let charged: MicroCredits = shares.iter().map(|(_, share)| *share).sum();
        usage.credits_used = Some(charged);
        let event = match &error {
            Some(error) => JobEvent::Error { error: error.message.clone(), code: error.code.clone() },
            None => JobEvent::Done { usage: usage.clone(), output: sent, finish_reason },
        };
        let ran_ms = self.job.started_at.map_or(0, |started| (now.wall.unix_ms() - started.unix_ms()).max(0));
        let earns_karma = status == JobStatus::Completed && self.job.only.is_none();
        let karma = self.run.as_ref().filter(|_| earns_karma).map(|run| (run.host, ran_ms));
        let end = EndWrite {
            job: self.job.clone(),
            status,
            end: End { completed_at: now.wall, output, usage, error },
            shares,
            karma,
            events: self.with_end(event),
        };
        self.write(Write::End(Box::new(end)), Then::End { trigger, code, reply }, effects);
    }

    /// What each Island earns.
    fn shares(&self, ending: Ending, output: Option<&Value>, now: Now) -> Vec<(HostId, MicroCredits)> {
        let executes = self.run.as_ref().and_then(|run| run.executes);
        let delivery = Delivery {
            has_output: self.log.has_output(),
            is_empty_text: output.and_then(Value::as_str).is_some_and(str::is_empty),
            tokens: self.counter.tokens(self.job.max_tokens),
            max_tokens: self.job.max_tokens,
            executed: executes.map_or(Duration::ZERO, |since| now.instant.saturating_duration_since(since)),
            time_limit: self.time_limit().unwrap_or(Duration::MAX),
        };
        let charged = price::charge(self.job.price, ending, &delivery);
        let mut parts = self.job.parts.clone();
        parts.extend(self.part());
        let mut shares = price::divide(charged, &parts);
        shares.retain(|(_, share)| *share > MicroCredits::ZERO);
        shares
    }

    /// Checks the deadline, the lease and progress.
    fn tick(&mut self, connectivity: Connectivity, has_readers: bool, now: Now, effects: &mut Vec<Effect>) {
        if now.instant.saturating_duration_since(self.last_tick) > MAX_GAP {
            self.resumed = now.instant;
        }
        self.last_tick = now.instant;
        let is_past = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now.instant >= deadline);
        let attempt_deadline = self.run.as_ref().and_then(|run| run.deadline);
        let is_unaccepted = self.run.is_none() && is_past(self.accept_by);
        if is_past(Some(self.deadline)) || is_past(attempt_deadline) || is_unaccepted {
            let message = if is_unaccepted { "no Island took the job in time" } else { TIME_LIMIT };
            return self.timed_out(message, Some(FailureCode::DeadlineExceeded), None, now, effects);
        }
        if let Some(since) = &mut self.unread_since {
            if has_readers {
                *since = now.instant;
            } else if now.instant.saturating_duration_since(*since) >= UNREAD_LIMIT {
                return self.cancelled(now, effects);
            }
        }
        let resumed = connectivity.since.max(self.resumed);
        let run = self.run.as_ref().filter(|run| connectivity.connected && run.is_accepted);
        match run.and_then(|run| run.lease.verdict(now.instant, resumed, &self.terms.timeouts)) {
            Some(Verdict::Expired) => self.lost(FailureCode::IslandLost, now, effects),
            Some(Verdict::Stalled) => self.lost(FailureCode::RuntimeStalled, now, effects),
            None => {}
        }
    }

    fn written(&mut self, result: Written, now: Now, effects: &mut Vec<Effect>) {
        let Some(Pending { write, then }) = self.pending.take() else {
            tracing::error!(job = %self.job.id, "result of a write that was not requested");
            return;
        };
        match (result, write) {
            (Written::Committed { .. }, Write::Attempt(write)) => {
                self.attempt_committed(write, then, now, effects);
            }
            (Written::Committed { earned }, Write::End(end)) => {
                self.end_committed(*end, &earned, then, effects);
            }
            (Written::Superseded, _) => {
                tracing::warn!(job = %self.job.id, "another coordinator executes the job now");
                self.log.abandon();
                self.is_over = true;
                if let Then::Offer { host } = then {
                    effects.push(Effect::Release { host, key: self.next_key() });
                }
                self.release(effects);
            }
            (Written::Rejected, write) => self.rejected(write, then, now, effects),
        }
    }

    fn release(&mut self, effects: &mut Vec<Effect>) {
        if let Some(run) = self.run.take() {
            effects.push(Effect::Release { host: run.host, key: run.key });
        }
    }

    fn attempt_committed(&mut self, write: AttemptWrite, then: Then, now: Now, effects: &mut Vec<Effect>) {
        let AttemptWrite { to, status, host, head, .. } = write;
        (self.job.attempt, self.job.epoch, self.job.host) = (to.attempt, to.epoch, host);
        self.job.first_event = head.len() as u64 + 1;
        self.append_committed(head);
        let former = if to == write.from { None } else { self.run.take() };
        match then {
            Then::Offer { host } => {
                self.set_status(status);
                self.run = Some(Run::new(to, host, now.instant, self.counter.tokens(None)));
                self.offer(host, now, effects);
            }
            Then::Place { code, reply } => {
                self.set_status(status);
                if let Some(run) = former {
                    *self.history.failures.entry(run.host).or_default() += 1;
                    effects.push(Effect::Release { host: run.host, key: run.key });
                    if let Some(code) = code {
                        effects.push(Effect::SendCancel { host: run.host, key: run.key, code });
                    }
                }
                if let Some((host, subject)) = reply {
                    effects.push(Effect::Reply { host, subject, reply: discarded() });
                }
                // What follows continues the log as it is now, and nobody has seen more of it.
                self.is_log_complete = true;
                self.place(effects);
            }
            Then::Withdraw => {
                let Some(run) = former else { return };
                let (host, key) = (run.host, run.key);
                effects.push(Effect::Release { host, key });
                effects.push(Effect::SendCancel { host, key, code: FailureCode::IslandLost });
                effects.push(Effect::Observe { host, conduct: Conduct::Silent });
                self.avoid(host, None, now);
                self.place_again("it did not answer", now, effects);
            }
            Then::Wait => self.job.status = status,
            Then::End { .. } => {}
        }
    }

    fn end_committed(
        &mut self,
        end: EndWrite,
        earned: &[(HostId, MicroCredits)],
        then: Then,
        effects: &mut Vec<Effect>,
    ) {
        let Then::End { trigger, code, reply } = then else { return };
        let host = self.run.as_ref().map(|run| run.host);
        if let (Some(run), Some(code)) = (&self.run, code) {
            effects.push(Effect::SendCancel { host: run.host, key: run.key, code });
        }
        self.release(effects);
        if let Some((host, ms)) = end.karma {
            effects.push(Effect::CreditKarma { host, ms });
        }
        if let Some(host) = host.filter(|_| trigger == Trigger::Complete) {
            effects.push(Effect::Observe { host, conduct: Conduct::Completed });
        }
        if let Some((host, subject)) = reply {
            let total = earned.iter().filter(|(earner, _)| *earner == host).map(|(_, share)| *share).sum();
            let reply =
                OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: Some(total) };
            effects.push(Effect::Reply { host, subject, reply });
        }
        self.transition(trigger);
        self.is_over = true;
        // Readers of the log see the end after everything else is done.
        if let Some(last) = end.events.into_iter().next_back() {
            self.log.append_end(last);
        }
    }

    /// Ends the job with a row that the database accepts.
    fn rejected(&mut self, write: Write, then: Then, now: Now, effects: &mut Vec<Effect>) {
        let (reply, code) = match then {
            Then::End { reply, code, .. } | Then::Place { reply, code } => (reply, code),
            Then::Offer { host } => {
                effects.push(Effect::Release { host, key: self.next_key() });
                (None, None)
            }
            Then::Withdraw | Then::Wait => (None, Some(FailureCode::InternalError)),
        };
        if matches!(&write, Write::End(end) if end.events.len() == 1) {
            // Nothing smaller exists; the driver tries this one until it succeeds.
            return self.write(write, Then::End { trigger: Trigger::Fail, code, reply }, effects);
        }
        let failure = Failure::of_host(FailureCode::InternalError, "the result could not be stored");
        self.fail(failure, Usage::default(), code, reply, now, effects);
        let is_end = |effect: &&mut Effect| matches!(effect, Effect::Write(Write::End(_)));
        let pending = self.pending.as_mut().map(|pending| &mut pending.write);
        let issued = effects.iter_mut().find(is_end).and_then(|effect| match effect {
            Effect::Write(write) => Some(write),
            _ => None,
        });
        for write in pending.into_iter().chain(issued) {
            if let Write::End(end) = write {
                end.events.drain(..end.events.len() - 1);
            }
        }
    }
}
