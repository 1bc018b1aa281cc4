//! Jobs: accepted, offered, run, ended.

use std::time::Duration;

use island_protocol::{fabric::RefusalReason, ids::Slug, job::JobStatus};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use strum::VariantArray;

use super::{Histograms, long};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCargo {
    cargo: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct End {
    cargo: String,
    state: &'static str,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEngine {
    engine: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: String,
}

/// Why an attempt was taken away from its Island.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Loss {
    /// Its lease was not renewed in time.
    LeaseExpired,
    /// It made no progress.
    Stalled,
    /// The Island's agent restarted without it.
    Forgotten,
}

/// The end of a job.
#[derive(Debug)]
pub struct Ended<'a> {
    pub cargo: &'a Slug,
    /// Name of the Cargo's engine.
    pub engine: &'a str,
    pub status: JobStatus,
    /// Code of the error, if it did not complete.
    pub reason: Option<&'a str>,
    /// Time since it was accepted.
    pub life: Duration,
    /// Tokens of a completed reply, and the time for which its last attempt ran.
    pub reply: Option<(u64, Duration)>,
}

/// Jobs. Clones share them.
#[derive(Debug, Clone)]
pub struct Jobs {
    accepted: Family<ByCargo, Counter>,
    ended: Family<End, Counter>,
    wait: Histograms<ByEngine>,
    first_output: Histograms<ByEngine>,
    life: Histograms<ByEngine>,
    speed: Histograms<ByEngine>,
    refused: Family<ByReason, Counter>,
    lost: Family<ByReason, Counter>,
    renewed: Counter,
    not_renewed: Counter,
    stale: Counter,
    deleted: Family<Data, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Data {
    data: &'static str,
}

/// Tokens per second.
fn speed() -> Histogram {
    Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
}

impl Default for Jobs {
    fn default() -> Self {
        let jobs = Self {
            accepted: Family::default(),
            ended: Family::default(),
            wait: Histograms::new_with_constructor(long),
            first_output: Histograms::new_with_constructor(long),
            life: Histograms::new_with_constructor(long),
            speed: Histograms::new_with_constructor(speed),
            refused: Family::default(),
            lost: Family::default(),
            renewed: Counter::default(),
            not_renewed: Counter::default(),
            stale: Counter::default(),
            deleted: Family::default(),
        };
        // A rate needs a value before the first event.
        for loss in Loss::VARIANTS {
            drop(jobs.lost.get_or_create(&ByReason { reason: <&str>::from(loss).to_owned() }));
        }
        for data in ["inputs", "outputs", "events"] {
            drop(jobs.deleted.get_or_create(&Data { data }));
        }
        jobs
    }
}

impl Jobs {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("jobs_accepted", "Accepted jobs", self.accepted.clone());
        registry.register("jobs_ended", "Ended jobs", self.ended.clone());
        let mut time = |name: &'static str, about: &'static str, metric: &Histograms<ByEngine>| {
            registry.register_with_unit(name, about, Unit::Seconds, metric.clone());
        };
        time("job_wait", "Time until an Island first accepts a job", &self.wait);
        time("job_first_output", "Time until a job delivers its first output", &self.first_output);
        time("job_duration", "Time from the acceptance of a job to its end", &self.life);
        let about = "Tokens of a completed reply by the time for which its last attempt ran";
        registry.register("reply_tokens_per_second", about, self.speed.clone());
        registry.register("assignments_refused", "Assignments that no Island took", self.refused.clone());
        registry.register(
            "attempts_lost",
            "Attempts that were taken away from their Island",
            self.lost.clone(),
        );
        registry.register("leases_renewed", "Renewed leases", self.renewed.clone());
        let about = "Renewals of attempts that are not current";
        registry.register("leases_not_renewed", about, self.not_renewed.clone());
        let about = "Messages about attempts that are not current";
        registry.register("stale_messages", about, self.stale.clone());
        registry.register("jobs_deleted", "Jobs whose data was deleted after its time", self.deleted.clone());
    }

    /// A new job is stored.
    pub fn accepted(&self, cargo: &Slug) {
        self.accepted.get_or_create(&ByCargo { cargo: cargo.to_string() }).inc();
    }

    /// An Island accepted a job for the first time, this long after the job was accepted.
    pub fn placed(&self, engine: &str, wait: Duration) {
        self.wait.get_or_create(&by_engine(engine)).observe(wait.as_secs_f64());
    }

    /// A job delivered output for the first time, this long after it was accepted.
    pub fn delivered(&self, engine: &str, wait: Duration) {
        self.first_output.get_or_create(&by_engine(engine)).observe(wait.as_secs_f64());
    }

    /// The end of a job is committed.
    pub fn ended(&self, end: &Ended<'_>) {
        let reason = end.reason.unwrap_or_default().to_owned();
        let labels = End { cargo: end.cargo.to_string(), state: end.status.as_str(), reason };
        self.ended.get_or_create(&labels).inc();
        self.life.get_or_create(&by_engine(end.engine)).observe(end.life.as_secs_f64());
        if let Some((tokens, ran)) = end.reply.filter(|(tokens, ran)| *tokens > 0 && !ran.is_zero()) {
            self.speed.get_or_create(&by_engine(end.engine)).observe(tokens as f64 / ran.as_secs_f64());
        }
    }

    /// An Island refused an assignment, with `None` if it gave no reason.
    pub fn refused(&self, reason: Option<RefusalReason>) {
        let reason = serde_json::to_value(reason.unwrap_or(RefusalReason::Other)).unwrap_or_default();
        self.count_refused(reason.as_str().unwrap_or("other"));
    }

    /// An Island did not reply to an assignment.
    pub fn unanswered(&self) {
        self.count_refused("no_reply");
    }

    fn count_refused(&self, reason: &str) {
        self.refused.get_or_create(&ByReason { reason: reason.to_owned() }).inc();
    }

    /// An attempt was taken away from its Island.
    pub fn lost(&self, loss: Loss) {
        self.lost.get_or_create(&ByReason { reason: <&str>::from(loss).to_owned() }).inc();
    }

    /// An Island requested a renewal.
    pub fn renewed(&self, is_held: bool) {
        if is_held {
            self.renewed.inc()
        } else {
            self.not_renewed.inc()
        };
    }

    /// A message was about an attempt that is not current.
    pub fn stale(&self) {
        self.stale.inc();
    }

    /// Data of this number of ended jobs was deleted: `inputs`, `outputs` or `events`.
    pub fn deleted(&self, data: &'static str, jobs: u64) {
        self.deleted.get_or_create(&Data { data }).inc_by(jobs);
    }
}

fn by_engine(engine: &str) -> ByEngine {
    ByEngine { engine: engine.to_owned() }
}
