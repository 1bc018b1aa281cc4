//! `POST /batches`.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State, http::HeaderMap};
use island_protocol::{
    credits::MicroCredits,
    ids::{BatchId, FileId},
    time::Timestamp,
};
use island_protocol_api::{
    batch::{Batch, BatchStatus, CreateBatch, RequestCounts},
    file::Purpose,
    problem::Code,
};
use uuid::Uuid;

use super::{read, view};
use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed},
    },
    native::admin::{made_before, parse_made},
    openai::{files, openai_form::OpenAiForm},
};
use island_coordinator_domain::batch::window_ms;
use island_coordinator_storage::{
    batch::{self, StoredBatch},
    commit,
    file::{self, NewFile},
    idempotency::BATCHES,
};

/// Limits of the texts of a client, as in OpenAI's API.
const MAX_METADATA: usize = 16;
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 512;
/// Time for which the input is kept after the window, in which the batch ends.
const INPUT_MARGIN_MS: i64 = 24 * 3_600_000;

type Answer = (Replayed, Json<Batch>);

/// Creates a batch, whose input is validated afterwards.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    headers: HeaderMap,
    body: Result<body::Json, ApiError>,
) -> Result<Answer, ApiError> {
    let created = async {
        let body::Json(fields) = body?;
        let key = IdempotencyKey::read(&headers, BATCHES, &fields)?;
        accept(&api, &caller, key, fields.parse()?).await
    };
    created.await.map_err(ApiError::in_openai_form)
}

async fn accept(
    api: &Arc<Api>,
    caller: &Caller,
    key: Option<IdempotencyKey>,
    request: CreateBatch,
) -> Result<Answer, ApiError> {
    let now = api.clock.now();
    check_metadata(request.metadata.as_ref())?;
    let new = new_batch(caller, request, now)?;
    let mut tx = api.store.begin_locked([caller.account]).await?;
    let made = new.id.to_string();
    if let Some(made) = made_before(api, &mut tx, key.as_ref(), caller.account, &made, now).await? {
        // The batch may be in the same commit group; it can be read after that is on disk.
        commit(tx).await?;
        let batch = read(api, caller.account, parse_made(&made)?).await?;
        return Ok((Replayed(true), Json(view(batch))));
    }
    let until = new.expires_at.plus_ms(INPUT_MARGIN_MS);
    if !file::keep_until(&mut tx, new.input, caller.account, Purpose::Batch, until).await? {
        let message = "there is no such file with the purpose batch";
        return Err(ApiError::field(Code::FileNotFound, "input_file_id", message));
    }
    let limit = u64::from(api.rules.batches.per_account);
    if batch::open_of(&mut tx, caller.account).await? >= limit {
        let message = format!("{limit} batches of this account have not ended");
        return Err(ApiError::new(Code::TooManyBatches, message));
    }
    for (id, kind) in [(new.output, "output"), (new.failures, "errors")] {
        let Some(id) = id else { continue };
        let filename = format!("{}_{kind}.jsonl", island_coordinator_domain::batch::format_id(new.id));
        let file = NewFile {
            id,
            account: caller.account,
            filename: &filename,
            purpose: Purpose::BatchOutput,
            created_at: now,
            abandoned_at: None,
        };
        file::insert(&mut tx, &file).await?;
    }
    batch::insert(&mut tx, &new).await?;
    commit(tx).await?;
    api.batches_changed.notify_one();
    Ok((Replayed(false), Json(view(new))))
}

fn new_batch(caller: &Caller, request: CreateBatch, now: Timestamp) -> Result<StoredBatch, ApiError> {
    let CreateBatch { input_file_id, endpoint, completion_window, metadata, max_credits } = request;
    let window = window_ms(&completion_window).ok_or_else(|| {
        let message = "completion_window must be a number of hours or days, such as 24h, from 1h to 7d";
        ApiError::field(Code::ValidationError, "completion_window", message)
    })?;
    let input = files::parse_id(&input_file_id)
        .ok_or_else(|| ApiError::field(Code::FileNotFound, "input_file_id", "there is no such file"))?;
    Ok(StoredBatch {
        id: BatchId(Uuid::now_v7()),
        account: caller.account,
        key: caller.key,
        endpoint,
        input,
        output: Some(FileId(Uuid::now_v7())),
        failures: Some(FileId(Uuid::now_v7())),
        window: completion_window,
        metadata,
        max_credits,
        spent: MicroCredits::ZERO,
        status: BatchStatus::Validating,
        counts: RequestCounts::default(),
        errors: None,
        created_at: now,
        expires_at: now.plus_ms(window),
        in_progress_at: None,
        finalizing_at: None,
        cancelling_at: None,
        ended_at: None,
    })
}

fn check_metadata(metadata: Option<&BTreeMap<String, String>>) -> Result<(), ApiError> {
    let Some(metadata) = metadata else { return Ok(()) };
    let is_good = metadata.len() <= MAX_METADATA
        && metadata
            .iter()
            .all(|(name, value)| name.chars().count() <= MAX_NAME && value.chars().count() <= MAX_VALUE);
    if is_good {
        return Ok(());
    }
    let message =
        format!("metadata may have {MAX_METADATA} texts of {MAX_VALUE} characters, with names of {MAX_NAME}");
    Err(ApiError::field(Code::ValidationError, "metadata", message))
}
