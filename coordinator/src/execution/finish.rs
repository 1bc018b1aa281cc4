//! Ends or requeues a job: the part of a runner that decides about money and retries.

use std::time::Duration;

use island_protocol::{
    api::JobError,
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{AccountId, AttemptKey},
    job::{Failure, FailureCode, Fault, FinishReason, JobStatus, Outcome, Usage},
};
use serde_json::Value;

use tokio::time::Instant;

use super::{
    job_handle::Run,
    runner::{Next, REFUSAL_PAUSE, Runner},
};
use crate::{
    job::{
        End,
        state::{self, Trigger},
    },
    storage::jobs::{self, Ending},
};

/// Why an attempt is taken away from its Island.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its lease was not renewed.
    Island,
    /// Its run makes no progress.
    Stall,
}

/// The end of a job before it is committed.
#[derive(Debug)]
struct Conclusion {
    trigger: Trigger,
    output: Option<Value>,
    usage: Usage,
    error: Option<JobError>,
    charged: MicroCredits,
    event: JobEvent,
}

/// Attempts that may be handed back by owners, in addition to those that may fail.
const HAND_BACKS: u32 = 8;

/// What the consumer may have received of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivered {
    /// Nothing.
    Nothing,
    /// The beginning of a text that another Island can continue.
    Beginning,
    /// Output that can be neither continued nor repeated.
    Final,
}

/// Whether another attempt may follow a failed one: never for the job's own fault, and never if the consumer would
/// receive output twice. Attempts that an owner handed back do not count as failures, but are limited too.
fn may_retry(failure: &Failure, delivered: Delivered, attempt: u32, retries: u32) -> bool {
    let handed_back = failure.fault == Fault::Interrupted && failure.code == FailureCode::HandedBack;
    let limit = if handed_back { retries.saturating_add(HAND_BACKS) } else { retries };
    failure.fault != Fault::Job && delivered != Delivered::Final && attempt <= limit
}

/// Maximum length of [`Usage::device`], bytes.
const MAX_DEVICE: usize = 200;

/// Fields of an input that constrain the form of a reply. The rest of a reply alone does not have that form.
const FORMS: [&str; 3] = ["tools", "functions", "response_format"];

/// Price of a cancelled job: the delivered share of the requested tokens.
fn share(price: MicroCredits, delivered: bool, tokens: u64, max_tokens: Option<u64>) -> MicroCredits {
    match max_tokens {
        _ if !delivered => MicroCredits::ZERO,
        Some(max) => price.share(tokens.max(1), max),
        None => price,
    }
}

/// Whether a device that an Island reported is a short line of text.
fn is_device(reported: &str) -> bool {
    (1..=MAX_DEVICE).contains(&reported.len()) && !reported.chars().any(char::is_control)
}

fn without_result(
    trigger: Trigger,
    code: FailureCode,
    message: &str,
    usage: Usage,
    charged: MicroCredits,
) -> Conclusion {
    let error = JobError { code: code.as_str().to_owned(), message: message.to_owned() };
    let event = JobEvent::Error { error: error.message.clone(), code: error.code.clone() };
    let usage = Usage { credits_used: Some(charged), ..usage };
    Conclusion { trigger, output: None, usage, error: Some(error), charged, event }
}

impl Runner {
    /// Handles the end that an attempt reported.
    pub(super) async fn ended(&mut self, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Completed { usage, output, finish_reason } => {
                self.completed(usage, output, finish_reason).await
            }
            Outcome::Failed { failure, usage } => self.attempt_failed(failure, usage).await,
        }
    }

    async fn completed(
        &mut self,
        claimed: Usage,
        output: Option<Value>,
        reason: Option<FinishReason>,
    ) -> Next {
        if let Some(violation) = self.schema_violation(output.as_ref()) {
            let failure = Failure::of_host(FailureCode::InvalidOutput, violation);
            return self.attempt_failed(failure, claimed).await;
        }
        let mut usage = self.usage(claimed);
        usage.credits_used = Some(self.job.price);
        let stored = output.clone().unwrap_or_else(|| Value::String(self.handle.log.text()));
        let event = JobEvent::Done { usage: usage.clone(), output, finish_reason: reason };
        let conclusion = Conclusion {
            trigger: Trigger::Complete,
            output: Some(stored),
            usage,
            error: None,
            charged: self.job.price,
            event,
        };
        self.end(conclusion).await
    }

    /// Checks an output against the Cargo's schema.
    fn schema_violation(&self, output: Option<&Value>) -> Option<String> {
        let violation = self.cargo()?.check_output(output?).err()?;
        Some(format!(
            "the output does not fit the Cargo's schema: {}: {}",
            violation.field, violation.message
        ))
    }

    /// Completion tokens as counted here, at most the requested number; prompt tokens and the device as the Island reported them.
    fn usage(&self, claimed: Usage) -> Usage {
        let cap = self.job.max_tokens.unwrap_or(u64::MAX);
        let completion = self.tokens.unwrap_or(claimed.completion_tokens).min(cap);
        let tokens = Usage::tokens(claimed.prompt_tokens.min(u64::from(u32::MAX)), completion);
        let device = claimed.device.filter(|device| is_device(device));
        Usage { fuel: claimed.fuel, device, ..tokens }
    }

    async fn attempt_failed(&mut self, failure: Failure, claimed: Usage) -> Next {
        // Another Island would reach the same limit.
        if failure.code == FailureCode::DeadlineExceeded && failure.fault != Fault::Host {
            return self.timed_out().await;
        }
        let retries = self.execution.context.retries;
        let once = self.job.only.is_some();
        if !once && may_retry(&failure, self.delivered(), self.job.attempt, retries) {
            tracing::info!(key = %self.job.key(), code = %failure.code, "attempt failed, another follows");
            if let (FailureCode::HandedBack, Some(run)) = (failure.code, self.current()) {
                // The fleet may still list it as free until its next heartbeat.
                self.history.refused.insert(run.host, Instant::now() + REFUSAL_PAUSE);
            }
            return self.requeue().await;
        }
        let code = match failure.fault {
            Fault::Interrupted if failure.code != FailureCode::HandedBack => FailureCode::IslandLost,
            Fault::Job | Fault::Host | Fault::Interrupted => failure.code,
        };
        let usage = self.usage(claimed);
        self.fail(code, &failure.message, usage).await
    }

    /// Returns what was delivered so far.
    fn delivered(&self) -> Delivered {
        let log = &self.handle.log;
        let continues = || {
            let writes_text = self.cargo().is_some_and(|cargo| cargo.spec.continues_text());
            writes_text && !FORMS.iter().any(|form| self.job.input.contains_key(*form)) && log.is_text_alone()
        };
        match log.has_output() {
            false => Delivered::Nothing,
            true if continues() => Delivered::Beginning,
            true => Delivered::Final,
        }
    }

    pub(super) async fn fail(&mut self, code: FailureCode, message: &str, usage: Usage) -> Next {
        self.end(without_result(Trigger::Fail, code, message, usage, MicroCredits::ZERO)).await
    }

    /// Takes the attempt away from its Island: requeues the job if nothing was delivered, otherwise ends it.
    pub(super) async fn lost(&mut self, loss: Loss) -> Next {
        let (code, message) = match loss {
            Loss::Island => (FailureCode::IslandLost, "the Island was lost while the job ran"),
            Loss::Stall => (FailureCode::RuntimeStalled, "the run stopped making progress"),
        };
        tracing::warn!(key = %self.job.key(), host = ?self.job.host, code = %code, "attempt lost");
        self.stop_island(code).await;
        self.attempt_failed(Failure::of_host(code, message), Usage::default()).await
    }

    /// Ends a job that produced more output than allowed.
    pub(super) async fn output_limit_exceeded(&mut self) -> Next {
        self.stop_island(FailureCode::OutputLimit).await;
        let usage = self.usage(Usage::default());
        self.fail(FailureCode::OutputLimit, "the job produced more output than allowed", usage).await
    }

    pub(super) async fn timed_out(&mut self) -> Next {
        self.stop_island(FailureCode::DeadlineExceeded).await;
        let usage = self.usage(Usage::default());
        let message = "the time limit was reached";
        let code = FailureCode::DeadlineExceeded;
        self.end(without_result(Trigger::Expire, code, message, usage, MicroCredits::ZERO)).await
    }

    pub(super) async fn cancelled(&mut self) -> Next {
        self.stop_island(FailureCode::CancelledByUser).await;
        let usage = self.usage(Usage::default());
        let delivered = self.handle.log.has_output();
        let charged = share(self.job.price, delivered, usage.completion_tokens, self.job.max_tokens);
        let code = FailureCode::CancelledByUser;
        self.end(without_result(Trigger::Cancel, code, "cancelled by its consumer", usage, charged)).await
    }

    async fn stop_island(&self, code: FailureCode) {
        if let Some(run) = self.current() {
            self.send_cancel(run.host, run.key, code).await;
        }
    }

    /// Requeues the job with the next attempt's key, which is committed before any message is sent.
    async fn requeue(&mut self) -> Next {
        let Ok(status) = state::next(self.job.status, Trigger::Requeue) else { return Next::Stop };
        let to = AttemptKey { attempt: self.job.attempt + 1, epoch: self.job.epoch + 1, job_id: self.job.id };
        let mut head = self.handle.log.events();
        let event = JobEvent::status(status.as_str());
        head.push(Numbered { n: head.len() as u64 + 1, event });
        if !self.step(to, status, None, &head).await {
            return Next::Stop;
        }
        if let Some(run) = self.handle.state().run.take() {
            *self.history.failures.entry(run.host).or_default() += 1;
            self.execution.context.fleet.release(run.host, run.key);
        }
        self.transition(Trigger::Requeue);
        self.append_status(status);
        if !self.handle.log.has_output() {
            self.tokens = Some(0);
        }
        self.request_placement();
        Next::Continue
    }

    /// Commits the end, then publishes it.
    async fn end(&mut self, conclusion: Conclusion) -> Next {
        let context = self.execution.context.clone();
        if conclusion.trigger == Trigger::Complete && self.job.status == JobStatus::Queued {
            self.job.started_at.get_or_insert(context.clock.now());
        }
        let Ok(status) = state::next(self.job.status, conclusion.trigger) else { return Next::Continue };
        let run = self.current();
        let now = context.clock.now();
        let end = End {
            completed_at: now,
            output: conclusion.output,
            usage: conclusion.usage,
            error: conclusion.error,
        };
        let mut events = self.handle.log.events();
        events.push(Numbered { n: events.len() as u64 + 1, event: conclusion.event.clone() });
        let Some(earner) = self.earner(run.as_ref()).await else { return Next::Stop };
        let ran_ms = self.job.started_at.map_or(0, |started| (now.unix_ms() - started.unix_ms()).max(0));
        let earns_karma = status == JobStatus::Completed && self.job.only.is_none();
        let karma = run.as_ref().filter(|_| earns_karma).map(|run| (run.host, ran_ms));
        let charged = conclusion.charged;
        let ending = Ending {
            job: &self.job,
            coordinator: context.instance,
            status,
            end: &end,
            charged,
            earner,
            karma,
            events: &events,
        };
        if !self.commit(&ending).await {
            return Next::Stop;
        }
        self.earned = Some(if earner.is_some() { charged } else { MicroCredits::ZERO });
        if let Some(run) = self.handle.state().run.take() {
            context.fleet.release(run.host, run.key);
        }
        if let Some((host, ms)) = karma {
            context.fleet.credit_karma(host, ms);
        }
        self.transition(conclusion.trigger);
        self.handle.log.append([conclusion.event]);
        Next::Stop
    }

    /// Account of the Island that ran the job, if one did. Retries until the database replies; returns `None` if the
    /// coordinator stops first.
    async fn earner(&self, run: Option<&Run>) -> Option<Option<AccountId>> {
        let Some(run) = run else { return Some(None) };
        loop {
            match self.execution.account_and_key(run.host).await {
                Ok(found) => return Some(found.map(|(account, _)| account)),
                Err(error) => {
                    tracing::error!(host = %run.host, error = %island_daemon::chain::Chain(&error), "Island not read; will retry");
                }
            }
            if self.execution.hard.is_cancelled() {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Writes the end and retries until the database replies. Returns `false` if another coordinator executes the job.
    async fn commit(&self, ending: &Ending<'_>) -> bool {
        let mut pause = Duration::from_millis(50);
        loop {
            match jobs::end(&self.execution.context.store, ending).await {
                Ok(true) => return true,
                Ok(false) => {
                    tracing::warn!(job = %self.job.id, "another coordinator ended the job");
                    self.handle.log.abandon();
                    return false;
                }
                Err(error) => {
                    tracing::error!(job = %self.job.id, error = %island_daemon::chain::Chain(&error), "end not committed; will retry");
                }
            }
            if self.execution.hard.is_cancelled() {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reported_device_is_a_short_line() {
        assert!(is_device("webgpu: NVIDIA GeForce RTX 4090") && is_device("cpu"));
        for hostile in ["", "cpu\ndata: {}", "\u{1b}[2J", &"x".repeat(MAX_DEVICE + 1)] {
            assert!(!is_device(hostile), "{hostile:?}");
        }
    }

    proptest! {
        #[test]
        fn output_is_never_delivered_twice(attempt in 1_u32..9, retries in 0_u32..5) {
            let failure = |fault, code| Failure { fault, code, message: String::new() };
            let back = failure(Fault::Interrupted, FailureCode::HandedBack);
            for fault in [Fault::Job, Fault::Host, Fault::Interrupted] {
                prop_assert!(!may_retry(&failure(fault, FailureCode::IslandLost), Delivered::Final, attempt, retries));
            }
            prop_assert!(!may_retry(&back, Delivered::Final, attempt, retries));
            for delivered in [Delivered::Nothing, Delivered::Beginning] {
                prop_assert!(!may_retry(&failure(Fault::Job, FailureCode::CargoFailed), delivered, attempt, retries));
                let lost = failure(Fault::Host, FailureCode::IslandLost);
                prop_assert_eq!(may_retry(&lost, delivered, attempt, retries), attempt <= retries);
                prop_assert_eq!(may_retry(&back, delivered, attempt, retries), attempt <= retries + HAND_BACKS);
            }
        }

        #[test]
        fn a_cancelled_job_costs_at_most_its_price(price in 0_i64..10_000_000, tokens in any::<u64>(), max in any::<Option<u64>>()) {
            let price = MicroCredits(price);
            prop_assert_eq!(share(price, false, tokens, max), MicroCredits::ZERO);
            let charged = share(price, true, tokens, max);
            prop_assert!(charged >= MicroCredits::ZERO && charged <= price);
        }
    }
}
