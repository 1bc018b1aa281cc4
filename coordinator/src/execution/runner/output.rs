//! Receives an attempt's events: in order, once, and only from the current attempt.

use std::ops::ControlFlow;

use island_protocol::{
    FABRIC_VERSION,
    event::{AttemptEvent, JobEvent, Numbered},
    fabric::{Output, OutputReply},
    ids::HostId,
    job::{JobStatus, Outcome},
};
use tokio::time::Instant;

use super::{Next, Runner};
use crate::{deferred_writes::DeferredWrite, job::state::Trigger};

/// Whether an event shows that the job executes, as opposed to being prepared.
fn is_execution(event: &JobEvent) -> bool {
    match event {
        JobEvent::Progress { phase, .. } => !matches!(phase.as_deref(), Some("fetch" | "download" | "load")),
        JobEvent::Status { state, .. } => matches!(state.as_str(), "running" | "streaming"),
        other => other.is_output(),
    }
}

/// Returns the events that continue a sequence whose next number is `due`, and whether earlier ones are missing before
/// the rest.
fn in_order(mut due: u64, events: Vec<Numbered<AttemptEvent>>) -> (Vec<AttemptEvent>, bool) {
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

impl Runner {
    /// Records that the attempt executes.
    pub(super) fn started(&mut self) {
        if self.job.status != JobStatus::Queued {
            return;
        }
        let now = self.execution.context.clock.now();
        self.job.started_at.get_or_insert(now);
        self.transition(Trigger::Start);
        let _ = self.execution.context.deferred.send(DeferredWrite::Started(self.job.key(), now));
    }

    /// Applies events of the current attempt, in order and once.
    pub(super) async fn receive(&mut self, host: HostId, output: Output, reply: Option<String>) -> Next {
        if !self.is_current(host, output.key) {
            tracing::debug!(%host, key = %output.key, "stale output dropped");
            self.answer(host, reply, true, None).await;
            return Next::Continue;
        }
        let (due, gap) = in_order(self.handle.log.next(), output.events);
        let mut fresh = Vec::with_capacity(due.len());
        let mut ended = None;
        for event in due {
            match self.translate(event) {
                ControlFlow::Continue(event) => fresh.push(event),
                ControlFlow::Break(outcome) => {
                    ended = Some(outcome);
                    break;
                }
            }
        }
        self.apply(fresh, gap);
        if let Some(outcome) = ended {
            let next = self.ended(outcome).await;
            // A coordinator that is stopping, or lost the job to another one, may leave the end uncommitted; the Island
            // must keep its events then.
            let is_uncommitted = self.execution.hard.is_cancelled() || self.handle.log.is_abandoned();
            if self.job.status.is_final() || !is_uncommitted {
                self.answer(host, reply, true, None).await;
            }
            return next;
        }
        let limit = self.cargo().map_or(u64::MAX, |cargo| cargo.spec.limits.max_output_bytes);
        if self.bytes > limit.saturating_mul(2).saturating_add(64 << 10) {
            return self.output_limit_exceeded().await;
        }
        let missing = gap.then(|| self.handle.log.next());
        self.answer(host, reply, false, missing).await;
        Next::Continue
    }

    fn apply(&mut self, fresh: Vec<JobEvent>, gap: bool) {
        if fresh.iter().any(is_execution) {
            self.started();
        }
        if !fresh.is_empty() {
            self.handle.log.append(fresh);
        }
        if let Some(run) = &mut self.handle.state().run {
            run.lease.progressed(Instant::now());
            run.gap |= gap;
        }
    }

    fn translate(&mut self, event: AttemptEvent) -> ControlFlow<Outcome, JobEvent> {
        ControlFlow::Continue(match event {
            AttemptEvent::Token { content, count } => {
                self.tokens = self.tokens.map(|tokens| tokens.saturating_add(u64::from(count)));
                self.bytes += content.len() as u64 + 32;
                JobEvent::Token { content }
            }
            AttemptEvent::Progress { step, total, phase } => {
                self.bytes += 32;
                JobEvent::Progress { step, total, phase }
            }
            AttemptEvent::Status { state } => {
                self.bytes += state.len() as u64 + 32;
                JobEvent::status(state)
            }
            AttemptEvent::Image(image) => {
                self.bytes += image.data.len() as u64;
                JobEvent::Image(image)
            }
            AttemptEvent::Ended { outcome } => return ControlFlow::Break(outcome),
        })
    }

    async fn answer(&self, host: HostId, reply: Option<String>, committed: bool, replay_from: Option<u64>) {
        let Some(reply) = reply else { return };
        let answer = OutputReply { v: FABRIC_VERSION, committed, replay_from, earned: self.earned };
        self.execution.context.link.reply_to_island(host, &reply, &answer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }
}
