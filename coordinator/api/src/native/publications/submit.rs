//! `POST /publications`.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use island_protocol::ids::PublicationId;
use island_protocol_api::{
    Data,
    problem::Code,
    publication::{Publication, PublicationDetails, PublicationState, SubmitPublication},
};
use uuid::Uuid;

use super::{checked, not_own, refused, unknown};
use crate::{
    Api, ApiError,
    http::{
        auth::Caller,
        body,
        idempotency::{IdempotencyKey, Replayed},
    },
    native::admin::{made_before, parse_made},
};
use island_coordinator_domain::publication::{Refused, submit};
use island_coordinator_storage::{StoreError, commit, idempotency::PUBLICATIONS, publication};

/// Maximum number of Cargos of an account that wait for review at one time.
const MAX_WAITING: u64 = 20;
/// Publications of an account that ended without having been served, and are kept for it to read.
const MAX_ENDED: u64 = 20;

type Answer = (StatusCode, Replayed, Json<Data<Publication>>);

/// Submits a Cargo for review. An earlier version goes on being served until this one is approved.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    caller: Caller,
    headers: HeaderMap,
    body::Json(fields): body::Json,
) -> Result<Answer, ApiError> {
    let idempotency_key = IdempotencyKey::read(&headers, PUBLICATIONS, &fields)?;
    let SubmitPublication { manifest } = fields.parse()?;
    let (cargo, manifest) = checked(&api, caller.account, manifest).await?;
    let slug = cargo.entry.slug;
    not_own(&api, slug.as_str())?;
    let now = api.clock.now();
    let data = Publication {
        id: PublicationId(Uuid::now_v7()),
        workload_slug: slug,
        name: cargo.entry.name,
        publisher: caller.account,
        state: PublicationState::Submitted,
        reason: None,
        created_at: now,
        changed_at: None,
    };
    let mut tx = api.store.begin_locked([caller.account]).await?;
    let (key, made) = (idempotency_key.as_ref(), data.id.to_string());
    if let Some(made) = made_before(&api, &mut tx, key, caller.account, &made, now).await? {
        // The publication may be in the same commit group; it can be read after that is on disk.
        commit(tx).await?;
        return replay(&api, parse_made(&made)?).await;
    }
    let versions = publication::versions(&mut tx, &data.workload_slug).await?;
    for change in submit(&versions, caller.account).map_err(refused)? {
        publication::change(&mut tx, &change, None, now).await?;
    }
    if publication::waiting(&mut tx, caller.account).await? >= MAX_WAITING {
        let message = format!("{MAX_WAITING} Cargos of this account wait for review already");
        return Err(ApiError::new(Code::TooManyPublications, message));
    }
    publication::forget(&mut tx, caller.account, MAX_ENDED).await?;
    let details = PublicationDetails { publication: data, manifest };
    publication::insert(&mut tx, &details).await.map_err(not_inserted)?;
    commit(tx).await?;
    Ok((StatusCode::CREATED, Replayed(false), Json(Data { data: details.publication })))
}

/// Another account may have submitted the slug at the same moment.
fn not_inserted(error: StoreError) -> ApiError {
    if error.is_duplicate() { refused(Refused::Taken) } else { error.into() }
}

/// The first answer again.
async fn replay(api: &Api, id: PublicationId) -> Result<Answer, ApiError> {
    let stored = publication::get(api.store.reader(), id).await?;
    let PublicationDetails { publication, .. } = stored.ok_or_else(unknown)?;
    Ok((StatusCode::CREATED, Replayed(true), Json(Data { data: publication })))
}
