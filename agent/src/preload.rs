//! Downloads models before jobs need them: the coordinator recommends models, [`plan`] chooses what this Island downloads and removes.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use island_cache::{Cache, GetError, Progress, Transfer};
use island_coordinator_client::{Client, ClientError};
use island_daemon::{chain::Chain, latest::Latest};
use island_protocol::{
    artifact::Artifact,
    digest::Digest,
    ids::{HostId, Slug},
};
use island_protocol_api::recommendation::Recommendation;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    config::PreloadSection,
    disk::artifacts::is_image_reference,
    supervisor::{Supervisor, while_accepting},
};

mod backoff;
pub mod plan;

use backoff::Backoff;
use plan::{CachedFile, FetchOption};

/// Bytes per second that are assumed until a download was measured.
const ASSUMED_SPEED: f64 = 10e6;
/// Smallest download by which the speed of the link is measured.
const TELLING: u64 = 8 << 20;
/// Weight of the latest download in the speed of the link.
const LATEST: f64 = 0.5;

/// The preload that is being downloaded, for the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetching {
    /// The Cargo.
    pub cargo: Slug,
    /// Downloaded bytes.
    pub done: u64,
    /// Total bytes.
    pub total: u64,
}

/// Downloads recommended models, in rounds.
#[derive(Debug)]
pub struct Preloader {
    host: HostId,
    client: Client,
    cache: Cache,
    supervisor: Arc<Supervisor>,
    settings: PreloadSection,
    now: watch::Sender<Option<Fetching>>,
    /// Bytes per second of the latest downloads.
    speed: Mutex<f64>,
    last: Mutex<Option<Round>>,
    backoff: Mutex<Backoff>,
}

/// A Cargo that could be preloaded.
#[derive(Debug, Clone)]
struct Candidate {
    cargo: Slug,
    missing: Vec<Artifact>,
    bytes: u64,
    jobs: u64,
    credits: f64,
}

/// The last choice, to be compared with the demand that followed.
#[derive(Debug, Clone)]
struct Round {
    offered: Vec<Candidate>,
    chosen: Vec<usize>,
    free: u64,
}

impl Preloader {
    /// Creates one that requests recommendations from `client`.
    pub fn new(
        host: HostId,
        client: Client,
        cache: Cache,
        supervisor: Arc<Supervisor>,
        settings: PreloadSection,
    ) -> Self {
        let now = watch::Sender::new(None);
        let speed = Mutex::new(ASSUMED_SPEED);
        Self {
            host,
            client,
            cache,
            supervisor,
            settings,
            now,
            speed,
            last: Mutex::default(),
            backoff: Mutex::default(),
        }
    }

    /// Follows the current download.
    pub fn now(&self) -> watch::Receiver<Option<Fetching>> {
        self.now.subscribe()
    }

    /// Requests recommendations and downloads, until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        if !self.settings.enabled {
            return stop.cancelled().await;
        }
        // With jitter, so that Islands that started together do not send requests together.
        let mut wait = self.settings.every().mul_f64(rand::random::<f64>() * 0.1);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.settings.every().mul_f64(0.9 + rand::random::<f64>() * 0.2);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // The owner's pause and hours end downloads, too; the next round continues them.
                done = while_accepting(self.supervisor.stances(), self.round(&stop)) => if let Some(Err(error)) = done {
                    tracing::info!(error = %Chain(&error), "recommendations could not be obtained");
                }
            }
        }
    }

    /// Runs one round.
    async fn round(&self, stop: &CancellationToken) -> Result<(), ClientError> {
        if !self.supervisor.accepts_work() {
            return Ok(());
        }
        let recommended = self.client.recommendations(self.host).await?.recommendations;
        self.evaluate_last(&recommended);
        let (worth, offered) = self.candidates(&recommended);
        let speed = *self.speed.lock();
        let option = |one: &Candidate| FetchOption {
            bytes: one.bytes,
            worth: plan::worth(one.jobs as f64, one.credits, one.bytes, speed),
        };
        let options: Vec<_> = offered.iter().map(option).collect();
        let files = self.cache.own_files();
        let held: Vec<_> = files
            .iter()
            .map(|file| CachedFile {
                bytes: file.size,
                worth: worth.get(&file.digest).copied().unwrap_or(0.0),
                rest: SystemTime::now().duration_since(file.used).unwrap_or_default(),
            })
            .collect();
        let free = self.cache.free_bytes();
        let plan = plan::plan(&options, &held, free, self.settings.max_bytes());
        for &at in &plan.remove {
            if self.cache.remove(files[at].digest) {
                tracing::info!(digest = %files[at].digest, mb = files[at].size >> 20, "removed a model for one with more demand");
            }
        }
        tracing::info!(
            recommended = recommended.len(),
            missing = offered.len(),
            chosen = plan.fetch.len(),
            "planned preloads"
        );
        for &at in &plan.fetch {
            self.fetch(&offered[at], stop).await;
        }
        *self.last.lock() = Some(Round { offered, chosen: plan.fetch, free });
        Ok(())
    }

    /// Returns what each file promises, and the Cargos with missing files. A Cargo without hashes or lengths is skipped: such files cannot
    /// be verified or compared.
    fn candidates(&self, recommended: &[Recommendation]) -> (BTreeMap<Digest, f64>, Vec<Candidate>) {
        let (mut worth, mut offered) = (BTreeMap::new(), Vec::new());
        for one in recommended {
            let credits = one.estimated_earnings_per_job.parse().unwrap_or(0.0);
            let promised = plan::worth(one.jobs() as f64, credits, 0, 1.0);
            for digest in one.artifacts.iter().filter_map(|artifact| artifact.sha256) {
                *worth.entry(digest).or_insert(0.0) += promised;
            }
            let fetched: Vec<_> =
                one.artifacts.iter().filter(|artifact| !is_image_reference(artifact)).collect();
            let known = |artifact: &&Artifact| artifact.sha256.is_some() && artifact.size_bytes.is_some();
            if !fetched.iter().all(known)
                || fetched.iter().any(|artifact| artifact.url.starts_with("file://"))
            {
                continue;
            }
            let missing = fetched.into_iter().filter(|artifact| self.cache.lookup(artifact).is_none());
            let missing: Vec<Artifact> = missing.cloned().collect();
            if missing.iter().any(|artifact| self.backoff.lock().is_waiting(&artifact.url, Instant::now())) {
                continue;
            }
            let bytes = missing.iter().filter_map(|artifact| artifact.size_bytes).sum();
            if bytes > 0 {
                offered.push(Candidate {
                    cargo: one.workload_slug.clone(),
                    missing,
                    bytes,
                    jobs: one.jobs(),
                    credits,
                });
            }
        }
        (worth, offered)
    }

    async fn fetch(&self, wanted: &Candidate, stop: &CancellationToken) {
        let _shown = Shown::new(&self.now, wanted);
        let start = Instant::now();
        for artifact in &wanted.missing {
            let (now, before) = (self.now.clone(), self.now.latest().map_or(0, |shown| shown.done));
            let progress: Arc<Progress> = Arc::new(move |transfer| {
                let Transfer::Bytes { done, .. } = transfer else { return };
                now.send_modify(|shown| {
                    if let Some(shown) = shown {
                        shown.done = before + done;
                    }
                });
            });
            if let Err(error) = self.cache.get(artifact, progress, stop).await {
                if !matches!(error, GetError::Cancelled) {
                    self.backoff.lock().failed(&artifact.url, Instant::now());
                }
                tracing::info!(cargo = %wanted.cargo, name = artifact.name, error = %Chain(&error), "not preloaded");
                return;
            }
            self.backoff.lock().succeeded(&artifact.url);
        }
        self.learn(wanted.bytes, start.elapsed());
        tracing::info!(cargo = %wanted.cargo, mb = wanted.bytes >> 20, "preloaded");
        self.supervisor.wake_heartbeat();
    }

    fn learn(&self, bytes: u64, took: Duration) {
        if bytes >= TELLING {
            let mut speed = self.speed.lock();
            *speed = *speed * (1.0 - LATEST) + bytes as f64 / took.as_secs_f64().max(0.001) * LATEST;
            self.supervisor.set_link_mb_s((*speed / 1e6) as u64);
        }
    }

    /// Logs what the last choice missed, given the demand since.
    fn evaluate_last(&self, recommended: &[Recommendation]) {
        let last = self.last.lock().take();
        let Some(Round { offered, chosen, free }) = last else { return };
        let realised = |one: &Candidate| {
            let now = recommended.iter().find(|other| other.workload_slug == one.cargo);
            FetchOption { bytes: one.bytes, worth: now.map_or(0.0, |now| now.jobs() as f64 * one.credits) }
        };
        let realised: Vec<_> = offered.iter().map(realised).collect();
        let regret = plan::regret(&realised, &chosen, free);
        tracing::info!(
            regret_credits_per_hour = regret,
            offered = offered.len(),
            "evaluated the last preloads"
        );
    }
}

/// Shows a download while this exists.
struct Shown<'a>(&'a watch::Sender<Option<Fetching>>);

impl<'a> Shown<'a> {
    fn new(now: &'a watch::Sender<Option<Fetching>>, wanted: &Candidate) -> Self {
        now.send_replace(Some(Fetching { cargo: wanted.cargo.clone(), done: 0, total: wanted.bytes }));
        Self(now)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}
