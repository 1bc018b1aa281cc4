//! Waits for the end of a job on behalf of its request.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use island_protocol::{event::JobEvent, problem::Code};
use tokio::time::timeout;

use super::submit::{OnDisconnect, Submission};
use crate::{
    api::{Api, ApiError, availability},
    execution::{
        job_handle::JobHandle,
        log::{Entry, Reader},
    },
    job::Job,
    storage::jobs,
};

/// An accepted job whose client waits. Dropped while armed, because the client has disconnected, it cancels the job.
#[derive(Debug)]
pub(in crate::api) struct CancelOnDrop {
    handle: Arc<JobHandle>,
    is_armed: bool,
}

impl CancelOnDrop {
    pub(in crate::api) fn new(handle: Arc<JobHandle>, on_disconnect: OnDisconnect) -> Self {
        Self { handle, is_armed: on_disconnect == OnDisconnect::Cancel }
    }

    /// The job.
    pub(in crate::api) fn handle(&self) -> Arc<JobHandle> {
        self.handle.clone()
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(in crate::api) fn disarm(&mut self) {
        self.is_armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.handle.cancel();
        }
    }
}

/// Follows an accepted job. One that an earlier, identical request created is replayed from its stored events.
pub(in crate::api) async fn follow(
    api: &Api,
    submission: Submission,
) -> Result<(CancelOnDrop, Job, bool), ApiError> {
    let job = match submission {
        Submission::New(guard, job) => return Ok((guard, job, false)),
        Submission::Existing(job) => job,
    };
    let events = jobs::events(api.execution.context().store.reader(), job.id).await?;
    let events = events.ok_or_else(|| {
        if job.end.is_some() {
            return ApiError::new(
                Code::NotFound,
                "the answer to the first request with this key was deleted",
            );
        }
        ApiError::new(Code::IdempotencyInProgress, "the first request with this Idempotency-Key still runs")
    })?;
    let handle = Arc::new(JobHandle::ended(api.execution.context(), job.clone(), events));
    Ok((CancelOnDrop::new(handle, OnDisconnect::Run), job, true))
}

/// A job's events in order. Dropped before the last one, it cancels the job.
#[derive(Debug)]
pub(in crate::api) struct Follower {
    handle: Arc<JobHandle>,
    reader: Reader,
    guard: CancelOnDrop,
    /// Read but not yet returned.
    ready: VecDeque<Entry>,
}

impl Follower {
    pub(in crate::api) fn new(guard: CancelOnDrop) -> Self {
        let handle = guard.handle();
        Self { reader: handle.log.read(0), handle, guard, ready: VecDeque::new() }
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(in crate::api) fn outlive_client(&mut self) {
        self.guard.disarm();
    }

    /// Waits until an Island has accepted the job, or the job has ended.
    pub(in crate::api) async fn begin(&mut self, wait: Duration, slug: &str) -> Result<(), ApiError> {
        let handle = self.handle.clone();
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        while !self.has_ended() {
            tokio::select! {
                biased;
                is_more = self.fill() => if !is_more { return Err(moved()) },
                () = handle.accepted() => return Ok(()),
                () = &mut deadline => return Err(availability::not_accepted(&handle, slug)),
            }
        }
        Ok(())
    }

    /// Waits up to `timeout` for an event that `passes`: an error until then can still be answered with its HTTP
    /// status.
    pub(in crate::api) async fn settle(&mut self, limit: Duration, passes: impl Fn(&JobEvent) -> bool) {
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
    pub(in crate::api) fn first(&self, passes: impl Fn(&JobEvent) -> bool) -> Option<&JobEvent> {
        self.ready.iter().map(|entry| &entry.event.event).find(|event| passes(event))
    }

    /// The next event. Cancel safe.
    pub(in crate::api) async fn next(&mut self) -> Result<Entry, ApiError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                if entry.event.event.is_last() {
                    self.outlive_client();
                }
                return Ok(entry);
            }
            if !self.fill().await {
                return Err(moved());
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ready.iter().any(|entry| entry.event.event.is_last())
    }

    /// Reads the events that are available. Returns `false` if the log has ended. Cancel safe.
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

fn moved() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "the job moved to another coordinator; try again")
}
