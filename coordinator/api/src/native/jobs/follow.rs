//! Waits for the end of a job on behalf of its request.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use island_protocol::event::JobEvent;
use island_protocol_api::problem::Code;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::submit::{OnDisconnect, Submission, stopping};
use crate::{Api, ApiError, Stops, native::availability};
use island_coordinator_domain::job::Job;
use island_coordinator_execution::{Execution, feed::Feed, job_handle::JobHandle, log::Entry};

/// Maximum time to store the end of a job that is cancelled because the coordinator stops.
const END_LIMIT: Duration = Duration::from_secs(2);

/// An accepted job whose client waits. Dropped while armed, because the client has disconnected, it cancels the job.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    execution: Arc<Execution>,
    handle: Arc<JobHandle>,
    is_armed: bool,
}

impl CancelOnDrop {
    pub(crate) fn new(
        execution: Arc<Execution>,
        handle: Arc<JobHandle>,
        on_disconnect: OnDisconnect,
    ) -> Self {
        Self { execution, handle, is_armed: on_disconnect == OnDisconnect::Cancel }
    }

    /// The job.
    pub(crate) fn handle(&self) -> Arc<JobHandle> {
        self.handle.clone()
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(crate) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.execution.request_cancel(self.handle.id);
        }
    }
}

/// An accepted job and its events. Dropped while the guard is armed, it cancels the job.
#[derive(Debug)]
pub(crate) struct Followed {
    pub guard: CancelOnDrop,
    feed: Feed,
    /// Triggered when the coordinator has no more time for replies.
    stop: CancellationToken,
    is_stopping: bool,
}

impl Followed {
    /// A job that was accepted here.
    pub(crate) fn new(guard: CancelOnDrop, stops: &Stops) -> Self {
        let feed = Feed::of_accepted(guard.execution.clone(), &guard.handle);
        Self { guard, feed, stop: stops.replies.clone(), is_stopping: false }
    }

    /// Waits up to `wait` until an Island has accepted the job.
    pub(crate) fn accepted(
        &self,
        wait: Duration,
        slug: &str,
    ) -> impl Future<Output = Result<(), ApiError>> + use<> {
        let (handle, slug) = (self.guard.handle(), slug.to_owned());
        async move {
            match timeout(wait, handle.accepted()).await {
                Ok(()) => Ok(()),
                // The coordinator that executes the job now knows it, and ends a job that no Island takes.
                Err(_) if handle.log.is_abandoned() => Ok(()),
                Err(_) => Err(availability::not_accepted(&handle, &slug)),
            }
        }
    }

    /// The next events, at least one. Returns `None` if there are no more, or the coordinator has no more time for them. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Vec<Entry>> {
        if !self.is_stopping {
            tokio::select! {
                biased;
                entries = self.feed.next() => return entries,
                () = self.stop.cancelled() => self.is_stopping = true,
            }
        }
        self.end().await
    }

    /// Cancels a job that only its client could read, and waits until that is stored. Returns the last events of one that completed meanwhile.
    async fn end(&mut self) -> Option<Vec<Entry>> {
        if !self.guard.is_armed {
            return None;
        }
        self.guard.execution.request_cancel(self.guard.handle.id);
        let ended = async {
            loop {
                let entries = self.feed.next().await?;
                if let Some(last) = entries.last().filter(|last| last.event.event.is_last()) {
                    let is_complete = matches!(last.event.event, JobEvent::Done { .. });
                    return is_complete.then_some(entries);
                }
            }
        };
        timeout(END_LIMIT, ended).await.ok().flatten()
    }

    /// Why there are no more events of a job that has not ended.
    pub(crate) fn interruption(&self) -> ApiError {
        if self.is_stopping {
            return stopping();
        }
        ApiError::new(Code::ServiceUnavailable, "the rest of the answer cannot be read")
    }
}

/// Follows an accepted job. One that an earlier, identical request created is replayed from its stored events.
pub(crate) async fn follow(api: &Api, submission: Submission) -> Result<(Followed, Job, bool), ApiError> {
    let job = match submission {
        Submission::New(guard, job) => return Ok((Followed::new(guard, &api.stops), job, false)),
        Submission::Existing(job) => job,
    };
    let execution = api.execution.clone();
    let feed = Feed::ended(execution.clone(), job.id, 0).await?.ok_or_else(|| {
        if job.end.is_some() {
            return ApiError::new(
                Code::NotFound,
                "the answer to the first request with this key was deleted",
            );
        }
        ApiError::new(Code::IdempotencyInProgress, "the first request with this Idempotency-Key still runs")
    })?;
    let handle = execution.ended_handle(job.clone());
    let guard = CancelOnDrop::new(execution, handle, OnDisconnect::Run);
    Ok((Followed { guard, feed, stop: api.stops.replies.clone(), is_stopping: false }, job, true))
}

/// A job's events in order. Dropped before the last one, it cancels the job.
#[derive(Debug)]
pub(crate) struct Follower {
    followed: Followed,
    /// Read but not yet returned.
    ready: VecDeque<Entry>,
}

impl Follower {
    pub(crate) fn new(followed: Followed) -> Self {
        Self { followed, ready: VecDeque::new() }
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(crate) fn outlive_client(&mut self) {
        self.followed.guard.disarm();
    }

    /// Waits until an Island has accepted the job, or the job has ended.
    pub(crate) async fn begin(&mut self, wait: Duration, slug: &str) -> Result<(), ApiError> {
        if self.followed.feed.is_stored() {
            // All of its events are there, and reading them all would hold them in memory.
            return Ok(());
        }
        let mut accepted = pin!(self.followed.accepted(wait, slug));
        while !self.has_ended() {
            tokio::select! {
                biased;
                is_more = self.fill() => if !is_more { return Err(self.followed.interruption()) },
                accepted = &mut accepted => return accepted,
            }
        }
        Ok(())
    }

    /// Waits up to `timeout` for an event that `passes`: an error until then can still be answered with its HTTP
    /// status.
    pub(crate) async fn settle(&mut self, limit: Duration, passes: impl Fn(&JobEvent) -> bool) {
        let search = async {
            let mut checked = 0;
            loop {
                if self.ready.iter().skip(checked).any(|entry| passes(&entry.event.event)) {
                    return;
                }
                checked = self.ready.len();
                if !self.fill().await {
                    return;
                }
            }
        };
        let _ = timeout(limit, search).await;
    }

    /// The first event that `passes` among those not yet returned.
    pub(crate) fn first(&self, passes: impl Fn(&JobEvent) -> bool) -> Option<&JobEvent> {
        self.ready.iter().map(|entry| &entry.event.event).find(|event| passes(event))
    }

    /// The next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Entry, ApiError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                if entry.event.event.is_last() {
                    self.outlive_client();
                }
                return Ok(entry);
            }
            if !self.fill().await {
                return Err(self.followed.interruption());
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ready.iter().any(|entry| entry.event.event.is_last())
    }

    /// Reads the events that are available. Returns `false` if there are no more. Cancel safe.
    async fn fill(&mut self) -> bool {
        match self.followed.next().await {
            Some(entries) => {
                self.ready.extend(entries);
                true
            }
            None => false,
        }
    }
}
