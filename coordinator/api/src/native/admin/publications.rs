//! `GET /admin/publications`, and the review of Cargos that accounts submitted.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{
    Data, Page,
    admin::AdminAction,
    problem::Code,
    publication::{Publication, PublicationDetails, PublicationState},
};

use super::{account_of_query, reason};
use crate::{
    Api, ApiError,
    http::{
        auth::{Caller, Operator},
        body,
        query::Query,
        segment::Segment,
    },
    native::publications::{checked, named, not_own, page, step},
};
use island_coordinator_domain::publication::Step;
use island_coordinator_storage::{
    audit::{Action, Subject},
    publication::Filter,
};

type Answer = Result<Json<Data<Publication>>, ApiError>;

/// All publications, or those of one account or in one state, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Page<Publication>>, ApiError> {
    let state = query.get("state").map(str::parse::<PublicationState>).transpose();
    let bad = |_| {
        let names: Vec<_> = PublicationState::ALL.iter().map(|state| state.as_str()).collect();
        let message = format!("state must be one of {}", names.join(", "));
        ApiError::field(Code::ValidationError, "state", message)
    };
    let filter = Filter { publisher: account_of_query(&query)?, state: state.map_err(bad)? };
    page(&api, filter, &query).await
}

/// A publication with its manifest.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    id: Segment,
) -> Result<Json<Data<PublicationDetails>>, ApiError> {
    Ok(Json(Data { data: named(&api, id).await? }))
}

/// Serves a Cargo, in place of its version before.
pub(crate) async fn approve(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    id: Segment,
    body: body::Json,
) -> Answer {
    let reason = reason(body)?;
    let PublicationDetails { publication, manifest } = named(&api, id).await?;
    // The catalogue and the rules may be others than those at its submission.
    if publication.state == PublicationState::Submitted {
        checked(&api, operator.account, manifest).await?;
        not_own(&api, publication.workload_slug.as_str())?;
    }
    review(&api, operator, &publication, Step::Approve, &reason).await
}

/// Refuses to serve a Cargo, or to serve it any longer. Open jobs go on.
pub(crate) async fn reject(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    id: Segment,
    body: body::Json,
) -> Answer {
    let reason = reason(body)?;
    let PublicationDetails { publication, .. } = named(&api, id).await?;
    review(&api, operator, &publication, Step::Reject, &reason).await
}

async fn review(api: &Api, operator: Caller, publication: &Publication, taken: Step, reason: &str) -> Answer {
    let kind = if taken == Step::Approve { AdminAction::ApproveCargo } else { AdminAction::RejectCargo };
    let action = Action {
        subject: Subject::Cargo(&publication.workload_slug),
        ..Action::on_account(operator.account, kind, publication.publisher, reason)
    };
    step(api, publication, taken, Some(action)).await
}
