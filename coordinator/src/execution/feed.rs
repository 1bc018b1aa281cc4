//! The events of a job for one reader, wherever they are: in the log of a job that this coordinator executes, in the
//! fabric's stream while another one executes it, in SQL after its end. The reader follows a job that moves.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::ids::JobId;

use super::{
    Execution,
    log::{Entry, Reader},
    relay::{Relay, Relayed},
};
use crate::storage::{StoreError, jobs};

/// Time before a source that failed is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
enum Source {
    Log(Reader),
    Relay(Relay),
    Stored(Vec<Entry>),
    /// To be located, at first or again.
    Unlocated,
}

/// One reader of one job.
#[derive(Debug)]
pub(crate) struct Feed {
    execution: Arc<Execution>,
    job: JobId,
    after: u64,
    source: Source,
    ended: bool,
}

impl Feed {
    /// Opens a reader that starts with the event after `after`.
    pub(crate) async fn open(execution: Arc<Execution>, job: JobId, after: u64) -> Result<Self, StoreError> {
        let mut feed = Self { execution, job, after, source: Source::Unlocated, ended: false };
        feed.source = locate(&feed.execution, job, after).await?;
        Ok(feed)
    }

    /// Waits for new events, at least one. Returns `None` when the job has ended and all were read. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Entry>> {
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
            Source::Relay(relay) => match relay.next().await {
                Relayed::Events(entries) => Some(entries),
                Relayed::Idle => {
                    if !is_executed_elsewhere(&self.execution, self.job).await {
                        self.source = Source::Unlocated;
                    }
                    None
                }
                Relayed::Closed => {
                    self.source = Source::Unlocated;
                    None
                }
            },
            Source::Stored(entries) => {
                self.ended = true;
                Some(std::mem::take(entries))
            }
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

/// Whether another coordinator executes an open job. Assumed to be so if the database cannot be read.
async fn is_executed_elsewhere(execution: &Execution, job: JobId) -> bool {
    if execution.find(job).is_some() {
        return false;
    }
    let assigned = jobs::assigned_coordinator(execution.context().store.reader(), job).await;
    assigned.map_or(true, |assigned| assigned.is_some_and(|assigned| !assigned.status.is_final()))
}

async fn locate(execution: &Execution, job: JobId, after: u64) -> Result<Source, StoreError> {
    if let Some(handle) = execution.find(job)
        && !handle.log.is_abandoned()
    {
        return Ok(Source::Log(handle.log.read(after)));
    }
    let context = execution.context();
    if let Some(events) = jobs::events(context.store.reader(), job).await? {
        let rest = events.into_iter().filter(|event| event.n > after);
        return Ok(Source::Stored(rest.map(Entry::new).collect()));
    }
    match Relay::open(&context.link, job, after).await {
        Ok(relay) => Ok(Source::Relay(relay)),
        Err(error) => {
            tracing::debug!(%job, %error, "stream of another coordinator's job not opened; will retry");
            tokio::time::sleep(RETRY_INTERVAL).await;
            Ok(Source::Unlocated)
        }
    }
}
