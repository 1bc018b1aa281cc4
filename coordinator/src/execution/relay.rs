//! Reads the events of a job that another coordinator executes from the fabric's stream.

use std::{pin::Pin, time::Duration};

use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use futures::StreamExt as _;
use island_protocol::{
    event::{JobEvent, Numbered},
    fabric::JobEvents,
    ids::JobId,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use tokio::time::{Interval, MissedTickBehavior};

use super::log::Entry;
use crate::fabric::link::Link;

/// Time without events after which the caller checks whether the job has moved.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Result of a read.
#[derive(Debug)]
pub(super) enum Relayed {
    /// Events that follow the last one.
    Events(Vec<Entry>),
    /// No event for some time.
    Idle,
    /// The stream cannot be read any further.
    Closed,
}

/// A reader of one job's stream.
pub(super) struct Relay {
    messages: Pin<Box<Ordered>>,
    after: u64,
    recheck: Interval,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relay(after {})", self.after)
    }
}

/// Every message of a job, from the first one.
pub(super) async fn messages(link: &Link, job: JobId) -> Result<Ordered, async_nats::Error> {
    let stream = link.jetstream().get_stream_no_info(JOB_EVENTS_STREAM).await?;
    let config = OrderedConfig { filter_subject: job_events(job), ..Default::default() };
    Ok(stream.create_consumer(config).await?.messages().await?)
}

impl Relay {
    /// Opens a relay that starts with the event after `after`.
    pub(super) async fn open(link: &Link, job: JobId, after: u64) -> Result<Self, async_nats::Error> {
        let messages = Box::pin(messages(link, job).await?);
        let mut recheck = tokio::time::interval(RECHECK_INTERVAL);
        recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
        recheck.reset();
        Ok(Self { messages, after, recheck })
    }

    /// Waits for new events. Cancel safe.
    pub(super) async fn next(&mut self) -> Relayed {
        loop {
            let message = tokio::select! {
                biased;
                message = self.messages.next() => message,
                _ = self.recheck.tick() => return Relayed::Idle,
            };
            let Some(Ok(message)) = message else { return Relayed::Closed };
            let Ok(batch) = serde_json::from_slice::<JobEvents>(&message.payload) else { continue };
            let fresh = fresh(self.after, batch.events);
            if let Some(last) = fresh.last() {
                self.after = last.n;
                return Relayed::Events(fresh.into_iter().map(Entry::new).collect());
            }
        }
    }
}

/// The events that continue the sequence after `after`. Events behind a gap are left out; the reader gets them from SQL
/// after the job's end.
fn fresh(after: u64, events: Vec<Numbered<JobEvent>>) -> Vec<Numbered<JobEvent>> {
    let mut due = after + 1;
    let mut fresh = Vec::new();
    for event in events {
        if event.n == due {
            due += 1;
            fresh.push(event);
        }
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_relay_has_neither_gaps_nor_repeats(
            after in 0_u64..5,
            messages in prop::collection::vec((1_u64..12, 0_u64..6), 0..30),
        ) {
            let (mut relayed, mut last) = (Vec::new(), after);
            for (from, count) in messages {
                let events = (from..from + count).map(|n| Numbered { n, event: JobEvent::Token { content: n.to_string() } });
                let new = fresh(last, events.collect());
                last = new.last().map_or(last, |event| event.n);
                relayed.extend(new.into_iter().map(|event| event.n));
            }
            prop_assert_eq!(relayed, (after + 1..=last).collect::<Vec<_>>());
        }
    }
}
