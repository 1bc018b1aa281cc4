//! The events of an attempt: taken once and in order, checked, and counted by what was delivered.

use std::io;

use island_protocol::{
    event::{AttemptEvent, JobEvent, Numbered},
    job::{CompletionTokensDetails, Outcome, Usage},
    reply::CallDelta,
};
use serde::Serialize;

/// Maximum length of a name in an event: of a phase, a state, an image format. Bytes.
const MAX_NAME: usize = 100;
/// Maximum length of the id of a tool call and of its function's name, bytes.
const MAX_CALL_NAME: usize = 200;
/// Maximum length of [`Usage::device`], bytes.
const MAX_DEVICE: usize = 200;
/// Maximum length of a failure's message, characters.
const MAX_MESSAGE: usize = 2_000;
/// Output beyond a Cargo's limit that is accepted for the encoding of its events, bytes.
const OVERHEAD: u64 = 64 << 10;

/// Returns the events that continue a sequence whose next number is `due`, and whether earlier ones are missing before
/// the rest.
pub(super) fn in_order(mut due: u64, events: Vec<Numbered<AttemptEvent>>) -> (Vec<AttemptEvent>, bool) {
    let mut fresh = Vec::new();
    for Numbered { n, event } in events {
        if n > due {
            return (fresh, true);
        }
        if n == due {
            fresh.push(event);
            due += 1;
        }
    }
    (fresh, false)
}

/// Whether an event shows that the job executes, as opposed to being prepared.
pub(super) fn is_execution(event: &JobEvent) -> bool {
    match event {
        JobEvent::Progress { phase, .. } => !matches!(phase.as_deref(), Some("fetch" | "download" | "load")),
        JobEvent::Status { state, .. } => matches!(state.as_str(), "running" | "streaming"),
        other => other.is_output(),
    }
}

/// An event for the log, or the end of the attempt.
#[derive(Debug)]
pub(super) enum Taken {
    Event(JobEvent),
    End(Outcome),
}

/// An event that no honest Island sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the Island sent a malformed event: {what} has more than {MAX_NAME} bytes")]
pub(super) struct Malformed {
    what: &'static str,
}

/// Maximum numbers of tokens of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenLimits {
    /// Tokens that the input can have.
    pub prompt: u64,
    /// Requested tokens.
    pub completion: Option<u64>,
}

/// Counts what was delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counter {
    /// Model tokens that Islands reported.
    reported: u64,
    /// Those of them that belong to the reasoning.
    reasoning: u64,
    /// Bytes of text.
    text: u64,
    /// Those of them that are parts of calls.
    calls: u64,
    /// Bytes of encoded events.
    encoded: u64,
    /// Whether `reported` lacks tokens that were delivered before a restart.
    is_partial: bool,
}

impl Counter {
    /// Counts the events of a log after a restart. The numbers of tokens in them are lost; each has at least one.
    pub(super) fn of_log(events: &[Numbered<JobEvent>]) -> Self {
        let mut counter = Self::default();
        for Numbered { event, .. } in events {
            counter.encoded = counter.encoded.saturating_add(encoded_len(event));
            if let JobEvent::Token { content, reasoning, call, .. } = event {
                counter.reported += 1;
                counter.reasoning += u64::from(*reasoning);
                counter.text = counter.text.saturating_add(content.len() as u64);
                counter.add_call(call.as_deref());
                counter.is_partial = true;
            }
        }
        counter
    }

    /// Counts a part of a call.
    fn add_call(&mut self, call: Option<&CallDelta>) {
        let length = call.map_or(0, |call| call.arguments.len().max(call.text.len())) as u64;
        self.text = self.text.saturating_add(length);
        self.calls = self.calls.saturating_add(length);
    }

    /// Checks and counts an event.
    pub(super) fn take(&mut self, event: AttemptEvent) -> Result<Taken, Malformed> {
        let short = |what, name: &str| if name.len() <= MAX_NAME { Ok(()) } else { Err(Malformed { what }) };
        let event = match event {
            AttemptEvent::Token { content, count, reasoning, logprobs, call } => {
                for name in call.iter().flat_map(|call| [&call.id, &call.name]).flatten() {
                    if name.len() > MAX_CALL_NAME {
                        return Err(Malformed { what: "the name of a call" });
                    }
                }
                let count = u64::from(count);
                self.reported = self.reported.saturating_add(count);
                self.reasoning = self.reasoning.saturating_add(if reasoning { count } else { 0 });
                self.text = self.text.saturating_add(content.len() as u64);
                self.add_call(call.as_deref());
                JobEvent::Token { content, reasoning, logprobs, call }
            }
            AttemptEvent::Progress { step, total, phase } => {
                short("a phase", phase.as_deref().unwrap_or_default())?;
                JobEvent::Progress { step, total, phase }
            }
            AttemptEvent::Status { state } => {
                short("a state", &state)?;
                JobEvent::status(state)
            }
            AttemptEvent::Image(image) => {
                short("an image format", &image.format)?;
                JobEvent::Image(image)
            }
            AttemptEvent::Ended { outcome } => {
                if let Outcome::Completed { output: Some(output), .. } = &outcome {
                    let length = encoded_len(output);
                    self.encoded = self.encoded.saturating_add(length);
                    // The tokens of calls were reported without text, or with parts of the calls.
                    if output.get("tool_calls").is_some() {
                        self.text = self.text.saturating_add(length.saturating_sub(self.calls));
                    }
                }
                return Ok(Taken::End(bounded(outcome)));
            }
        };
        self.encoded = self.encoded.saturating_add(encoded_len(&event));
        Ok(Taken::Event(event))
    }

    /// Whether a job with an output of at most `limit` bytes produced too much. Events may repeat the output once, as
    /// previews do.
    pub(super) fn exceeds(&self, limit: u64) -> bool {
        self.encoded > limit.saturating_mul(2).saturating_add(OVERHEAD)
    }

    /// Model tokens delivered: as reported, at most the requested number, and at most one for each byte of text.
    pub(super) fn tokens(&self, max: Option<u64>) -> u64 {
        self.reported.min(self.text).min(max.unwrap_or(u64::MAX))
    }

    /// Usage of a job: what is charged, counted in quotas and shown. Completion tokens are those that were counted here, and those of a
    /// withheld `stop_text`; prompt tokens are those that the Island reported, within what the input can have.
    pub(super) fn usage(&self, claimed: Usage, limits: TokenLimits, stop_text: Option<&str>) -> Usage {
        // After a restart the Island's figure for the whole reply is more exact than what was counted since.
        let reported =
            if self.is_partial { self.reported.max(claimed.completion_tokens) } else { self.reported };
        let delivered = Self { reported, ..*self }.tokens(limits.completion);
        let withheld = stop_text.map_or(0, |text| {
            let most = (text.len() as u64).max(1);
            claimed.completion_tokens.saturating_sub(delivered).clamp(1, most)
        });
        let completion = delivered.saturating_add(withheld).min(limits.completion.unwrap_or(u64::MAX));
        let tokens = Usage::tokens(claimed.prompt_tokens.min(limits.prompt), completion);
        let device = claimed.device.filter(|device| is_device(device));
        let reasoning_tokens = self.reasoning.min(completion);
        let details = (reasoning_tokens > 0).then_some(CompletionTokensDetails { reasoning_tokens });
        Usage { fuel: claimed.fuel, device, completion_tokens_details: details, ..tokens }
    }
}

/// Shortens the message of a failure to its limit.
fn bounded(mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed { failure, .. } = &mut outcome
        && let Some((end, _)) = failure.message.char_indices().nth(MAX_MESSAGE)
    {
        failure.message.truncate(end);
    }
    outcome
}

/// Whether a device that an Island reported is a short line of text.
fn is_device(reported: &str) -> bool {
    (1..=MAX_DEVICE).contains(&reported.len()) && !reported.chars().any(char::is_control)
}

/// Length of a value as JSON, bytes.
fn encoded_len(value: &impl Serialize) -> u64 {
    struct Length(u64);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    match serde_json::to_writer(&mut length, value) {
        Ok(()) => length.0,
        // No event fails to serialize; if one did, it must not be free.
        Err(_) => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        event::Image,
        job::{Failure, FailureCode},
    };
    use proptest::prelude::*;

    use super::*;

    const LIMITS: TokenLimits = TokenLimits { prompt: 1_000, completion: None };

    fn token(content: &str, count: u32) -> AttemptEvent {
        AttemptEvent::token(content.to_owned(), count)
    }

    proptest! {
        #[test]
        fn the_sequence_is_exact_despite_loss_repetition_and_reordering(
            length in 1_u64..40,
            messages in prop::collection::vec((1_u64..41, 0_u64..12), 0..60),
        ) {
            let numbered = |n: u64| Numbered { n, event: AttemptEvent::Status { state: n.to_string() } };
            let mut received: Vec<AttemptEvent> = Vec::new();
            // Lost, repeated and reordered messages first, then the requested replay.
            let replay = std::iter::once((1, length));
            for (from, count) in messages.into_iter().chain(replay) {
                let due = received.len() as u64 + 1;
                let events = (from..from + count).filter(|n| *n <= length).map(numbered).collect::<Vec<_>>();
                let reaches_beyond = events.iter().any(|event| event.n > due);
                let begins_in_time = events.first().is_some_and(|event| event.n <= due);
                let (fresh, gap) = in_order(due, events);
                prop_assert_eq!(gap, reaches_beyond && !begins_in_time);
                received.extend(fresh);
            }
            let expected: Vec<_> = (1..=length).map(|n| numbered(n).event).collect();
            prop_assert_eq!(received, expected);
        }

        #[test]
        fn reported_tokens_are_bounded_by_the_delivered_text(texts in prop::collection::vec(".{0,8}", 0..20), count in any::<u32>(), max in any::<Option<u64>>()) {
            let mut counter = Counter::default();
            for text in &texts {
                counter.take(token(text, count)).expect("well formed");
            }
            let bytes: usize = texts.iter().map(String::len).sum();
            let tokens = counter.tokens(max);
            prop_assert!(tokens <= bytes as u64 && max.is_none_or(|max| tokens <= max));
        }

        #[test]
        fn everything_that_travels_is_counted(format in ".{0,100}", phase in ".{0,90}", text in ".{0,50}") {
            let image = Image { format, ..Image::default() };
            for event in [AttemptEvent::Image(image), token(&text, 0), AttemptEvent::Progress { step: 0, total: 0, phase: Some(phase) }] {
                let mut counter = Counter::default();
                if let Ok(Taken::Event(event)) = counter.take(event) {
                    prop_assert_eq!(counter.encoded, serde_json::to_vec(&event).expect("json").len() as u64);
                }
            }
        }
    }

    #[test]
    fn long_names_are_malformed_and_long_messages_are_cut() {
        let long = "x".repeat(MAX_NAME + 1);
        let image = Image { format: long.clone(), ..Image::default() };
        let progress = AttemptEvent::Progress { step: 0, total: 0, phase: Some(long.clone()) };
        for event in [AttemptEvent::Image(image), progress, AttemptEvent::Status { state: long }] {
            assert!(Counter::default().take(event).is_err());
        }
        let failure = Failure::of_job(FailureCode::CargoFailed, "\u{e9}".repeat(MAX_MESSAGE + 10));
        let ended = AttemptEvent::Ended { outcome: Outcome::failed(failure) };
        let Ok(Taken::End(Outcome::Failed { failure, .. })) = Counter::default().take(ended) else {
            panic!("a failure");
        };
        assert_eq!(failure.message.chars().count(), MAX_MESSAGE);
    }

    proptest! {
        #[test]
        fn claims_are_clamped_to_what_is_possible(
            prompt in any::<u64>(), completion in any::<u64>(), stop in prop::option::of(".{0,20}"), most in any::<Option<u64>>(),
        ) {
            let mut counter = Counter::default();
            counter.take(token("twelve bytes", 3)).expect("well formed");
            let limits = TokenLimits { prompt: 1_026, completion: most };
            let claimed = Usage { prompt_tokens: prompt, completion_tokens: completion, ..Usage::default() };
            let usage = counter.usage(claimed, limits, stop.as_deref());
            let withheld = stop.as_ref().map_or(0, |stop| (stop.len() as u64).max(1));
            prop_assert!(usage.prompt_tokens <= 1_026);
            prop_assert!(usage.completion_tokens <= (3 + withheld).min(most.unwrap_or(u64::MAX)));
            prop_assert!(stop.is_none() || most.is_some_and(|most| most < 4) || usage.completion_tokens > 3);
            prop_assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
        }
    }

    #[test]
    fn a_result_counts_as_output() {
        let mut counter = Counter::default();
        let output = Some(serde_json::Value::String("x".repeat(200_000)));
        let outcome =
            Outcome::Completed { usage: Usage::default(), output, finish_reason: None, stop_text: None };
        counter.take(AttemptEvent::Ended { outcome }).expect("well formed");
        assert!(counter.exceeds(1_000) && !counter.exceeds(200_000));
    }

    #[test]
    fn a_reported_device_is_a_short_line() {
        assert!(is_device("webgpu: NVIDIA GeForce RTX 4090") && is_device("cpu"));
        for hostile in ["", "cpu\ndata: {}", "\u{1b}[2J", &"x".repeat(MAX_DEVICE + 1)] {
            assert!(!is_device(hostile), "{hostile:?}");
        }
    }

    #[test]
    fn tokens_of_calls_count_though_they_have_no_text() {
        let mut counter = Counter::default();
        counter.take(AttemptEvent::token(String::new(), 9)).expect("valid");
        let output = serde_json::json!({"content": null, "tool_calls": [{"id": "a"}]});
        let outcome = Outcome::Completed {
            usage: Usage::tokens(1, 9),
            output: Some(output),
            finish_reason: None,
            stop_text: None,
        };
        counter.take(AttemptEvent::Ended { outcome }).expect("valid");
        assert_eq!(counter.usage(Usage::tokens(1, 9), LIMITS, None).completion_tokens, 9);
    }

    #[test]
    fn tokens_from_before_a_restart_count_at_least_once() {
        let log: Vec<_> = (1..=3).map(|n| Numbered { n, event: JobEvent::token("word ".into()) }).collect();
        let counter = Counter::of_log(&log);
        assert_eq!(counter.tokens(None), 3);
        assert_eq!(counter.usage(Usage::tokens(1, 5), LIMITS, None).completion_tokens, 5);
        assert_eq!(counter.usage(Usage::tokens(1, 500), LIMITS, None).completion_tokens, 15);
    }
}
