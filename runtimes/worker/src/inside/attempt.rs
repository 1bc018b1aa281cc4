//! One attempt this worker holds.

use island_protocol::{
    event::AttemptEvent,
    job::{Failure, FailureCode, Fault, Outcome},
    reply::TokenLogprob,
};
use island_runtimes_api::{Step, WorkCounter};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use crate::event_limits::{MAX_TOKEN_BYTES, cut_message, encoded_len, excess, max_end_bytes, weight};

/// Bytes of an outcome besides its result: usage, a device's name.
const END_FACTS_BYTES: u64 = 4 << 10;

/// An attempt: its events, and handles to its run.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) outbox: Outbox,
    /// Number of the next event for the connection; `None` until the agent requests events.
    pub(super) cursor: Option<u64>,
    pub(super) cancel: CancellationToken,
    pub(super) work: WorkCounter,
    /// Why it was stopped by other parts than the engine: becomes the failure of its outcome.
    stop: Option<Failure>,
    bytes_left: u64,
    /// Bytes that the outcome may have, encoded.
    max_end_bytes: u64,
    /// Whether the agent requested the steps.
    reports_steps: bool,
    /// The steps of an attempt that has ended, until they are sent.
    steps: Option<Vec<Step>>,
}

impl Attempt {
    pub(super) fn new(first_event: u64, max_output_bytes: u64, reports_steps: bool) -> Self {
        Self {
            outbox: Outbox::starting_at(first_event),
            cursor: Some(first_event),
            cancel: CancellationToken::new(),
            work: WorkCounter::default(),
            stop: None,
            bytes_left: max_output_bytes,
            max_end_bytes: max_end_bytes(max_output_bytes),
            reports_steps,
            steps: None,
        }
    }

    /// Takes the steps of an attempt that has ended.
    pub(super) fn take_steps(&mut self) -> Option<Vec<Step>> {
        self.steps.take()
    }

    /// Stops the run; the first reason counts.
    pub(super) fn stop(&mut self, failure: Failure) {
        self.stop.get_or_insert(failure);
        self.cancel.cancel();
    }

    /// Appends an event of the engine, within the output limit.
    pub(super) fn append(&mut self, event: AttemptEvent) {
        // An engine cannot end an attempt by an event; and after a stop no events are needed.
        if self.stop.is_some() || matches!(event, AttemptEvent::Ended { .. }) {
            return;
        }
        let Some(left) = self.bytes_left.checked_sub(weight(&event) as u64) else {
            let message = "the job produced more output than its Cargo allows";
            return self.stop(Failure::of_job(FailureCode::OutputLimit, message));
        };
        self.bytes_left = left;
        match event {
            AttemptEvent::Token { content, count, reasoning, logprobs, call: None }
                if content.len() > MAX_TOKEN_BYTES =>
            {
                self.append_in_parts(&content, count, reasoning, logprobs);
            }
            // Programs of Cargos choose names.
            event => match excess(&event) {
                Some(what) => {
                    self.stop(Failure::of_job(FailureCode::InvalidOutput, format!("{what} is too long")));
                }
                None => self.outbox.push(event),
            },
        }
    }

    /// Appends the end. A stopped run that did not complete fails with the reason for which it was stopped.
    pub(super) fn end(&mut self, outcome: Outcome) {
        let outcome = match (self.stop.take(), outcome) {
            (Some(failure), Outcome::Failed { usage, .. }) => Outcome::Failed { failure, usage },
            // A part of its output was dropped, so it did not complete.
            (Some(failure), Outcome::Completed { usage, .. }) if failure.fault == Fault::Job => {
                Outcome::Failed { failure, usage }
            }
            (_, outcome) => outcome,
        };
        self.steps = self.reports_steps.then(|| self.work.steps());
        self.outbox.push(AttemptEvent::Ended { outcome: self.bounded(outcome) });
    }

    /// Returns an outcome within its limits: a result that is too long is a failure, and a message that is too long is cut.
    fn bounded(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Failed { mut failure, usage } => {
                cut_message(&mut failure.message);
                Outcome::Failed { failure, usage }
            }
            Outcome::Completed { usage, output: Some(output), .. }
                if encoded_len(&output) as u64 > self.max_end_bytes.saturating_sub(END_FACTS_BYTES) =>
            {
                let message = "the result of the job is larger than its Cargo allows";
                Outcome::Failed { failure: Failure::of_job(FailureCode::OutputLimit, message), usage }
            }
            outcome @ Outcome::Completed { .. } => outcome,
        }
    }

    fn append_in_parts(&mut self, content: &str, count: u32, reasoning: bool, logprobs: Vec<TokenLogprob>) {
        let (mut rest, mut count, mut logprobs) = (content, count, logprobs);
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_TOKEN_BYTES));
            let (content, count) = (part.to_owned(), std::mem::take(&mut count));
            let logprobs = std::mem::take(&mut logprobs);
            self.outbox.push(AttemptEvent::Token { content, count, reasoning, logprobs, call: None });
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use island_protocol::job::Usage;

    fn completed() -> Outcome {
        Outcome::Completed { usage: Usage::tokens(1, 2), output: None, finish_reason: None, stop_text: None }
    }

    fn events(attempt: &Attempt) -> Vec<AttemptEvent> {
        attempt.outbox.batch(0).into_iter().map(|event| event.event).collect()
    }

    #[test]
    fn long_texts_are_split_at_characters() {
        let mut attempt = Attempt::new(1, u64::MAX, false);
        let text = "é".repeat(100_000);
        attempt.append(AttemptEvent::token(text.clone(), 3));
        let (mut joined, mut count) = (String::new(), 0);
        let mut from = 1;
        while let [event, ..] = attempt.outbox.batch(from).as_slice() {
            let AttemptEvent::Token { content, count: part, .. } = &event.event else { panic!("no token") };
            assert!(content.len() <= MAX_TOKEN_BYTES);
            joined.push_str(content);
            count += part;
            from += 1;
        }
        assert_eq!((joined, count), (text, 3));
    }

    #[test]
    fn beyond_the_limit_the_run_is_stopped_and_fails() {
        let mut attempt = Attempt::new(1, 100, false);
        for _ in 0..9 {
            attempt.append(AttemptEvent::token("x".repeat(20), 1));
        }
        assert!(attempt.cancel.is_cancelled());
        attempt.end(completed());
        let events = events(&attempt);
        assert_eq!(events.len(), 3, "two tokens fit, then the end");
        let Some(AttemptEvent::Ended { outcome: Outcome::Failed { failure, usage } }) = events.last() else {
            panic!("it must fail");
        };
        assert_eq!((failure.code, usage.total_tokens), (FailureCode::OutputLimit, 3));
    }

    #[test]
    fn a_name_that_is_too_long_fails_the_job() {
        let mut attempt = Attempt::new(1, u64::MAX, false);
        attempt.append(AttemptEvent::Progress { step: 1, total: 2, phase: Some("x".repeat(101)) });
        assert!(attempt.cancel.is_cancelled());
        attempt.end(completed());
        let [AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }] = &events(&attempt)[..] else {
            panic!("it must fail");
        };
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::InvalidOutput));
    }

    #[test]
    fn an_end_has_limits() {
        let ended = |outcome| {
            let mut attempt = Attempt::new(1, 1000, false);
            attempt.end(outcome);
            events(&attempt)
        };
        let output = Some("x".repeat(70_000).into());
        let large = ended(Outcome::Completed {
            usage: Usage::default(),
            output,
            finish_reason: None,
            stop_text: None,
        });
        let [AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } }] = &large[..] else {
            panic!("it must fail");
        };
        assert_eq!(failure.code, FailureCode::OutputLimit);
        let failure = Failure::of_job(FailureCode::CargoFailed, "\u{e9}".repeat(3_000));
        let long = ended(Outcome::failed(failure));
        assert!(crate::event_limits::excess(&long[0]).is_none(), "its message is cut");
    }

    #[test]
    fn a_run_that_completes_despite_a_cancellation_is_completed() {
        let mut attempt = Attempt::new(1, 100, false);
        attempt.stop(Failure::interrupted(FailureCode::CancelledByUser, "bye"));
        attempt.end(completed());
        assert_eq!(events(&attempt), vec![AttemptEvent::Ended { outcome: completed() }]);
    }
}
