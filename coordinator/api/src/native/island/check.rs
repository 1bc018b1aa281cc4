//! `POST /island/check`: runs a real job on the requesting Island, so that its owner learns whether it works.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use island_daemon::traces::Kind;
use island_protocol::{
    cargo::Category,
    event::JobEvent,
    host::CPU,
    ids::{AccountId, HostId},
    job::FailureCode,
};
use island_protocol_api::{
    CheckStep, Data, IslandCheck, JobError,
    claim::{ClaimVerb, IslandRequest},
    problem::Code,
};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::signer;
use crate::{
    Api, ApiError,
    http::{body, observe},
    native::jobs::{
        follow::{CancelOnDrop, Followed, Follower},
        submit::{OnDisconnect, new_job, stopping, too_many_inputs},
    },
};
use island_coordinator_domain::{catalogue::Cargo, job::input::JobInput, placement};
use island_coordinator_storage as storage;
use island_coordinator_storage::{StoreError, jobs};

/// Time between two checks of an Island.
const INTERVAL_MS: i64 = 60_000;

/// The limits of one job of a check.
#[derive(Debug, Clone, Copy)]
struct JobLimits {
    /// Maximum time of the job.
    time: Duration,
    /// Time since the last job of a check of this Island, at least.
    interval_ms: i64,
}

/// The first job, which includes loading its model.
const FIRST: JobLimits = JobLimits { time: Duration::from_mins(1), interval_ms: INTERVAL_MS };
/// The second one follows at once, and its model is loaded.
const SECOND: JobLimits = JobLimits { time: Duration::from_secs(20), interval_ms: 0 };

/// Runs the smallest job that the Island can run, on that Island only, and reports its progress. It costs and earns
/// nothing. A language model runs it twice, to measure its speed.
pub(crate) async fn check(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<IslandCheck>>, ApiError> {
    let request: IslandRequest = fields.parse()?;
    let (account, _) = signer(&api, &request, ClaimVerb::Check).await?;
    if api.stops.http.is_cancelled() {
        return Err(stopping());
    }
    let since = api.clock.now().plus_ms(-INTERVAL_MS);
    // Before anything is searched, claimed or written.
    if jobs::was_checked(api.store.reader(), request.host_id, since).await? {
        return Err(checked_recently());
    }
    let data = match choose(&api, request.host_id) {
        Ok(cargo) => run(&api, request.host_id, account, &cargo).await?,
        Err(reason) => not_placed(None, reason),
    };
    Ok(Json(Data { data }))
}

fn checked_recently() -> ApiError {
    let message = "this Island was checked less than a minute ago";
    ApiError::new(Code::RateLimited, message).after(INTERVAL_MS as u64 / 1000)
}

/// Only of the operators' Cargos: a publisher's could give an Island a speed of its choice.
fn choose(api: &Api, host: HostId) -> Result<Arc<Cargo>, &'static str> {
    let catalogue = api.catalogue();
    // Models that chat only by name are for tests, and too small to show a speed.
    let suits = |cargo: &&Arc<Cargo>| !cargo.is_chat() || cargo.entry.category == Some(Category::Llm);
    let cargos = catalogue.own().filter(suits).map(|cargo| cargo.spec.as_ref());
    let chosen = api.fleet.consider(host, Instant::now(), |island| placement::quickest(cargos, island));
    match chosen {
        None => Err("the Island has not registered"),
        Some(Err(None)) => Err("no_model_near"),
        Some(Err(Some(reason))) => Err(reason.as_str()),
        Some(Ok(spec)) => catalogue.get(spec.slug.as_str()).cloned().ok_or("no_model_near"),
    }
}

/// Runs the job. A language model runs it twice, because speed is measured from the beginning of a job to its end as
/// this coordinator sees them: an Island that reports when it loads and when it computes could choose its speed.
async fn run(
    api: &Api,
    host: HostId,
    account: AccountId,
    cargo: &Arc<Cargo>,
) -> Result<IslandCheck, ApiError> {
    let mut check = run_once(api, host, account, cargo, FIRST).await?;
    if !check.passed || !placement::generates_text(&cargo.spec) {
        // A program's output has no tokens of a model.
        check.tokens_per_second = None;
        return Ok(check);
    }
    // The check has passed, whatever becomes of the second job.
    let second = run_once(api, host, account, cargo, SECOND).await.ok();
    check.tokens_per_second = second.and_then(|second| second.tokens_per_second);
    if let Some(speed) =
        check.tokens_per_second.filter(|_| is_usual(api, host, cargo, check.device.as_deref()))
    {
        store_speed(api, host, speed).await?;
    }
    Ok(check)
}

async fn run_once(
    api: &Api,
    host: HostId,
    account: AccountId,
    cargo: &Arc<Cargo>,
    limits: JobLimits,
) -> Result<IslandCheck, ApiError> {
    let fields = varied(cargo)?;
    let mut job = new_job(api, account, cargo, &fields, JobInput::new(&fields), 0)?;
    job.only = Some(host);
    job.price = island_protocol::credits::MicroCredits::ZERO;
    let begun = Instant::now();
    let (id, since) = (job.id, job.created_at.plus_ms(-limits.interval_ms));
    let trace = api.traces.begin("job", Kind::Internal, observe::trace());
    let new = api.execution.prepare(job, cargo, None, trace).ok_or_else(too_many_inputs)?;
    if !new.is_placed() {
        return Ok(not_placed(Some(cargo), "its last free slot was taken meanwhile"));
    }
    let (execution, store, instance) = (api.execution.clone(), api.store.clone(), api.instance);
    let accepted = api.execution.shielded(async move {
        let is_stored = jobs::accept_check(&store, &new.job, instance, since).await?;
        // Dropped after the timeout or when the Island disconnects, it cancels the job.
        let guarded = || CancelOnDrop::new(execution.clone(), new.start(), OnDisconnect::Cancel);
        Ok::<_, StoreError>(is_stored.then(guarded))
    });
    let Some(guard) = accepted.await.ok_or_else(stopping)?? else {
        return Err(checked_recently());
    };
    let mut check = IslandCheck {
        passed: false,
        workload_slug: Some(cargo.entry.slug.clone()),
        job_id: Some(id),
        steps: Vec::new(),
        tokens_per_second: None,
        device: None,
        error: None,
    };
    let mut follower = Follower::new(Followed::new(guard, &api.stops));
    let mut observer = CheckObserver { begun, check: &mut check };
    loop {
        let Ok(entry) = timeout_at(begun + limits.time, follower.next()).await else {
            let message = format!("it had not ended after {} s", limits.time.as_secs());
            observer.failed(FailureCode::DeadlineExceeded.as_str(), message);
            break;
        };
        if observer.record(&entry?.event.event) {
            break;
        }
    }
    Ok(check)
}

/// The Cargo's example, with a random number behind its text, so that the answer is not known beforehand.
fn varied(cargo: &Cargo) -> Result<Map<String, Value>, ApiError> {
    let Some(Value::Object(example)) = cargo.example.get("input").cloned() else {
        return Err(ApiError::internal(NoExample));
    };
    let mut input = example.clone();
    let text = match input.get_mut("messages") {
        Some(messages) => messages.as_array_mut().and_then(|all| all.last_mut()?.get_mut("content")),
        None => ["prompt", "text"]
            .into_iter()
            .find(|name| input.contains_key(*name))
            .and_then(|name| input.get_mut(name)),
    };
    if let Some(Value::String(text)) = text {
        *text = format!("{text} ({})", rand::random::<u16>());
    }
    // A Cargo may take certain texts only.
    let is_valid = cargo.check_input(&Value::Object(input.clone())).is_ok();
    Ok(if is_valid { input } else { example })
}

/// Whether the engine ran on the kind of device that it uses for jobs: on a GPU if it has one. Where other work has taken that GPU's memory, the
/// processor's speed is not the Island's.
fn is_usual(api: &Api, host: HostId, cargo: &Cargo, device: Option<&str>) -> bool {
    let has_gpu = api.fleet.inspect(host, |island| {
        island.is_some_and(|island| placement::has_gpu(&cargo.spec, island.capabilities))
    });
    let ran_on_cpu = device.is_some_and(|device| device.starts_with(CPU));
    !(ran_on_cpu && cargo.spec.required_vram_mb > 0 && has_gpu.unwrap_or(false))
}

/// Stores the speed that placement uses; it is measured here, not reported by the Island.
async fn store_speed(api: &Api, host: HostId, speed: f64) -> Result<(), ApiError> {
    let mut tx = api.store.begin().await?;
    storage::host::measured(&mut tx, host, speed, api.clock.now()).await?;
    storage::commit(tx).await?;
    api.fleet.set_speed(host, speed);
    Ok(())
}

/// Observes the job of a check.
struct CheckObserver<'a> {
    begun: Instant,
    check: &'a mut IslandCheck,
}

impl CheckObserver<'_> {
    /// Records an event. Returns `true` for the last one.
    fn record(&mut self, event: &JobEvent) -> bool {
        match event {
            JobEvent::Status { state, .. } => self.step(state),
            JobEvent::Progress { phase, .. } => self.step(phase.as_deref().unwrap_or("progress")),
            JobEvent::Image(_) | JobEvent::Token { .. } => self.step("output"),
            JobEvent::Done { usage, .. } => {
                self.step("completed");
                self.check.passed = true;
                self.check.tokens_per_second = self.speed(usage.completion_tokens);
                self.check.device.clone_from(&usage.device);
            }
            JobEvent::Error { error, code } => self.failed(code, error.clone()),
        }
        event.is_last()
    }

    /// Records the first occurrence of a step.
    fn step(&mut self, name: &str) {
        if !self.check.steps.iter().any(|step| step.name == name) {
            let after_ms = self.begun.elapsed().as_millis() as u64;
            self.check.steps.push(CheckStep { name: name.to_owned(), after_ms });
        }
    }

    fn failed(&mut self, code: &str, message: String) {
        self.step("failed");
        self.check.error = Some(JobError { code: code.to_owned(), message });
    }

    fn speed(&self, tokens: u64) -> Option<f64> {
        let seconds = self.begun.elapsed().as_secs_f64();
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    }
}

fn not_placed(cargo: Option<&Cargo>, reason: &str) -> IslandCheck {
    let code = FailureCode::NoIslandAvailable.as_str().to_owned();
    IslandCheck {
        passed: false,
        workload_slug: cargo.map(|cargo| cargo.entry.slug.clone()),
        job_id: None,
        steps: Vec::new(),
        tokens_per_second: None,
        device: None,
        error: Some(JobError { code, message: reason.to_owned() }),
    }
}

/// A bug: every Cargo has an example, which is checked when the catalogue is loaded.
#[derive(Debug, thiserror::Error)]
#[error("the Cargo has no example input")]
struct NoExample;
