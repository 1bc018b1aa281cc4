//! The events of a job for one reader, wherever they are: in the log of a job that runs here, in the fabric's stream
//! while another coordinator owns it, in SQL once it has ended. A job that moves is followed.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::ids::JobId;

use super::{
    Owner,
    log::{Entry, Reader},
    relay::{Relay, Relayed},
};
use crate::storage::{StoreError, job as jobs};

/// Time before a source that failed is tried again.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
enum Source {
    Log(Reader),
    Relay(Relay),
    Stored(Vec<Entry>),
    /// Not known, or not any more.
    Unknown,
}

/// One reader of one job.
#[derive(Debug)]
pub(crate) struct Feed {
    owner: Arc<Owner>,
    job: JobId,
    after: u64,
    source: Source,
    ended: bool,
}

impl Feed {
    /// Reads from the event after `after` on.
    pub(crate) async fn open(owner: Arc<Owner>, job: JobId, after: u64) -> Result<Self, StoreError> {
        let mut feed = Self { owner, job, after, source: Source::Unknown, ended: false };
        feed.source = locate(&feed.owner, job, after).await?;
        Ok(feed)
    }

    /// Whether the job has ended and everything is at hand.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.source, Source::Stored(_))
    }

    /// What is new, at least one event; none once the job has ended and all was read. Safe to drop.
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
                    self.source = Source::Unknown;
                }
                entries
            }
            Source::Relay(relay) => match relay.next().await {
                Relayed::Events(entries) => Some(entries),
                Relayed::Quiet => {
                    if !is_elsewhere(&self.owner, self.job).await {
                        self.source = Source::Unknown;
                    }
                    None
                }
                Relayed::Broken => {
                    self.source = Source::Unknown;
                    None
                }
            },
            Source::Stored(entries) => {
                self.ended = true;
                Some(std::mem::take(entries))
            }
            Source::Unknown => {
                match locate(&self.owner, self.job, self.after).await {
                    Ok(source) => self.source = source,
                    Err(error) => {
                        tracing::warn!(job = %self.job, error = %Chain(&error), "events not found yet");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                None
            }
        }
    }
}

/// Whether a job runs, and not here. In doubt it does.
async fn is_elsewhere(owner: &Owner, job: JobId) -> bool {
    if owner.find(job).is_some() {
        return false;
    }
    let held = jobs::held(owner.context().store.reader(), job).await;
    held.map_or(true, |held| held.is_some_and(|held| !held.status.is_final()))
}

async fn locate(owner: &Owner, job: JobId, after: u64) -> Result<Source, StoreError> {
    if let Some(live) = owner.find(job)
        && !live.log.is_abandoned()
    {
        return Ok(Source::Log(live.log.read(after)));
    }
    let context = owner.context();
    if let Some(events) = jobs::events(context.store.reader(), job).await? {
        let rest = events.into_iter().filter(|event| event.n > after);
        return Ok(Source::Stored(rest.map(Entry::new).collect()));
    }
    match Relay::open(&context.link, job, after).await {
        Ok(relay) => Ok(Source::Relay(relay)),
        Err(error) => {
            tracing::debug!(%job, %error, "stream of another coordinator's job not open yet");
            tokio::time::sleep(PAUSE).await;
            Ok(Source::Unknown)
        }
    }
}
