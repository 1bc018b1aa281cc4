//! The events of a job for one reader, wherever they are: in the log of a job that this coordinator executes, in the
//! fabric's stream while another one executes it, in SQL after its end. The reader follows a job that moves.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::ids::JobId;

use super::{
    Execution,
    log::{Entry, Reader},
    relays,
    stored_events::StoredEvents,
};
use island_coordinator_storage::StoreError;

/// Time before a source that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
enum Source {
    Log(Reader),
    /// Of a job that another coordinator executes; events may be missing.
    Relay(Reader),
    Stored(Box<StoredEvents>),
    /// To be located, at first or again.
    Unlocated,
}

/// One reader of one job.
#[derive(Debug)]
pub struct Feed {
    execution: Arc<Execution>,
    job: JobId,
    after: u64,
    source: Source,
    ended: bool,
}

impl Feed {
    /// Opens a reader that starts with the event after `after`.
    pub async fn open(execution: Arc<Execution>, job: JobId, after: u64) -> Result<Self, StoreError> {
        let mut feed = Self { execution, job, after, source: Source::Unlocated, ended: false };
        feed.source = locate(&feed.execution, job, after).await?;
        Ok(feed)
    }

    /// Waits for new events, at least one. Returns `None` when the job has ended and all were read. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<Entry>> {
        while !self.ended {
            if let Some(entries) = self.read().await
                && let Some(last) = entries.last()
            {
                self.after = last.event.n;
                self.ended = last.event.event.is_last();
                return Some(entries);
            }
        }
        None
    }

    async fn read(&mut self) -> Option<Vec<Entry>> {
        match &mut self.source {
            Source::Log(reader) => {
                let entries = reader.next().await;
                if entries.is_none() {
                    self.ended = reader.has_ended();
                    self.source = Source::Unlocated;
                }
                entries
            }
            Source::Relay(reader) => {
                let entries = reader.next().await;
                if entries.is_none() {
                    self.source = Source::Unlocated;
                }
                Some(continuing(self.after, entries?)).filter(|entries| !entries.is_empty())
            }
            Source::Stored(events) => match events.next().await {
                Ok(entries) => {
                    self.ended = entries.is_none();
                    entries
                }
                Err(error) => {
                    tracing::warn!(job = %self.job, error = %Chain(&error), "events not read; will retry");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    None
                }
            },
            Source::Unlocated => {
                match locate(&self.execution, self.job, self.after).await {
                    Ok(source) => self.source = source,
                    Err(error) => {
                        tracing::warn!(job = %self.job, error = %Chain(&error), "events not located; will retry");
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                }
                None
            }
        }
    }
}

async fn locate(execution: &Arc<Execution>, job: JobId, after: u64) -> Result<Source, StoreError> {
    if let Some(handle) = execution.find(job)
        && !handle.log.is_abandoned()
    {
        return Ok(Source::Log(handle.log.read(after)));
    }
    let stored = StoredEvents::open(&execution.context().store, job, after).await?;
    Ok(match stored {
        Some(events) => Source::Stored(Box::new(events)),
        None => Source::Relay(relays::read(execution, job, after)),
    })
}

/// The entries that continue the sequence after `after`. Those behind a gap are left out; the reader gets them from SQL
/// after the job's end.
fn continuing(after: u64, entries: Vec<Entry>) -> Vec<Entry> {
    let due = after + 1..;
    due.zip(entries).take_while(|(due, entry)| entry.event.n == *due).map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use island_protocol::event::{JobEvent, Numbered};
    use proptest::prelude::*;

    use super::{super::log::Log, *};

    proptest! {
        #[test]
        fn what_is_relayed_has_neither_gaps_nor_repeats(
            after in 0_u64..5,
            messages in prop::collection::vec((1_u64..12, 0_u64..6), 0..30),
        ) {
            let log = Arc::new(Log::new(Vec::new()));
            let (mut relayed, mut last) = (Vec::new(), after);
            let mut reader = log.read(after);
            for (from, count) in messages {
                let events = (from..from + count).map(|n| Numbered { n, event: JobEvent::token(n.to_string()) });
                if !log.append_numbered(events.collect()) {
                    continue;
                }
                let Some(entries) = futures::FutureExt::now_or_never(reader.next()) else { continue };
                let new = continuing(last, entries.expect("the log is open"));
                last = new.last().map_or(last, |entry| entry.event.n);
                relayed.extend(new.into_iter().map(|entry| entry.event.n));
            }
            prop_assert_eq!(relayed, (after + 1..=last).collect::<Vec<_>>());
        }
    }
}
