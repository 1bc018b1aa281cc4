//! The events of a job that another coordinator owns, from the fabric's stream.

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

/// How often somebody should look whether the job is elsewhere by now.
const LOOK: Duration = Duration::from_secs(1);

/// What a relay has to say.
#[derive(Debug)]
pub(super) enum Relayed {
    /// Events that follow the last one.
    Events(Vec<Entry>),
    /// Nothing for a while.
    Quiet,
    /// The stream cannot be read any further.
    Broken,
}

/// A reader of one job's stream.
pub(super) struct Relay {
    messages: Pin<Box<Ordered>>,
    after: u64,
    look: Interval,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relay(after {})", self.after)
    }
}

/// Every message about a job, from the first one on.
pub(super) async fn messages(link: &Link, job: JobId) -> Result<Ordered, async_nats::Error> {
    let stream = link.jetstream().get_stream_no_info(JOB_EVENTS_STREAM).await?;
    let config = OrderedConfig { filter_subject: job_events(job), ..Default::default() };
    Ok(stream.create_consumer(config).await?.messages().await?)
}

impl Relay {
    /// A relay that begins after event `after`.
    pub(super) async fn open(link: &Link, job: JobId, after: u64) -> Result<Self, async_nats::Error> {
        let messages = Box::pin(messages(link, job).await?);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.reset();
        Ok(Self { messages, after, look })
    }

    /// What is new. Safe to drop.
    pub(super) async fn next(&mut self) -> Relayed {
        loop {
            let message = tokio::select! {
                biased;
                message = self.messages.next() => message,
                _ = self.look.tick() => return Relayed::Quiet,
            };
            let Some(Ok(message)) = message else { return Relayed::Broken };
            let Ok(batch) = serde_json::from_slice::<JobEvents>(&message.payload) else { continue };
            let fresh = fresh(self.after, batch.events);
            if let Some(last) = fresh.last() {
                self.after = last.n;
                return Relayed::Events(fresh.into_iter().map(Entry::new).collect());
            }
        }
    }
}

/// What follows event `after` without a gap. Behind a hole nothing is told: it is read from SQL once the job has ended.
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
            let (mut told, mut last) = (Vec::new(), after);
            for (from, count) in messages {
                let events = (from..from + count).map(|n| Numbered { n, event: JobEvent::Token { content: n.to_string() } });
                let new = fresh(last, events.collect());
                last = new.last().map_or(last, |event| event.n);
                told.extend(new.into_iter().map(|event| event.n));
            }
            prop_assert_eq!(told, (after + 1..=last).collect::<Vec<_>>());
        }
    }
}
