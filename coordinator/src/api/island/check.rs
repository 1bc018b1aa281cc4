//! `POST /island/check`: one real job on the Island that asks, so that its owner sees whether it works.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use island_protocol::{
    api::{CheckIsland, CheckStep, Data, IslandCheck, JobError, check_claim},
    cargo::RuntimeType,
    event::JobEvent,
    ids::{AccountId, HostId},
    job::FailureCode,
    problem::Code,
};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::signer;
use crate::{
    api::{
        Api, ApiError, body,
        jobs::{
            follow::{CancelOnDrop, Follower},
            submit::{OnDisconnect, new_job, stopping},
        },
    },
    catalogue::Cargo,
    placement,
    storage::{self, StoreError, job as jobs},
};

/// How long the job may take, its model's loading included.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two checks of an Island.
const EVERY_MS: i64 = 60_000;

/// Runs the smallest job that the Island can run, there alone, and says how far it came. It costs nothing and earns nothing.
pub(in crate::api) async fn check(
    State(api): State<Arc<Api>>,
    body::Json(fields): body::Json,
) -> Result<Json<Data<IslandCheck>>, ApiError> {
    let wish: CheckIsland = fields.into_type()?;
    let claim = check_claim(wish.host_id, wish.sent_at);
    let (account, _) = signer(&api, wish.host_id, &claim, wish.sent_at, &wish.signature).await?;
    if api.soft.is_cancelled() {
        return Err(stopping());
    }
    let data = match choose(&api, wish.host_id) {
        Ok(cargo) => run(&api, wish.host_id, account, cargo).await?,
        Err(reason) => not_placed(None, reason),
    };
    Ok(Json(Data { data }))
}

fn choose(api: &Api, host: HostId) -> Result<&Cargo, &'static str> {
    let context = api.owner.context();
    let cargos = context.catalogue.iter().map(|cargo| cargo.spec.as_ref());
    let chosen = context.fleet.consider(host, Instant::now(), |island| placement::quickest(cargos, island));
    match chosen {
        None => Err("the coordinator never heard from it"),
        Some(Err(None)) => Err("no_model_near"),
        Some(Err(Some(reason))) => Err(reason.as_str()),
        Some(Ok(spec)) => context.catalogue.get(spec.slug.as_str()).ok_or("no_model_near"),
    }
}

async fn run(api: &Api, host: HostId, account: AccountId, cargo: &Cargo) -> Result<IslandCheck, ApiError> {
    let Some(Value::Object(input)) = cargo.example.get("input").cloned() else {
        return Err(ApiError::internal(NoExample));
    };
    let mut job = new_job(api, account, cargo, input, 0);
    job.only = Some(host);
    job.price = island_protocol::credits::MicroCredits::ZERO;
    let begun = Instant::now();
    let (id, since) = (job.id, job.created_at.plus_ms(-EVERY_MS));
    let new = api.owner.prepare(job, &cargo.spec);
    if !new.is_placed() {
        return Ok(not_placed(Some(cargo), "its last place was taken meanwhile"));
    }
    let owner = api.owner.clone();
    let accepted = api.owner.shielded(async move {
        let context = owner.context();
        let is_stored = jobs::accept_check(&context.store, &new.job, context.instance, since).await?;
        // Dropped, for lack of time or because the Island has disconnected, it cancels the job.
        Ok::<_, StoreError>(is_stored.then(|| CancelOnDrop::new(new.adopt(), OnDisconnect::Cancel)))
    });
    let Some(guard) = accepted.await.ok_or_else(stopping)?? else {
        let message = "this Island was checked less than a minute ago";
        return Err(ApiError::new(Code::RateLimited, message).after(EVERY_MS as u64 / 1000));
    };
    let mut check = IslandCheck {
        passed: false,
        workload_slug: Some(cargo.entry.slug.clone()),
        job_id: Some(id),
        steps: Vec::new(),
        tokens_per_second: None,
        error: None,
    };
    let mut follower = Follower::new(guard);
    let mut watch = Watch { begun, check: &mut check, tokens: None };
    loop {
        let Ok(entry) = timeout_at(begun + PATIENCE, follower.next()).await else {
            let message = format!("it had not ended after {} s", PATIENCE.as_secs());
            watch.failed(FailureCode::DeadlineExceeded.as_str(), message);
            break;
        };
        if watch.saw(&entry?.event.event) {
            break;
        }
    }
    if cargo.spec.runtime_type != RuntimeType::Llmcpp {
        // What a program prints are no tokens of a model.
        check.tokens_per_second = None;
    }
    if let Some(speed) = check.tokens_per_second {
        remember(api, host, speed).await?;
    }
    Ok(check)
}

/// Keeps the speed that placement goes by: seen from here, and not claimed.
async fn remember(api: &Api, host: HostId, speed: f64) -> Result<(), ApiError> {
    let context = api.owner.context();
    let mut tx = context.store.begin().await?;
    storage::host::measured(&mut tx, host, speed, context.clock.now()).await?;
    storage::commit(tx).await?;
    context.fleet.measured(host, speed);
    Ok(())
}

/// What is seen of a check's job.
struct Watch<'a> {
    begun: Instant,
    check: &'a mut IslandCheck,
    /// When its first and its newest text came.
    tokens: Option<(Instant, Instant)>,
}

impl Watch<'_> {
    /// Takes an event; true: it was the last.
    fn saw(&mut self, event: &JobEvent) -> bool {
        let now = Instant::now();
        match event {
            JobEvent::Status { state } => self.step(state),
            JobEvent::Progress { phase, .. } => self.step(phase.as_deref().unwrap_or("progress")),
            JobEvent::Image(_) => self.step("output"),
            JobEvent::Token { .. } => {
                self.step("output");
                self.tokens = Some((self.tokens.map_or(now, |(first, _)| first), now));
            }
            JobEvent::Done { usage, .. } => {
                self.step("completed");
                self.check.passed = true;
                self.check.tokens_per_second = self.speed(usage.completion_tokens);
            }
            JobEvent::Error { error, code } => self.failed(code, error.clone()),
        }
        event.is_last()
    }

    /// Notes what happens for the first time.
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
        let (first, last) = self.tokens?;
        let seconds = (last - first).as_secs_f64();
        (tokens > 1 && seconds > 0.0).then(|| (tokens - 1) as f64 / seconds)
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
        error: Some(JobError { code, message: reason.to_owned() }),
    }
}

/// Every Cargo has an example, which was checked when the catalogue was read.
#[derive(Debug, thiserror::Error)]
#[error("the Cargo has no example input")]
struct NoExample;
