//! `/files`: inputs and results of batches.

mod upload;

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::{Stream, TryStreamExt as _, stream};
use island_protocol::ids::{AccountId, FileId};
use island_protocol_api::{
    file::{DeletedFile, File, FileList, PREFIX, Purpose},
    problem::Code,
};

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query, segment::Segment},
    openai::openai_form::OpenAiForm,
};
use island_coordinator_storage::{
    Pool, StoreError, batch, commit,
    file::{self, Listing, StoredFile},
};
pub(crate) use upload::create;

/// Maximum files of a page, as in OpenAI's API.
const MAX_PAGE: u64 = 10_000;

pub(crate) fn unknown() -> ApiError {
    ApiError::new(Code::FileNotFound, "there is no such file; it may have been deleted")
}

/// The id of a file as clients see it.
pub(crate) fn id_of(id: FileId) -> String {
    format!("{PREFIX}{id}")
}

/// The inverse of [`id_of`].
pub(crate) fn parse_id(text: &str) -> Option<FileId> {
    text.strip_prefix(PREFIX)?.parse().ok()
}

/// A file as clients see it.
fn view(file: StoredFile) -> File {
    File {
        id: id_of(file.id),
        object: "file".to_owned(),
        bytes: file.bytes,
        created_at: file.created_at.unix_ms().div_euclid(1000),
        expires_at: file.expires_at.map(|end| end.unix_ms().div_euclid(1000)),
        filename: file.filename,
        purpose: file.purpose,
        status: "processed".to_owned(),
    }
}

/// The file of an account that a path names.
async fn own(api: &Api, account: AccountId, Segment(id): &Segment) -> Result<StoredFile, ApiError> {
    let id = parse_id(id).ok_or_else(unknown)?;
    file::get(api.store.reader(), id, account).await?.ok_or_else(unknown)
}

/// A page of the account's files.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    OpenAiForm(query): OpenAiForm<Query>,
) -> Result<Json<FileList>, ApiError> {
    page(&api, caller.account, &query).await.map(Json).map_err(ApiError::in_openai_form)
}

async fn page(api: &Api, account: AccountId, query: &Query) -> Result<FileList, ApiError> {
    let limit = query.limit(MAX_PAGE, MAX_PAGE)?;
    let purpose = query.get("purpose").map(str::parse::<Purpose>).transpose().map_err(|_| {
        ApiError::field(Code::ValidationError, "purpose", "purpose must be batch or batch_output")
    })?;
    let oldest_first = query.is_oldest_first()?;
    let after = query.get("after").map(|id| parse_id(id).ok_or_else(unknown)).transpose()?;
    // One more shows whether others follow.
    let listing = Listing { account, purpose, after, oldest_first, limit: limit + 1 };
    let mut files = file::list(api.store.reader(), &listing).await?;
    let has_more = files.len() as u64 > limit;
    files.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let data: Vec<File> = files.into_iter().map(view).collect();
    let (first_id, last_id) =
        (data.first().map(|file| file.id.clone()), data.last().map(|file| file.id.clone()));
    Ok(FileList { object: "list".to_owned(), data, first_id, last_id, has_more })
}

/// A file without its content.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    id: Segment,
) -> Result<Json<File>, ApiError> {
    let found = own(&api, caller.account, &id).await;
    found.map(|file| Json(view(file))).map_err(ApiError::in_openai_form)
}

/// The content of a file.
pub(crate) async fn content(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    id: Segment,
) -> Result<Response, ApiError> {
    let file = own(&api, caller.account, &id).await.map_err(ApiError::in_openai_form)?;
    let headers =
        [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, file.bytes.to_string())];
    let pieces = pieces(api.store.reader().clone(), file.id);
    // A file that is deleted meanwhile ends before its length, so a client notices.
    let body = Body::from_stream(pieces.map_ok(|(_, text)| Bytes::from(text)));
    Ok((headers, body).into_response())
}

/// The pieces of a file in order, read as they are needed.
pub(crate) fn pieces(pool: Pool, id: FileId) -> impl Stream<Item = Result<(u64, String), StoreError>> {
    let groups = stream::try_unfold((pool, None), move |(pool, after)| async move {
        let group = file::pieces(&pool, id, after).await?;
        let last = group.last().map(|(n, _)| *n);
        Ok(last.map(|last| (stream::iter(group.into_iter().map(Ok)), (pool, Some(last)))))
    });
    groups.try_flatten()
}

/// Deletes a file.
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    id: Segment,
) -> Result<Json<DeletedFile>, ApiError> {
    let deleted = async {
        let file = own(&api, caller.account, &id).await?;
        // Batches are created under the same lock.
        let mut tx = api.store.begin_locked([caller.account]).await?;
        if let Some(batch) = batch::open_with_input(&mut tx, file.id).await? {
            let batch = island_coordinator_domain::batch::format_id(batch);
            let message = format!("the file is the input of the batch {batch}, which has not ended");
            return Err(ApiError::new(Code::FileInUse, message));
        }
        file::delete(&mut tx, file.id).await?;
        commit(tx).await?;
        Ok(Json(DeletedFile { id: id_of(file.id), object: "file".to_owned(), deleted: true }))
    };
    deleted.await.map_err(ApiError::in_openai_form)
}
