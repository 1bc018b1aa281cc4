//! `POST /jobs`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use island_daemon::traces::Kind;
use island_protocol::{
    cargo::CargoEntry,
    credits::MicroCredits,
    ids::{AccountId, JobId},
    job::JobStatus,
    time::Timestamp,
};
use island_protocol_api::{Data, SubmitJob, SubmittedJob, preferences::Preferences, problem::Code};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    Api, ApiError, MAX_INPUT,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed, reused},
        observe,
    },
    native::{availability::other_quantization, jobs::follow::CancelOnDrop},
};
use island_coordinator_domain::{
    catalogue::{Cargo, cargo::SchemaViolation, units},
    fleet::Candidates,
    job::{Agreement, Job, conversation, input::JobInput},
};
use island_coordinator_execution::network::NotAccepted;
use island_coordinator_storage::{
    StoreError,
    idempotency::JOBS,
    jobs::{self, AcceptError, Accepted, Terms},
    quota::Refused,
};

/// Accepts a job. The answer is sent after the job and its hold are committed.
pub(crate) async fn submit(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body::Keyed { caller, fields }: body::Keyed,
) -> Result<(StatusCode, Replayed, Json<Data<SubmittedJob>>), ApiError> {
    let fields = fields.preferring()?;
    let key = IdempotencyKey::read(&headers, JOBS, &fields)?;
    let SubmitJob { workload, input, priority, preferences } = fields.parse()?;
    let catalogue = api.catalogue();
    let cargo = catalogue.named(&workload);
    let cargo = cargo.ok_or_else(|| ApiError::new(Code::WorkloadNotFound, "there is no such Cargo"))?;
    let messages = input.get("messages").and_then(Value::as_array).filter(|_| cargo.is_chat());
    let beginnings =
        messages.map(|messages| conversation::beginnings(caller.account, &cargo.entry.slug, messages));
    let request = Request {
        priority,
        preferences: preferences.unwrap_or_default(),
        key,
        conversation: beginnings.unwrap_or_default(),
        ..Request::new(input)
    };
    let accepted = accept(&api, caller, cargo, request).await?;
    let (job, replayed) = match accepted {
        Submission::New(_, job) => (job, false),
        Submission::Existing(job) => (job, true),
    };
    let data = SubmittedJob {
        id: job.id,
        workload_id: job.workload_id,
        workload_slug: job.workload,
        status: JobStatus::Submitted,
        input: job.input.fields(),
        created_at: job.created_at,
    };
    Ok((StatusCode::CREATED, Replayed(replayed), Json(Data { data })))
}

/// What happens to a job whose client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// It runs to its end: the client finds it in its list, or by its idempotency key.
    Run,
    /// It is cancelled, as no other client can read its answer.
    Cancel,
}

/// An accepted job.
#[derive(Debug)]
pub(crate) enum Submission {
    /// The job is new and runs here.
    New(CancelOnDrop, Job),
    /// An earlier, identical request created it.
    Existing(Job),
}

/// A request for a job.
#[derive(Debug)]
pub(crate) struct Request {
    pub input: Map<String, Value>,
    /// 0 to 100.
    pub priority: u8,
    pub preferences: Preferences,
    pub key: Option<IdempotencyKey>,
    pub on_disconnect: OnDisconnect,
    /// Identities of the conversation's beginnings, the whole one first.
    pub conversation: Vec<String>,
    /// What is kept of the request of a stored response.
    pub response: Option<String>,
    /// The Islands that could take the job moments ago, if that was asked.
    pub candidates: Option<Candidates>,
}

impl Request {
    /// A request for a job that runs to its end.
    pub(crate) fn new(input: Map<String, Value>) -> Self {
        Self {
            input,
            priority: 0,
            preferences: Preferences::default(),
            key: None,
            on_disconnect: OnDisconnect::Run,
            conversation: Vec::new(),
            response: None,
            candidates: None,
        }
    }

    /// A request whose client waits for the job.
    pub(crate) fn waiting(input: Map<String, Value>, key: Option<IdempotencyKey>) -> Self {
        Self { key, on_disconnect: OnDisconnect::Cancel, ..Self::new(input) }
    }
}

/// Checks an input against the Cargo's schema. That of an account is evaluated beside the threads that answer requests.
async fn check_input(
    api: &Api,
    account: AccountId,
    cargo: &Arc<Cargo>,
    input: Value,
) -> Result<(Value, Result<(), SchemaViolation>), ApiError> {
    if !cargo.is_bounded {
        let checked = cargo.check_input(&input);
        return Ok((input, checked));
    }
    let cargo = cargo.clone();
    let check = move || {
        let checked = cargo.check_input(&input);
        (input, checked)
    };
    api.evaluations.run(account, check).await
}

/// Checks the input, commits the job with its hold and starts its runner, unless an earlier, identical request did so.
/// A client that disconnects meanwhile does not interrupt this; `on_disconnect` decides what happens to its job
/// afterwards.
pub(crate) async fn accept(
    api: &Api,
    caller: Caller,
    cargo: &Arc<Cargo>,
    request: Request,
) -> Result<Submission, ApiError> {
    let Request { input, priority, preferences, key, on_disconnect, conversation, response, candidates } =
        request;
    api.network.accepts(&cargo.entry.slug).map_err(not_accepted)?;
    let (input, checked) = check_input(api, caller.account, cargo, Value::Object(input)).await?;
    checked.map_err(|violation| {
        let param = if violation.field.is_empty() {
            "input".to_owned()
        } else {
            format!("input.{}", violation.field)
        };
        ApiError::field(Code::InvalidInput, param, violation.message)
    })?;
    let encoded = input.as_object().map(JobInput::new);
    if encoded.as_ref().is_some_and(|encoded| encoded.as_str().len() > MAX_INPUT) {
        return Err(ApiError::field(
            Code::PayloadTooLarge,
            "input",
            format!("an input may have {MAX_INPUT} bytes"),
        ));
    }
    if api.stops.http.is_cancelled() {
        return Err(stopping());
    }
    let (Value::Object(fields), Some(input)) = (input, encoded) else {
        return Err(ApiError::new(Code::InvalidInput, "input must be an object"));
    };
    if !cargo.is_stored_as(&preferences.quantizations) {
        return Err(other_quantization());
    }
    let mut job = new_job(api, caller.account, cargo, &fields, input, priority)?;
    drop(fields);
    if let Some(most) = preferences.max_price.filter(|most| job.price > *most) {
        let message = format!("the job may cost {} credits, and the request allows {most}", job.price);
        return Err(ApiError::field(Code::ValidationError, "preferences.max_price", message));
    }
    job.agreement.preferences = preferences;
    job.agreement.batch = caller.batch;
    if !conversation.is_empty() {
        job.holder = api.store.counters().conversation(&conversation).await?;
        job.conversation = conversation.into_iter().next();
    }
    // A repeated request with the same key reads the result.
    job.cancel_unread = on_disconnect == OnDisconnect::Cancel && key.is_none();
    let trace = api.traces.begin("job", Kind::Internal, observe::trace());
    let new = api.execution.prepare(job.clone(), cargo, candidates.as_ref(), trace);
    let new = new.ok_or_else(too_many_inputs)?;
    let (execution, store) = (api.execution.clone(), api.store.clone());
    let (coordinator, limit) = (api.instance, api.rules.concurrent_jobs);
    // The record of a batch's line is valid as long as it exists, which is until the batch has ended.
    let life_ms = if caller.batch.is_some() { i64::MAX } else { api.rules.idempotency_ms };
    let accepted = api.execution.shielded(async move {
        let claim = key.as_ref().map(|key| key.claim(caller.account, life_ms));
        let (key, has_quotas) = (caller.key, caller.has_quotas);
        let response = response.as_deref();
        let terms = Terms { coordinator, key, has_quotas, limit, claim, response };
        let storing = new.trace.child("accept", Kind::Internal);
        let stored = jobs::accept(&store, &new.job, &terms).await;
        drop(storing);
        let stored = stored.map_err(|error| refused(error, new.job.created_at))?;
        match stored {
            Accepted::New => {
                let guard = CancelOnDrop::new(execution.clone(), new.start(), on_disconnect);
                Ok(Submission::New(guard, job))
            }
            Accepted::Existing(id) => {
                let existing = jobs::get(store.reader(), id).await?;
                existing.map(Submission::Existing).ok_or_else(|| StoreError::Corrupt { what: "made" }.into())
            }
        }
    });
    accepted.await.unwrap_or_else(|| Err(stopping()))
}

fn not_accepted(reason: NotAccepted) -> ApiError {
    let error = ApiError::new(reason.code(), reason.to_string());
    // Maintenance takes minutes at least.
    if matches!(reason, NotAccepted::Maintenance(_)) { error.after(60) } else { error }
}

/// The answer while the coordinator stops.
pub(crate) fn stopping() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "this coordinator is stopping; try again")
}

/// The answer while open jobs take all memory for inputs.
pub(crate) fn too_many_inputs() -> ApiError {
    ApiError::new(Code::ServiceUnavailable, "too many jobs are open in this network").after(5)
}

/// A new job of `account`, not yet stored. `input` is encoded from `fields`.
///
/// # Errors
/// The input has no price.
pub(crate) fn new_job(
    api: &Api,
    account: AccountId,
    cargo: &Cargo,
    fields: &Map<String, Value>,
    input: JobInput,
    priority: u8,
) -> Result<Job, ApiError> {
    let now = api.clock.now();
    let limits = &cargo.spec.limits;
    let requested = fields.get("max_tokens").and_then(Value::as_u64);
    let limit = Some(limits.max_tokens).filter(|limit| *limit > 0);
    let max_tokens = match (requested, limit) {
        (Some(requested), Some(limit)) => Some(requested.min(limit)),
        (requested, limit) => requested.or(limit),
    };
    let (price, agreement) = price(cargo, fields, &input, max_tokens)
        .map_err(|unreadable| ApiError::field(Code::InvalidInput, "audio", unreadable.to_string()))?;
    let agreement = Agreement { version: Some(cargo.version().to_owned()), ..agreement };
    let timeout_ms = i64::try_from(limits.timeout_s.saturating_mul(1000)).unwrap_or(i64::MAX / 4);
    let workload = (cargo.number, cargo.entry.slug.clone());
    let deadline = now.plus_ms(api.rules.max_wait_ms.saturating_add(timeout_ms));
    let new = Job::new(JobId(Uuid::now_v7()), account, workload, price, now);
    Ok(Job { input, priority, agreement, max_tokens, deadline, ..new })
}

/// The maximum cost of a job, and by what its cost is determined.
///
/// # Errors
/// The price is for the length of a sound that cannot be read.
fn price(
    cargo: &Cargo,
    fields: &Map<String, Value>,
    input: &JobInput,
    max_tokens: Option<u64>,
) -> Result<(MicroCredits, Agreement), units::Unreadable> {
    let CargoEntry { price_per_job, token_prices, .. } = &cargo.entry;
    if token_prices.is_zero() {
        return Ok((units::price(&cargo.entry, fields)?, Agreement::default()));
    }
    let context = Some(cargo.spec.limits.context_tokens).filter(|tokens| *tokens > 0).unwrap_or(u64::MAX);
    let most_input = input.tokens().max.min(context);
    let most_output = max_tokens.unwrap_or(u64::MAX).min(context);
    let tokens = token_prices.of(most_input, most_output);
    let agreement =
        Agreement { base_price: *price_per_job, token_prices: *token_prices, ..Agreement::default() };
    Ok((MicroCredits(price_per_job.0.saturating_add(tokens.0)), agreement))
}

fn refused(error: AcceptError, now: Timestamp) -> ApiError {
    let message = error.to_string();
    match error {
        AcceptError::InsufficientCredits { needed, available } => {
            ApiError::credits(message, needed, available)
        }
        AcceptError::Capped { needed, left, .. } => ApiError::credits(message, needed, left),
        AcceptError::BatchCapped { .. } => ApiError::new(Code::MaxCreditsExceeded, message),
        AcceptError::Revoked => ApiError::new(Code::InvalidApiKey, message),
        AcceptError::TooMany { .. } => ApiError::new(Code::ConcurrentJobsExceeded, message),
        AcceptError::Quota(Refused { exceeded, .. }) => {
            let seconds = (exceeded.resets_at.unix_ms() - now.unix_ms()).max(1).unsigned_abs().div_ceil(1000);
            let message = format!("{message} until {}", exceeded.resets_at);
            ApiError::new(Code::QuotaExceeded, message).after(seconds)
        }
        AcceptError::Reused => reused(),
        AcceptError::Store(error) => error.into(),
    }
}
