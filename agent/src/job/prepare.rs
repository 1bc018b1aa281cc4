//! Obtains the files and a loaded worker for an attempt, and reports progress.

use std::{fs, sync::Arc, time::Duration};

use island_cache::{GetError, Reservation};
use island_daemon::{
    chain::Chain,
    latest::Latest,
    traces::{Kind, Span},
};
use island_protocol::{
    event::AttemptEvent,
    job::{Failure, FailureCode, Fault},
};
use island_runtimes_api::Phase;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Broken, JobContext};
use crate::{
    disk::{
        artifacts::{self, Fetched, Files},
        derived,
    },
    pool::{AcquireError, ModelKey},
    worker::{WorkerClaim, WorkerState},
};

/// Time between two progress events.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Time between two tries to obtain a worker.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// State of a job whose files a server does not send for now, because it has received too many requests.
const RATE_LIMITED: &str = "rate_limited";
/// Number of tries before the attempt is given back.
const LOOKS: u32 = 30;

impl JobContext {
    /// Downloads the files, derives what the engine needs, finds or starts a worker, and waits until its model is loaded.
    pub(super) async fn prepare(&self, trace: &Span) -> Result<(Files, WorkerClaim), Broken> {
        let downloading = trace.child("download", Kind::Internal);
        let mut files = self.fetch().await?;
        drop(downloading);
        let _loading = trace.child("load", Kind::Internal);
        let loaded = async {
            self.derive(&mut files).await?;
            let claim = self.acquire(&files).await?;
            self.loaded(&claim).await.map(|()| claim)
        };
        match loaded.await {
            Ok(claim) => Ok((files, claim)),
            Err(broken) => Err(self.of_damage(&files, broken).await),
        }
    }

    /// Returns the failure of a model that could not be loaded: that of this Island if a file was damaged on its disk, which is not the job's
    /// fault. The next try downloads the file again.
    async fn of_damage(&self, files: &Files, broken: Broken) -> Broken {
        let (Broken::Failed(failure) | Broken::Worker { failure, .. }) = &broken;
        let may_be_of_a_file = failure.fault == Fault::Job || failure.code == FailureCode::RuntimeCrashed;
        if !may_be_of_a_file || self.attempt.cancelled().is_cancelled() {
            return broken;
        }
        let attempt = Arc::clone(&self.attempt);
        let progress = move |done| attempt.note_work(Phase::Load, done);
        if !files.find_damage(&self.cache, progress).await {
            return broken;
        }
        let key = self.attempt.key();
        tracing::error!(%key, "a file of a model is damaged on this machine's disk, and is downloaded again");
        let message = "a file of the model was damaged on this Island's disk and is downloaded again";
        Broken::Worker { failure: Failure::of_host(FailureCode::ModelUnavailable, message), retry: true }
    }

    async fn fetch(&self) -> Result<Files, Broken> {
        let artifacts = &self.attempt.assignment().cargo.artifacts;
        let fetched = Fetched::default();
        self.attempt.note_work(Phase::Fetch, 0);
        let (cache, cancelled) = (&self.cache, self.attempt.cancelled());
        let fetch =
            artifacts::fetch(cache, &self.api_url, self.pool.state_dir(), artifacts, &fetched, cancelled);
        tokio::pin!(fetch);
        let mut ticks = tokio::time::interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = 0;
        let mut counted = Instant::now();
        // Waiting as the server asks is work: without it the lease would count as stalled.
        let (mut waited, mut waits_for) = (0, None);
        loop {
            tokio::select! {
                biased;
                files = &mut fetch => return files.map_err(|error| self.not_fetched(&error)),
                _ = ticks.tick() => {
                    let now = Instant::now();
                    self.attempt.add_fetched(now - counted);
                    counted = now;
                    let (done, total) = fetched.sum();
                    let wait = fetched.wait();
                    waited += u64::from(wait.is_some());
                    self.attempt.note_work(Phase::Fetch, done + waited);
                    if let Some(wait) = &wait
                        && waits_for != Some(wait.until)
                    {
                        let seconds = (wait.until - now).as_secs();
                        tracing::info!(key = %self.attempt.key(), host = wait.host, seconds, "the server accepts no more requests for now");
                        self.push(AttemptEvent::Status { state: RATE_LIMITED.to_owned() })?;
                    }
                    waits_for = wait.map(|wait| wait.until);
                    if done != reported {
                        reported = done;
                        self.progress(Phase::Fetch, done, total.unwrap_or(0))?;
                    }
                }
            }
        }
    }

    /// Keeps disk space free for files beside the cache.
    pub(super) async fn reserve(&self, bytes: u64) -> Result<Reservation, Broken> {
        let reserved = self.cache.reserve(bytes, self.attempt.cancelled()).await;
        reserved.map_err(|error| self.not_fetched(&error))
    }

    /// Replaces files by those derived from them, if the engine needs that, and by copies that a shared worker can read.
    async fn derive(&self, files: &mut Files) -> Result<(), Broken> {
        let cargo = &self.attempt.assignment().cargo;
        if !cargo.is_shared() {
            return Ok(());
        }
        self.attempt.note_work(Phase::Load, 0);
        let engine = self.pool.runtimes().deriver(cargo);
        let engine = engine.map_err(|reason| Broken::Failed(AcquireError::NoRuntime(reason).failure()))?;
        let digests: Vec<_> = files.digests().map(|(name, digest)| (name.to_owned(), digest)).collect();
        for (name, digest) in digests {
            let source = &files.paths[&name];
            let length = fs::metadata(source).map_or(0, |about| about.len());
            let made = if derived::wanted(cargo) {
                let _space = self.reserve(derived::bytes_needed(length)).await?;
                self.derived.get(&engine, cargo, source, digest).await
            } else if self.cache.holds(source) {
                continue;
            } else {
                let _space = self.reserve(length).await?;
                self.derived.adopt(source, digest).await
            };
            files.paths.insert(name, made.map_err(Broken::Failed)?);
        }
        Ok(())
    }

    fn not_fetched(&self, error: &GetError) -> Broken {
        tracing::warn!(key = %self.attempt.key(), error = %Chain(error), "an artifact cannot be obtained");
        Broken::Failed(self.attempt.reason().unwrap_or_else(|| artifacts::failure(error)))
    }

    pub(super) async fn acquire(&self, files: &Files) -> Result<WorkerClaim, Broken> {
        let assignment = self.attempt.assignment();
        let model = ModelKey::of(&assignment.cargo, assignment.isolated.then_some(assignment.key));
        self.pool.note_demand(&model);
        for looks_left in (0..LOOKS).rev() {
            match self.pool.acquire(&model, &assignment.cargo, &files.paths).await {
                Ok(visit) => return Ok(visit),
                Err(AcquireError::NoMemory { .. }) if looks_left > 0 => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => {
                    tracing::warn!(key = %self.attempt.key(), error = %Chain(&error), "no worker can be obtained");
                    return Err(Broken::Failed(error.failure()));
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn loaded(&self, visit: &WorkerClaim) -> Result<(), Broken> {
        let worker = visit.worker();
        let mut state = worker.state();
        let mut reported: Option<Instant> = None;
        loop {
            state.mark_unchanged();
            let now = state.latest();
            match now {
                WorkerState::Ready => return Ok(()),
                WorkerState::Gone(death) => {
                    tracing::warn!(key = %self.attempt.key(), log = worker.log_tail(), "the worker did not load its model");
                    let failure = death.failure();
                    let counts = death.may_be_of_this_island() && super::is_of_the_engine(&failure);
                    if counts && !self.attempt.cancelled().is_cancelled() {
                        let cargo = &self.attempt.assignment().cargo;
                        self.pool.note_failure(cargo, &worker.launch.gpus, None, &failure.message);
                    }
                    return Err(Broken::Worker { failure, retry: death.is_worth_a_retry() });
                }
                WorkerState::Loading { done, total } => {
                    self.attempt.note_work(Phase::Load, done);
                    // Loading reports thousands of steps; most are omitted.
                    if total > 0 && reported.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY) {
                        reported = Some(Instant::now());
                        self.progress(Phase::Load, done, total)?;
                    }
                }
            }
            tokio::select! {
                biased;
                changed = state.changed() => if changed.is_err() {
                    return Err(super::broken_by(worker).await);
                },
                () = worker.hung() => return Err(super::broken_by(worker).await),
            }
        }
    }

    fn progress(&self, phase: Phase, step: u64, total: u64) -> Result<(), Broken> {
        self.push(AttemptEvent::Progress { step, total, phase: Some(phase.as_str().to_owned()) })
    }
}
