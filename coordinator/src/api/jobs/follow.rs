//! A request that waits for the job it made.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use island_protocol::{event::JobEvent, problem::Code};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::submit::{OnDisconnect, Taken};
use crate::{
    api::{Api, ApiError},
    job::Job,
    owner::{
        live::{Command, Live},
        log::{Entry, Log, Reader},
    },
    storage::job as jobs,
};

/// An accepted job of a client that waits. Dropped while armed, because the client has disconnected, it cancels the job.
#[derive(Debug)]
pub(in crate::api) struct CancelOnDrop {
    live: Arc<Live>,
    is_armed: bool,
}

impl CancelOnDrop {
    pub(in crate::api) fn new(live: Arc<Live>, on_disconnect: OnDisconnect) -> Self {
        Self { live, is_armed: on_disconnect == OnDisconnect::Cancel }
    }

    /// The job.
    pub(in crate::api) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }

    /// From now on the job runs to its end.
    pub(in crate::api) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            // A job that has ended does not hear this.
            let (answer, _) = oneshot::channel();
            self.live.send(Command::Cancel { answer });
        }
    }
}

/// A job that was accepted, to be followed: one that the same request made before is as if it ended now.
pub(in crate::api) async fn taken(api: &Api, taken: Taken) -> Result<(CancelOnDrop, Job, bool), ApiError> {
    let job = match taken {
        Taken::New(guard, job) => return Ok((guard, job, false)),
        Taken::Before(job) => job,
    };
    let events = jobs::events(api.owner.context().store.reader(), job.id).await?;
    let events = events.ok_or_else(|| {
        ApiError::new(Code::IdempotencyInProgress, "the first request with this Idempotency-Key still runs")
    })?;
    let (commands, _) = mpsc::unbounded_channel();
    let live = Arc::new(Live::new(&job, Log::new(events), commands));
    Ok((CancelOnDrop::new(live, OnDisconnect::Run), job, true))
}

/// A job's events, one after the other. Dropped before the last, it cancels the job.
#[derive(Debug)]
pub(in crate::api) struct Follower {
    live: Arc<Live>,
    reader: Reader,
    guard: CancelOnDrop,
    /// Read and not taken yet.
    ready: VecDeque<Entry>,
}

impl Follower {
    pub(in crate::api) fn new(guard: CancelOnDrop) -> Self {
        let live = guard.live();
        Self { reader: live.log.read(0), live, guard, ready: VecDeque::new() }
    }

    /// From now on the job runs to its end whether or not somebody listens.
    pub(in crate::api) fn outlive_client(&mut self) {
        self.guard.disarm();
    }

    /// Waits until an Island has taken the job, or it ended.
    pub(in crate::api) async fn begin(&mut self, wait: Duration) -> Result<(), ApiError> {
        let live = self.live.clone();
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        while !self.has_ended() {
            tokio::select! {
                biased;
                is_more = self.fill() => if !is_more { return Err(gone()) },
                () = live.accepted() => return Ok(()),
                () = &mut deadline => {
                    return Err(ApiError::new(Code::NoIslandAvailable, "no Island can serve this model right now"));
                }
            }
        }
        Ok(())
    }

    /// Waits, but no longer than `patience`, for a first event that passes: what is wrong until then can still be a proper answer.
    pub(in crate::api) async fn settle(&mut self, patience: Duration, passes: impl Fn(&JobEvent) -> bool) {
        let looked = async {
            let mut seen = 0;
            loop {
                if self.ready.iter().skip(seen).any(|entry| passes(&entry.event.event)) {
                    return;
                }
                seen = self.ready.len();
                if !self.fill().await {
                    return;
                }
            }
        };
        let _ = timeout(patience, looked).await;
    }

    /// The next event that was not taken, if one was read.
    pub(in crate::api) fn first(&self, passes: impl Fn(&JobEvent) -> bool) -> Option<&JobEvent> {
        self.ready.iter().map(|entry| &entry.event.event).find(|event| passes(event))
    }

    /// The next event. Safe to drop.
    pub(in crate::api) async fn next(&mut self) -> Result<Entry, ApiError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                if entry.event.event.is_last() {
                    self.outlive_client();
                }
                return Ok(entry);
            }
            if !self.fill().await {
                return Err(gone());
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ready.iter().any(|entry| entry.event.event.is_last())
    }

    /// Reads what is there; false: the log has ended. Safe to drop.
    async fn fill(&mut self) -> bool {
        match self.reader.next().await {
            Some(entries) => {
                self.ready.extend(entries);
                true
            }
            None => false,
        }
    }
}

fn gone() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "the job went on elsewhere; try again")
}
