//! `GET /hosts`, `GET /hosts/:id` and `GET /hosts/:id/karma`.

pub(crate) mod advice;
pub(crate) mod alerts;
pub(crate) mod control;
pub(crate) mod pair;

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, HostList, HostView, PageMeta, network::HostKarma, problem::Code};
use tokio::time::Instant;

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query, segment::Segment},
};
use island_coordinator_domain::fleet::{IslandFilter, IslandSummary, Owner, STATES};

/// The Islands that the query wants: all of them, or a page if it has a limit or an offset.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<HostList>, ApiError> {
    let is_paged = query.get("limit").is_some() || query.get("offset").is_some();
    let requested = if is_paged { Some(query.page()?) } else { None };
    let filter = IslandFilter { owner: owner(&query, &caller)?, ..filter(&query)? };
    let snapshot = api.fleet.snapshot(Instant::now());
    let (offset, limit) = requested.map_or((0, u64::MAX), |page| (page.offset, page.limit));
    let (islands, total) = snapshot.page(&filter, offset, limit);
    let data = islands.into_iter().map(IslandSummary::view).collect();
    Ok(Json(HostList { data, meta: requested.map(|page| PageMeta { total, ..page }) }))
}

/// The filters that lists of consumers and of operators have.
pub(crate) fn filter(query: &Query) -> Result<IslandFilter, ApiError> {
    let unknown = || {
        let message = format!("status must be one of {}", STATES.join(", "));
        ApiError::field(Code::ValidationError, "status", message)
    };
    let known = |wanted: &str| STATES.into_iter().find(|state| *state == wanted).ok_or_else(unknown);
    let status = query.get("status").map(known).transpose()?;
    let text = query.get("q").unwrap_or_default().to_lowercase();
    Ok(IslandFilter { text, status, owner: Owner::Anybody })
}

fn owner(query: &Query, caller: &Caller) -> Result<Owner, ApiError> {
    match query.get("own") {
        None => Ok(Owner::Anybody),
        Some("true") => Ok(Owner::Only(caller.account)),
        Some("false") => Ok(Owner::Except(caller.account)),
        Some(_) => Err(ApiError::field(Code::ValidationError, "own", "own must be true or false")),
    }
}

/// One Island.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<HostView>>, ApiError> {
    Ok(Json(Data { data: find(&api, &id)? }))
}

/// An Island's karma: hours of successful computation.
pub(crate) async fn karma(
    State(api): State<Arc<Api>>,
    _caller: Caller,
    Segment(id): Segment,
) -> Result<Json<Data<HostKarma>>, ApiError> {
    let view = find(&api, &id)?;
    let data = HostKarma { host_id: view.id, karma: view.karma, karma_score: view.karma_score };
    Ok(Json(Data { data }))
}

fn find(api: &Api, id: &str) -> Result<HostView, ApiError> {
    let view = id.parse().ok().and_then(|id| api.fleet.view(id, Instant::now()));
    view.ok_or_else(|| ApiError::new(Code::HostNotFound, "there is no such Island"))
}
