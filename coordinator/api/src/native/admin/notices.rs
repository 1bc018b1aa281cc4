//! `GET` and `POST /admin/notices`, and the removal of a notice.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use island_protocol::ids::NoticeId;
use island_protocol_api::{
    Data,
    admin::{AdminAction, CreateNotice},
    network::Notice,
    problem::Code,
};
use uuid::Uuid;

use super::record;
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
};
use island_coordinator_storage::{commit, network};

/// Maximum number of notices, which every answer about them contains.
const MAX_NOTICES: usize = 20;

/// All notices, also those that have expired, newest first.
pub(crate) async fn list(State(api): State<Arc<Api>>, Operator(_): Operator) -> Json<Data<Vec<Notice>>> {
    Json(Data { data: api.network.state().notices.clone() })
}

/// Shows a notice to consumers and owners.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    body::Json(fields): body::Json,
) -> Result<(StatusCode, Json<Data<Notice>>), ApiError> {
    let CreateNotice { text, until } = fields.parse()?;
    let now = api.clock.now();
    if until.is_some_and(|until| until <= now) {
        return Err(ApiError::field(Code::ValidationError, "until", "until must be a time in the future"));
    }
    if api.network.state().notices.len() >= MAX_NOTICES {
        let message = format!("there are {MAX_NOTICES} notices already: remove some");
        return Err(ApiError::new(Code::ValidationError, message));
    }
    let notice = Notice { id: NoticeId(Uuid::now_v7()), text, created_at: now, until };
    let mut tx = api.store.begin().await?;
    network::insert_notice(&mut tx, &notice).await?;
    let (name, kind) = (notice.id.to_string(), AdminAction::CreateNotice);
    record(&mut tx, operator.account, kind, &name, None, &notice.text, now).await?;
    commit(tx).await?;
    api.network.refresh().await?;
    Ok((StatusCode::CREATED, Json(Data { data: notice })))
}

/// Removes a notice.
pub(crate) async fn remove(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Segment(id): Segment,
) -> Result<Json<Data<Notice>>, ApiError> {
    let unknown = || ApiError::new(Code::NoticeNotFound, "there is no such notice");
    let id: NoticeId = id.parse().map_err(|_| unknown())?;
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let notice = network::remove_notice(&mut tx, id).await?.ok_or_else(unknown)?;
    let (name, kind) = (id.to_string(), AdminAction::RemoveNotice);
    record(&mut tx, operator.account, kind, &name, None, &notice.text, now).await?;
    commit(tx).await?;
    api.network.refresh().await?;
    Ok(Json(Data { data: notice }))
}
