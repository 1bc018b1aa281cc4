//! The events of a job for one reader, wherever they are: in the log of a job that this coordinator executes, in the
//! fabric's stream while another one executes it, in SQL after its end. Every endpoint that shows events as they come reads them here, so that all
//! of them follow a job that moves.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::ids::JobId;

use super::{
    Execution,
    job_handle::JobHandle,
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
        let source = locate(&execution, job, after).await?;
        Ok(Self { execution, job, after, source, ended: false })
    }

    /// A reader of a job that this coordinator has accepted, from the first event on.
    pub fn of_accepted(execution: Arc<Execution>, handle: &JobHandle) -> Self {
        let source = Source::Log(handle.log.read(0));
        Self { execution, job: handle.id, after: 0, source, ended: false }
    }

    /// Opens a reader of a job that has ended. Returns `None` if it has not, or its events were deleted.
    pub async fn ended(
        execution: Arc<Execution>,
        job: JobId,
        after: u64,
    ) -> Result<Option<Self>, StoreError> {
        let stored = StoredEvents::open(&execution.context().store, job, after).await?;
        let source = stored.map(|events| Source::Stored(Box::new(events)));
        Ok(source.map(|source| Self { execution, job, after, source, ended: false }))
    }

    /// Whether all events are stored.
    pub fn is_stored(&self) -> bool {
        matches!(self.source, Source::Stored(_))
    }

    /// Waits for new events, at least one. Returns `None` when the job has ended and all were read, or the rest
    /// was deleted or is damaged. Cancel safe.
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
                Err(error) => self.failed(&error).await,
            },
            Source::Unlocated => match locate(&self.execution, self.job, self.after).await {
                Ok(source) => {
                    self.source = source;
                    None
                }
                Err(error) => self.failed(&error).await,
            },
        }
    }

    /// Waits before SQL is read again, unless it would be in vain.
    async fn failed(&mut self, error: &StoreError) -> Option<Vec<Entry>> {
        if matches!(error, StoreError::Corrupt { .. }) {
            tracing::error!(job = %self.job, error = %Chain(error), "events cannot be read");
            self.ended = true;
        } else {
            tracing::warn!(job = %self.job, error = %Chain(error), "events not read; will retry");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        None
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
