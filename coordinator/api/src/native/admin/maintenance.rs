//! `POST /admin/maintenance/start` and `/end`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::AccountId;
use island_protocol_api::{Data, admin::AdminAction, network::NetworkNotices};

use super::{reason, record};
use crate::{
    Api, ApiError,
    http::{auth::Operator, body},
};
use island_coordinator_storage::{commit, network};

type Answer = Result<Json<Data<NetworkNotices>>, ApiError>;

/// Accepts no new jobs, at every coordinator within seconds. Those that were accepted go on.
pub(crate) async fn start(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, body, AdminAction::StartMaintenance).await
}

/// Accepts jobs again.
pub(crate) async fn end(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, body, AdminAction::EndMaintenance).await
}

/// What changes nothing is not recorded.
async fn change(api: &Arc<Api>, operator: AccountId, body: body::Json, kind: AdminAction) -> Answer {
    let reason = reason(body)?;
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let is_changed = if kind == AdminAction::StartMaintenance {
        network::start_maintenance(&mut tx, &reason, now).await?
    } else {
        network::end_maintenance(&mut tx).await?
    };
    if is_changed {
        record(&mut tx, operator, kind, "", None, &reason, now).await?;
    }
    commit(tx).await?;
    api.network.refresh().await?;
    Ok(Json(Data { data: api.network.view(now) }))
}
