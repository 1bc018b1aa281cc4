//! `GET /admin/cargos`, and whether new jobs of a Cargo are accepted.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::{AccountId, Slug};
use island_protocol_api::{
    Data,
    admin::{AdminAction, CargoState},
    problem::Code,
};

use super::{reason, record};
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, segment::Segment},
};
use island_coordinator_storage::{commit, network};

type Answer = Result<Json<Data<CargoState>>, ApiError>;

/// All Cargos.
pub(crate) async fn list(State(api): State<Arc<Api>>, Operator(_): Operator) -> Json<Data<Vec<CargoState>>> {
    let catalogue = api.catalogue();
    Json(Data { data: catalogue.iter().map(|cargo| state(&api, &cargo.entry.slug)).collect() })
}

fn state(api: &Api, slug: &Slug) -> CargoState {
    let disabled = api.network.state().disabled.get(slug).cloned();
    CargoState { workload_slug: slug.clone(), is_enabled: disabled.is_none(), disabled }
}

/// Accepts no new jobs of a Cargo. Those that were accepted go on.
pub(crate) async fn disable(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    cargo: Segment,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, cargo, body, AdminAction::DisableCargo).await
}

/// Accepts jobs of a Cargo again.
pub(crate) async fn enable(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    cargo: Segment,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, cargo, body, AdminAction::EnableCargo).await
}

/// What changes nothing is not recorded.
async fn change(
    api: &Arc<Api>,
    operator: AccountId,
    Segment(slug): Segment,
    body: body::Json,
    kind: AdminAction,
) -> Answer {
    let reason = reason(body)?;
    let cargo = api.catalogue().get(&slug).cloned();
    let cargo = cargo.ok_or_else(|| ApiError::new(Code::WorkloadNotFound, "there is no such Cargo"))?;
    let slug = &cargo.entry.slug;
    let now = api.clock.now();
    let mut tx = api.store.begin().await?;
    let is_changed = if kind == AdminAction::DisableCargo {
        network::disable(&mut tx, slug, &reason, now).await?
    } else {
        network::enable(&mut tx, slug).await?
    };
    if is_changed {
        record(&mut tx, operator, kind, slug.as_str(), None, &reason, now).await?;
    }
    commit(tx).await?;
    api.network.refresh().await?;
    Ok(Json(Data { data: state(api, slug) }))
}
