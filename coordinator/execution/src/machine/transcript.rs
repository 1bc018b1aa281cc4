//! What a job has delivered: its log, with the count of what is in it.

use std::sync::Arc;

use island_protocol::{
    event::{AttemptEvent, END_GAP, JobEvent, Numbered},
    job::{Outcome, Usage},
};

use super::intake::{self, Counter, Malformed, Taken, TokenLimits};
use crate::log::Log;

/// The events of one job.
#[derive(Debug)]
pub(super) struct Transcript {
    log: Arc<Log>,
    counter: Counter,
    /// Whether the log has all events that a consumer may have seen. After a restart this is unknown until the Island
    /// reports its last event.
    is_complete: bool,
}

/// What a message of an Island added.
#[derive(Debug)]
pub(super) struct Added {
    /// Whether the attempt executes.
    pub executes: bool,
    /// Whether a part of the output was added.
    pub has_output: bool,
    /// Whether events are missing before others of the message.
    pub has_gap: bool,
    /// The end of the attempt, or why it must end.
    pub end: Option<Result<Outcome, Malformed>>,
}

impl Transcript {
    /// The transcript of a log that is complete.
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self { counter: Counter::of_log(&log.events()), log, is_complete: true }
    }

    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Whether the log has all events that a consumer may have seen.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The coordinator that wrote the latest events is gone, and some may be lost.
    pub(super) fn assume_incomplete(&mut self) {
        self.is_complete = false;
    }

    /// Nobody has seen more than the log has: the attempt ended, or what follows was decided on the log as it is.
    pub(super) fn assume_complete(&mut self) {
        self.is_complete = true;
    }

    /// The attempt has sent events up to `last`.
    pub(super) fn sent_up_to(&mut self, last: u64) {
        self.is_complete |= last < self.log.next();
    }

    /// Appends the events that continue the log, in order and once, up to the end of the attempt.
    pub(super) fn add(&mut self, events: Vec<Numbered<AttemptEvent>>) -> Added {
        let (due, has_gap) = intake::in_order(self.log.next(), events);
        let mut fresh = Vec::with_capacity(due.len());
        let mut end = None;
        for event in due {
            match self.counter.take(event) {
                Ok(Taken::Event(event)) => fresh.push(event),
                Ok(Taken::End(outcome)) => end = Some(Ok(outcome)),
                Err(error) => end = Some(Err(error)),
            }
            if end.is_some() {
                break;
            }
        }
        // The end follows all other events of the attempt.
        self.is_complete |= matches!(end, Some(Ok(_)));
        let executes = fresh.iter().any(intake::is_execution);
        let has_output = fresh.iter().any(JobEvent::is_output);
        if !fresh.is_empty() {
            self.log.append(fresh);
        }
        Added { executes, has_output, has_gap, end }
    }

    /// Whether a job with an output of at most `limit` bytes produced too much.
    pub(super) fn exceeds(&self, limit: u64) -> bool {
        self.counter.exceeds(limit)
    }

    /// Model tokens delivered, at most `max`.
    pub(super) fn tokens(&self, max: Option<u64>) -> u64 {
        self.counter.tokens(max)
    }

    /// Usage of the job; see [`Counter::usage`].
    pub(super) fn usage(&self, claimed: Usage, limits: TokenLimits, stop_text: Option<&str>) -> Usage {
        self.counter.usage(claimed, limits, stop_text)
    }

    /// The log with further events, which are not appended yet.
    pub(super) fn with(&self, events: impl IntoIterator<Item = JobEvent>) -> Vec<Numbered<JobEvent>> {
        let mut all = self.log.events();
        for event in events {
            all.push(Numbered { n: all.len() as u64 + 1, event });
        }
        all
    }

    /// The log with the end. Where a consumer may have seen events that the log has lost, the end is numbered behind all
    /// of them, so that a consumer who continues after the last one gets it.
    pub(super) fn with_end(&self, event: JobEvent) -> Vec<Numbered<JobEvent>> {
        let mut all = self.with([event]);
        if let Some(last) = all.last_mut().filter(|_| !self.is_complete) {
            last.n += END_GAP;
        }
        all
    }

    /// Appends what `committed` has and the log has not.
    pub(super) fn append_committed(&self, committed: Vec<Numbered<JobEvent>>) {
        let next = self.log.next();
        let new: Vec<_> =
            committed.into_iter().filter(|event| event.n >= next).map(|event| event.event).collect();
        if !new.is_empty() {
            self.log.append(new);
        }
    }
}
