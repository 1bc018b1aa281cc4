//! `GET /admin/hosts`, and the suspension of an Island.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::{AccountId, HostId};
use island_protocol_api::{
    Data, Page, PageMeta,
    admin::{AdminAction, AdminHost, AnnotateHost},
    problem::Code,
};
use tokio::time::Instant;

use super::{account_of_query, reason};
use crate::{
    Api, ApiError,
    http::{auth::Operator, body, query::Query, segment::Segment},
    native::hosts::filter,
};
use island_coordinator_domain::fleet::{IslandFilter, Owner};
use island_coordinator_storage::{
    audit::{self, Action, Subject},
    commit, host,
};

type Answer = Result<Json<Data<AdminHost>>, ApiError>;

/// The Islands that have not left, oldest first, or those that the query wants. What an Island does now is in memory, so a page of those in
/// one state is found there, and has the order of their ids; any other page is made in SQL.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<AdminHost>>, ApiError> {
    let requested = query.page()?;
    let account = account_of_query(&query)?;
    let filter = IslandFilter { owner: account.map_or(Owner::Anybody, Owner::Only), ..filter(&query)? };
    let (reader, now) = (api.store.reader(), Instant::now());
    let (mut data, total) = if filter.status.is_some() {
        let snapshot = api.fleet.snapshot(now);
        let (islands, total) = snapshot.page(&filter, requested.offset, requested.limit);
        let ids: Vec<HostId> = islands.iter().map(|island| island.id()).collect();
        (host::admin_among(reader, &ids).await?, total)
    } else {
        host::admin_page(reader, account, &filter.text, requested.limit, requested.offset).await?
    };
    for island in &mut data {
        let (version, mismatch) = api.fleet.versions(island.id);
        island.status = Some(api.fleet.status_of(island.id, now).unwrap_or("offline").to_owned());
        island.fabric_version = version;
        island.incompatible = mismatch.map(|mismatch| mismatch.to_string());
    }
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}

/// Gives an Island no new jobs, from every coordinator within seconds. Those that it runs go on.
pub(crate) async fn suspend(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    island: Segment,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, island, body, AdminAction::SuspendIsland).await
}

/// Gives a suspended Island jobs again.
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    island: Segment,
    body: body::Json,
) -> Answer {
    change(&api, operator.account, island, body, AdminAction::ResumeIsland).await
}

/// Sets the trust level and the note of an Island.
pub(crate) async fn annotate(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    island: Segment,
    body::Json(fields): body::Json,
) -> Answer {
    let AnnotateHost { trust, note, reason } = fields.parse()?;
    let AdminHost { id, account, .. } = named(&api, island).await?;
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    host::annotate(&mut tx, id, trust, note.as_deref(), now).await?;
    let action = Action {
        subject: Subject::Host(id),
        ..Action::on_account(operator.account, AdminAction::AnnotateIsland, account, &reason)
    };
    audit::insert(&mut tx, &action, now).await?;
    commit(tx).await?;
    answer(&api, id).await
}

/// Suspends or resumes an Island. What changes nothing is not recorded.
async fn change(
    api: &Arc<Api>,
    operator: AccountId,
    island: Segment,
    body: body::Json,
    kind: AdminAction,
) -> Answer {
    let reason = reason(body)?;
    let AdminHost { id, account, .. } = named(api, island).await?;
    let now = api.clock.now();
    let mut tx = api.store.begin_locked([account]).await?;
    let is_changed = if kind == AdminAction::SuspendIsland {
        host::suspend(&mut tx, id, &reason, now).await?
    } else {
        host::resume(&mut tx, id, now).await?
    };
    if is_changed {
        let subject = Subject::Host(id);
        let action = Action { subject, ..Action::on_account(operator, kind, account, &reason) };
        audit::insert(&mut tx, &action, now).await?;
    }
    commit(tx).await?;
    answer(api, id).await
}

/// The Island as it is after an action, which this coordinator respects at once; others read it within seconds.
async fn answer(api: &Arc<Api>, id: HostId) -> Answer {
    if let Some(enrolled) = host::get(api.store.reader(), id).await? {
        api.fleet.refresh(enrolled);
    }
    Ok(Json(Data { data: read(api, id).await? }))
}

fn unknown() -> ApiError {
    ApiError::new(Code::HostNotFound, "there is no such Island")
}

async fn named(api: &Arc<Api>, Segment(id): Segment) -> Result<AdminHost, ApiError> {
    read(api, id.parse().map_err(|_| unknown())?).await
}

async fn read(api: &Arc<Api>, id: HostId) -> Result<AdminHost, ApiError> {
    host::admin_get(api.store.reader(), id).await?.ok_or_else(unknown)
}
