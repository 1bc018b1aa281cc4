//! `/publications`: Cargos that accounts submit for review.

pub(crate) mod submit;

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::{AccountId, PublicationId};
use island_protocol_api::{
    Data, Page, PageMeta,
    problem::{Code, Detail},
    publication::{Publication, PublicationDetails},
};

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query, segment::Segment},
};
use island_coordinator_domain::{
    catalogue::{Cargo, Fault},
    publication::{Refused, Step, next},
};
use island_coordinator_storage::{
    audit::{self, Action},
    commit,
    publication::{self, Filter},
};

pub(crate) fn unknown() -> ApiError {
    ApiError::new(Code::PublicationNotFound, "there is no such publication")
}

/// The publication that a path names.
pub(crate) async fn named(api: &Api, Segment(id): Segment) -> Result<PublicationDetails, ApiError> {
    let id: PublicationId = id.parse().map_err(|_| unknown())?;
    publication::get(api.store.reader(), id).await?.ok_or_else(unknown)
}

/// The publication that a path names, which must be the account's.
async fn own(api: &Api, account: AccountId, id: Segment) -> Result<PublicationDetails, ApiError> {
    let details = named(api, id).await?;
    if details.publication.publisher == account { Ok(details) } else { Err(unknown()) }
}

/// A page of the publications of a filter, newest first.
pub(crate) async fn page(
    api: &Api,
    filter: Filter,
    query: &Query,
) -> Result<Json<Page<Publication>>, ApiError> {
    let requested = query.page()?;
    let reader = api.store.reader();
    let (data, total) = publication::page(reader, filter, requested.limit, requested.offset).await?;
    Ok(Json(Page { data, meta: PageMeta { total, ..requested } }))
}

/// The publications of an account, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Json<Page<Publication>>, ApiError> {
    page(&api, Filter { publisher: Some(caller.account), state: None }, &query).await
}

/// A publication with its manifest.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<Data<PublicationDetails>>, ApiError> {
    Ok(Json(Data { data: own(&api, caller.account, id).await? }))
}

/// Withdraws a publication: it is no longer reviewed, or no longer served. Open jobs go on.
pub(crate) async fn withdraw(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<Data<Publication>>, ApiError> {
    let PublicationDetails { publication, .. } = own(&api, caller.account, id).await?;
    step(&api, &publication, Step::Withdraw, None).await
}

/// Takes a step about a publication; `action` is what an operator did. A repeated step changes and records nothing.
pub(crate) async fn step(
    api: &Api,
    publication: &Publication,
    step: Step,
    action: Option<Action<'_>>,
) -> Result<Json<Data<Publication>>, ApiError> {
    let Publication { id, workload_slug, publisher, .. } = publication;
    let now = api.clock.now();
    // All changes of a slug wait for each other here, as it has one publisher.
    let mut tx = api.store.begin_locked([*publisher]).await?;
    let versions = publication::versions(&mut tx, workload_slug).await?;
    let version = versions.iter().find(|version| version.id == *id).ok_or_else(unknown)?;
    let changes = next(&versions, version, step).map_err(refused)?;
    for change in &changes {
        let reason = action.map(|action| action.reason).filter(|_| change.id == *id);
        publication::change(&mut tx, change, reason, now).await?;
    }
    if let Some(action) = action.filter(|_| !changes.is_empty()) {
        audit::insert(&mut tx, &action, now).await?;
    }
    commit(tx).await?;
    api.network.refresh().await?;
    let PublicationDetails { publication, .. } =
        publication::get(api.store.reader(), *id).await?.ok_or_else(unknown)?;
    Ok(Json(Data { data: publication }))
}

pub(crate) fn refused(why: Refused) -> ApiError {
    let code = match why {
        Refused::Taken => Code::SlugTaken,
        Refused::Final(_) => Code::PublicationAlreadyFinal,
    };
    ApiError::new(code, why.to_string())
}

/// The error for a slug that means a Cargo of the operator's catalogue.
pub(crate) fn not_own(api: &Api, slug: &str) -> Result<(), ApiError> {
    if !api.network.is_own(slug) {
        return Ok(());
    }
    let message = format!("{slug} is a slug or an alias of the network's own catalogue");
    Err(ApiError::new(Code::SlugTaken, message))
}

/// The Cargo of a manifest, and the manifest.
pub(crate) async fn checked(
    api: &Api,
    account: AccountId,
    manifest: String,
) -> Result<(Cargo, String), ApiError> {
    let network = api.network.clone();
    let check = move || (network.check_manifest(&manifest), manifest);
    let (checked, manifest) = api.evaluations.run(account, check).await?;
    Ok((checked.map_err(|faults| invalid(&faults))?, manifest))
}

/// The error for a manifest with these faults.
fn invalid(faults: &[Fault]) -> ApiError {
    let detail = |fault: &Fault| Detail { line: fault.line as u64, message: fault.message.clone() };
    let details: Vec<Detail> = faults.iter().map(detail).collect();
    let lines: Vec<String> =
        details.iter().map(|detail| format!("line {}: {}", detail.line, detail.message)).collect();
    let message = format!("the manifest is invalid: {}", lines.join("; "));
    ApiError::field(Code::InvalidManifest, "manifest", message).with_details(details)
}
