//! One request of a batch, made in this process by the handler of its endpoint.

use std::{sync::Arc, time::Duration};

use axum::{Json, body::to_bytes, extract::State, http::HeaderMap, response::Response};
use island_protocol::ids::{AccountId, BatchId};
use island_protocol_api::{batch::BatchEndpoint, problem::Code};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    Api, ApiError,
    anthropic::messages,
    http::{auth::Caller, body, idempotency::IdempotencyKey},
    openai::{chat, embeddings, responses},
};
use island_coordinator_domain::batch::{
    Verdict,
    line::{self, Line},
    pause_ms, verdict,
};
use island_coordinator_storage::{
    batch::{LineResult, ResultKind},
    idempotency::{self, CHAT, COMPLETIONS, Claim, EMBEDDINGS, MESSAGES, RESPONSES},
    key::{self, KeyHolder},
};

/// What a request of a batch is made with.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub api: Arc<Api>,
    pub batch: BatchId,
    pub account: AccountId,
    pub endpoint: BatchEndpoint,
    /// Permits of the account's requests that run at one time.
    pub requests: Arc<Semaphore>,
    /// Triggered when the batch is to end: no request is made again.
    pub closing: CancellationToken,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Made {
    /// It has a result.
    Ended(LineResult),
    /// It may cost more than the batch has left.
    Capped(Line),
    /// The batch is to end before it has a result.
    Closed,
}

/// The name under which the idempotency keys of an endpoint are stored.
pub(super) fn route(endpoint: BatchEndpoint) -> &'static str {
    match endpoint {
        BatchEndpoint::Chat => CHAT,
        BatchEndpoint::Completions => COMPLETIONS,
        BatchEndpoint::Embeddings => EMBEDDINGS,
        BatchEndpoint::Responses => RESPONSES,
        BatchEndpoint::Messages => MESSAGES,
    }
}

/// Makes a request until it has a result. Its idempotency key is that of its line, so one that was made by an earlier
/// coordinator is answered with its result.
pub(super) async fn make(terms: Terms, holder: KeyHolder, line: Line) -> Made {
    let mut tries = 0;
    loop {
        let permit = tokio::select! {
            biased;
            () = terms.closing.cancelled() => return Made::Closed,
            permit = terms.requests.acquire() => permit,
        };
        let answered = terms.try_once(&holder, &line).await;
        drop(permit);
        let error = match answered {
            Ok(body) => {
                let text = line::answered(terms.batch, line.number, &line.custom_id, 200, &body);
                return Made::Ended(LineResult { number: line.number, text, kind: ResultKind::Completed });
            }
            Err(error) => error,
        };
        match error.verdict {
            // Its job was cancelled because the batch is to end.
            Verdict::Final if terms.closing.is_cancelled() && error.error.code() == Code::JobFailed => {
                return Made::Closed;
            }
            Verdict::Final => return Made::Ended(failed(terms.batch, &line, &error.error)),
            Verdict::Capped => return Made::Capped(line),
            Verdict::Later => {}
        }
        let pause = Duration::from_millis(pause_ms(tries, terms.api.rules.batches.retry_ms));
        tries += 1;
        tokio::select! {
            biased;
            () = terms.closing.cancelled() => return Made::Closed,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The result of a request that was refused because of this error.
pub(super) fn failed(batch: BatchId, line: &Line, error: &ApiError) -> LineResult {
    let status = error.code().status();
    let text = line::answered(batch, line.number, &line.custom_id, status, &error.json());
    LineResult { number: line.number, text, kind: ResultKind::Failed }
}

/// Why a try has no answer, and what follows.
struct Unanswered {
    error: ApiError,
    verdict: Verdict,
}

impl From<ApiError> for Unanswered {
    fn from(error: ApiError) -> Self {
        Self { verdict: verdict(error.code()), error }
    }
}

impl Terms {
    async fn try_once(&self, holder: &KeyHolder, line: &Line) -> Result<Value, Unanswered> {
        let key = line::idempotency_key(self.batch, line.number);
        let claim = Claim {
            account: self.account,
            route: route(self.endpoint),
            key: &key,
            fingerprint: "",
            life_ms: self.api.rules.idempotency_ms,
        };
        let store = &self.api.store;
        let has_job = idempotency::exists(store.reader(), &claim).await.map_err(ApiError::from)?;
        // The account may have been suspended, or got quotas, while the request waited. What has begun goes on.
        let current = key::holder_of(store.reader(), holder.key).await.map_err(ApiError::from)?;
        let holder = current.as_ref().unwrap_or(holder);
        if holder.suspended && !has_job {
            return Err(ApiError::new(Code::AccountSuspended, "this account is suspended").into());
        }
        let caller = Caller::of_batch(holder, self.batch);
        let answered = self.call(caller, IdempotencyKey::headers(&key), line.body.clone()).await;
        answered.map_err(|error| {
            // A job that has ended so is not run again under its key, and another key could pay for two.
            let is_end = has_job && error.code() == Code::NoIslandAvailable;
            let verdict = if is_end { Verdict::Final } else { verdict(error.code()) };
            Unanswered { error, verdict }
        })
    }

    /// Passes the body to the handler of the endpoint.
    async fn call(
        &self,
        caller: Caller,
        headers: HeaderMap,
        body: Map<String, Value>,
    ) -> Result<Value, ApiError> {
        let keyed = Ok(body::Keyed { caller, fields: body.into() });
        let api = State(self.api.clone());
        let answer = match self.endpoint {
            BatchEndpoint::Embeddings => {
                let Json(embeddings) = embeddings::create(api, headers, keyed).await?;
                return serde_json::to_value(embeddings).map_err(ApiError::internal);
            }
            BatchEndpoint::Chat => chat::complete(api, headers, keyed).await?,
            BatchEndpoint::Completions => chat::continue_text(api, headers, keyed).await?,
            BatchEndpoint::Responses => responses::create(api, headers, keyed).await?,
            BatchEndpoint::Messages => messages::create(api, headers, keyed).await?,
        };
        json(answer).await
    }
}

/// The body of an answer.
async fn json(answer: Response) -> Result<Value, ApiError> {
    let bytes = to_bytes(answer.into_body(), usize::MAX).await.map_err(ApiError::internal)?;
    serde_json::from_slice(&bytes).map_err(ApiError::internal)
}
