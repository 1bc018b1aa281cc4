//! Limits of events, kept by the worker and checked by the agent: a worker that was taken over keeps to none.

use std::io;

use island_protocol::{
    event::{AttemptEvent, Numbered},
    job::Outcome,
    reply::{Logprob, TokenLogprob},
};
use serde::Serialize;

/// Maximum number of events in one frame.
pub const MAX_BATCH_EVENTS: usize = 512;
/// Maximum length of the text of a token event, bytes; a worker splits longer texts.
pub const MAX_TOKEN_BYTES: usize = 64 << 10;
/// Maximum weight of the probabilities in a token event, bytes: thousands of tokens may wait for the end of a stop text.
pub const MAX_LOGPROBS_BYTES: usize = 1 << 20;
/// Bytes that a probability counts in addition to its texts.
const LOGPROB_BYTES: usize = 32;
/// Maximum length of a name in an event: of a phase, a state, an image format. Bytes; the coordinator has the same limit.
pub const MAX_NAME_BYTES: usize = 100;
/// Maximum length of a failure's message, characters; a worker cuts longer ones.
pub const MAX_MESSAGE_CHARS: usize = 2_000;
/// What the coordinator accepts beyond twice the output limit of a Cargo, bytes.
const OVERHEAD: u64 = 64 << 10;
/// Bytes that each event counts in addition to its texts.
const EVENT_BYTES: usize = 16;

/// Bytes of an event, as counted in frames and, on both sides, against the output limit of a job. An end counts with its encoded outcome.
pub fn weight(event: &AttemptEvent) -> usize {
    let content = match event {
        AttemptEvent::Token { content, logprobs, call, .. } => {
            let call = call.as_ref().map_or(0, |call| call.text_len());
            content.len().saturating_add(logprobs_weight(logprobs)).saturating_add(call)
        }
        AttemptEvent::Status { state } => state.len(),
        AttemptEvent::Image(image) => image.data.len().saturating_add(image.format.len()),
        AttemptEvent::Progress { phase, .. } => phase.as_ref().map_or(0, String::len),
        AttemptEvent::Ended { outcome } => encoded_len(outcome),
    };
    content.saturating_add(EVENT_BYTES)
}

/// Bytes of probabilities, as they are counted.
fn logprobs_weight(logprobs: &[TokenLogprob]) -> usize {
    let one = |one: &Logprob| one.token.len() + one.bytes.len() + LOGPROB_BYTES;
    let all = |token: &TokenLogprob| one(&token.token) + token.top_logprobs.iter().map(one).sum::<usize>();
    logprobs.iter().map(all).sum()
}

/// What is longer in this event than it may be; `None` if nothing is.
pub fn excess(event: &AttemptEvent) -> Option<&'static str> {
    let long_name = |name: &str| name.len() > MAX_NAME_BYTES;
    let (is_excess, what) = match event {
        AttemptEvent::Token { logprobs, .. } if logprobs_weight(logprobs) > MAX_LOGPROBS_BYTES => {
            (true, "the list of probabilities of a token")
        }
        AttemptEvent::Token { call: Some(call), .. } if call.text_len() > MAX_TOKEN_BYTES => {
            (true, "a part of a tool call")
        }
        AttemptEvent::Token { content, .. } => (content.len() > MAX_TOKEN_BYTES, "the text of a token"),
        AttemptEvent::Status { state } => (long_name(state), "the name of a state"),
        AttemptEvent::Image(image) => (long_name(&image.format), "the format of an image"),
        AttemptEvent::Progress { phase, .. } => {
            (phase.as_deref().is_some_and(long_name), "the name of a phase")
        }
        AttemptEvent::Ended { outcome: Outcome::Failed { failure, .. } } => {
            (failure.message.chars().nth(MAX_MESSAGE_CHARS).is_some(), "the message of a failure")
        }
        AttemptEvent::Ended { outcome: Outcome::Completed { stop_text, .. } } => {
            (stop_text.as_ref().is_some_and(|text| text.len() > MAX_TOKEN_BYTES), "a stop text")
        }
    };
    is_excess.then_some(what)
}

/// Bytes that the end of a job with this output limit may have: it may repeat the output, as an image repeats its previews.
pub fn max_end_bytes(max_output_bytes: u64) -> u64 {
    max_output_bytes.saturating_mul(2).saturating_add(OVERHEAD)
}

/// Shortens a failure's message to its limit.
pub fn cut_message(message: &mut String) {
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
    }
}

/// What an attempt may still emit, counted by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputBudget {
    events: u64,
    end: u64,
}

/// Events beyond the limits of their job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// More output than the job may have.
    #[error("the events of a job exceed its output limit")]
    Output,
    /// A frame with more events than a worker sends at once.
    #[error("a frame has more than {MAX_BATCH_EVENTS} events")]
    Batch,
    /// An event with a text that is too long.
    #[error("{0} is too long")]
    Field(&'static str),
}

/// Share of the limit for events that a worker splits after it has counted them.
const SPLIT_SHARE: u64 = 1024;

impl OutputBudget {
    /// The budget of a job with this output limit.
    pub fn new(max_output_bytes: u64) -> Self {
        let events = max_output_bytes.saturating_add(max_output_bytes / SPLIT_SHARE);
        Self { events, end: max_end_bytes(max_output_bytes) }
    }

    /// Counts the events of a frame.
    pub fn count(&mut self, events: &[Numbered<AttemptEvent>]) -> Result<(), Exceeded> {
        if events.len() > MAX_BATCH_EVENTS {
            return Err(Exceeded::Batch);
        }
        for Numbered { event, .. } in events {
            if let Some(what) = excess(event) {
                return Err(Exceeded::Field(what));
            }
            let left =
                if matches!(event, AttemptEvent::Ended { .. }) { &mut self.end } else { &mut self.events };
            *left = left.checked_sub(weight(event) as u64).ok_or(Exceeded::Output)?;
        }
        Ok(())
    }
}

/// Length of a value as JSON, bytes.
pub(crate) fn encoded_len(value: &impl Serialize) -> usize {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    // No outcome fails to serialize; if one did, it must not be free.
    serde_json::to_writer(&mut length, value).map_or(usize::MAX, |()| length.0)
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        event::Image,
        job::{Failure, FailureCode, Usage},
    };
    use proptest::prelude::*;

    use super::*;

    fn completed(output: &str, device: Option<String>) -> AttemptEvent {
        let usage = Usage { device, ..Usage::default() };
        let outcome =
            Outcome::Completed { usage, output: Some(output.into()), finish_reason: None, stop_text: None };
        AttemptEvent::Ended { outcome }
    }

    fn numbered(events: Vec<AttemptEvent>) -> Vec<Numbered<AttemptEvent>> {
        (1..).zip(events).map(|(n, event)| Numbered { n, event }).collect()
    }

    proptest! {
        #[test]
        fn every_text_of_an_event_is_counted(text in "[a-z]{0,300}") {
            let length = text.len();
            let image = Image { format: text.clone(), ..Image::default() };
            let failure = Failure::of_job(FailureCode::CargoFailed, text.clone());
            let events = [
                AttemptEvent::token(text.clone(), 0),
                AttemptEvent::Status { state: text.clone() },
                AttemptEvent::Image(image),
                AttemptEvent::Progress { step: 0, total: 0, phase: Some(text.clone()) },
                completed(&text, None),
                completed("", Some(text.clone())),
                AttemptEvent::Ended { outcome: Outcome::failed(failure) },
            ];
            for event in events {
                prop_assert!(weight(&event) > length, "{event:?}");
            }
        }
    }

    #[test]
    fn a_job_may_emit_its_limit_and_an_end_of_twice_that() {
        let token = |length: usize| AttemptEvent::token("x".repeat(length), 1);
        let mut budget = OutputBudget::new(100_000);
        budget.count(&numbered(vec![token(50_000)])).expect("within");
        assert_eq!(budget.count(&numbered(vec![token(50_100)])), Err(Exceeded::Output));
        let end = |length: usize| numbered(vec![completed(&"x".repeat(length), None)]);
        let mut budget = OutputBudget::new(100_000);
        assert_eq!(budget.count(&end(300_000)), Err(Exceeded::Output), "a result counts");
        budget.count(&end(199_000)).expect("within");
        assert_eq!(budget.count(&end(199_000)), Err(Exceeded::Output), "and so does a second one");
    }

    #[test]
    fn texts_and_batches_have_limits() {
        let name = "x".repeat(MAX_NAME_BYTES + 1);
        let failure = Failure::of_job(FailureCode::CargoFailed, "x".repeat(MAX_MESSAGE_CHARS + 1));
        let events = [
            AttemptEvent::token("x".repeat(MAX_TOKEN_BYTES + 1), 1),
            AttemptEvent::Status { state: name.clone() },
            AttemptEvent::Image(Image { format: name.clone(), ..Image::default() }),
            AttemptEvent::Progress { step: 0, total: 0, phase: Some(name) },
            AttemptEvent::Ended { outcome: Outcome::failed(failure) },
        ];
        for event in events {
            let refused = OutputBudget::new(u64::MAX).count(&numbered(vec![event.clone()]));
            assert!(matches!(refused, Err(Exceeded::Field(_))), "{event:?}");
        }
        let empty = AttemptEvent::Progress { step: 0, total: 0, phase: None };
        let batch = numbered(vec![empty; MAX_BATCH_EVENTS + 1]);
        assert_eq!(OutputBudget::new(u64::MAX).count(&batch), Err(Exceeded::Batch));
        let mut budget = OutputBudget::new(160);
        budget.count(&batch[..10]).expect("within");
        assert_eq!(budget.count(&batch[..1]), Err(Exceeded::Output), "events without texts count, too");
    }
}
