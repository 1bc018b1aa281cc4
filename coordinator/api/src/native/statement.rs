//! `GET /account/statement`.

use std::{error::Error, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse as _, Response},
};
use futures::stream;
use island_protocol::{ids::AccountId, time::Timestamp};
use island_protocol_api::{Data, problem::Code};

use crate::{
    Api, ApiError,
    http::{auth::Caller, csv, query::Query},
};
use island_coordinator_storage::{
    Store,
    statement::{self, Entry, Span},
};

const HEAD: [&str; 7] = ["time", "kind", "credits", "job", "cargo", "island", "device"];

/// What the account spent and earned in a span of time.
pub(crate) async fn own(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Response, ApiError> {
    answer(&api, caller.account, &query).await
}

/// The statement of an account: sums as JSON, or all entries as CSV.
pub(crate) async fn answer(api: &Api, account: AccountId, query: &Query) -> Result<Response, ApiError> {
    let now = api.clock.now();
    let from = time(query, "from")?.unwrap_or_else(|| now.month_begin());
    // The time that passes meanwhile belongs to the next statement.
    let until = time(query, "until")?.unwrap_or(now).min(now);
    if from > until {
        let message = "from must be before until, and not in the future";
        return Err(ApiError::field(Code::ValidationError, "from", message));
    }
    let span = Span { account, from, until };
    if csv::is_requested(query)? {
        return Ok((csv::headers(), body(api.store.clone(), span)).into_response());
    }
    let data = statement::sums(api.store.reader(), &span).await?;
    Ok(Json(Data { data }).into_response())
}

/// A time in the query.
pub(crate) fn time(query: &Query, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let parsed = serde_json::from_value(text.into());
    let message = || format!("{name} must be a time such as 2026-11-01T00:00:00Z");
    parsed.map(Some).map_err(|_| ApiError::field(Code::InvalidRequest, name, message()))
}

/// What is sent next.
enum Next {
    Head,
    After(Option<Entry>),
    End,
}

type BodyError = Box<dyn Error + Send + Sync>;

/// A page of entries at a time. If one cannot be read, the body ends early, as an error of the connection.
fn body(store: Store, span: Span) -> Body {
    let pages = stream::try_unfold((store, Next::Head), move |(store, next)| async move {
        let page = match next {
            Next::Head => {
                let head = csv::lines([HEAD.map(str::to_owned)])?;
                return Ok(Some((Bytes::from(head), (store, Next::After(None)))));
            }
            Next::After(entry) => statement::entries(store.reader(), &span, entry.as_ref()).await?,
            Next::End => return Ok(None),
        };
        let lines = csv::lines(page.iter().map(line))?;
        let next = page.into_iter().next_back().map_or(Next::End, |last| Next::After(Some(last)));
        Ok::<_, BodyError>(Some((Bytes::from(lines), (store, next))))
    });
    Body::from_stream(pages)
}

fn line(entry: &Entry) -> [String; 7] {
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    [
        entry.at.to_string(),
        entry.kind.clone(),
        entry.amount.to_string(),
        or_empty(entry.job.map(|id| id.to_string())),
        or_empty(entry.cargo.as_ref().map(|slug| slug.as_str().to_owned())),
        or_empty(entry.host.map(|id| id.to_string())),
        or_empty(entry.device.as_deref().map(csv::text)),
    ]
}
