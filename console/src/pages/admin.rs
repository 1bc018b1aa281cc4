//! Pages for operators. The API refuses their requests to everybody else.

mod accounts;
mod audit_log;
mod cargos;
mod fleet;
mod invitations;
mod overview;
mod payouts;
mod publications;
mod queue;

use std::sync::Arc;

use axum::{
    Router,
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use island_protocol_api::{
    Data,
    admin::{AdminAccount, Reason},
};
use serde::de::IgnoredAny;
use uuid::Uuid;

use crate::{
    backend::{ApiFailure, add_parameter},
    posted::Posted,
    web::{self, Console, Member, done},
};

/// The dashboards of `packaging/dashboards`, by their ids in Grafana.
const OPERATOR: &str = "island-operator";
const JOBS: &str = "island-jobs";
const OWNER: &str = "island-owner";

pub(super) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/console/admin", get(overview::page))
        .route("/console/admin/maintenance/{verb}", post(overview::maintenance))
        .route("/console/admin/notices", post(overview::create_notice))
        .route("/console/admin/notices/{id}/remove", post(overview::remove_notice))
        .route("/console/admin/queue", get(queue::list))
        .route("/console/admin/queue/cancel", post(queue::cancel))
        .route("/console/admin/fleet", get(fleet::list))
        .route("/console/admin/fleet/{id}/{verb}", post(fleet::change))
        .route("/console/admin/accounts", get(accounts::list).post(accounts::create))
        .route("/console/admin/accounts/{id}", get(accounts::get))
        .route("/console/admin/accounts/{id}/{verb}", post(accounts::change))
        .route("/console/admin/keys/{id}/revoke", post(accounts::revoke_key))
        .route("/console/admin/invitations", get(invitations::list).post(invitations::create))
        .route("/console/admin/invitations/{id}/revoke", post(invitations::revoke))
        .route("/console/admin/publications", get(publications::list))
        .route("/console/admin/publications/{id}", get(publications::get))
        .route("/console/admin/publications/{id}/{verb}", post(publications::decide))
        .route("/console/admin/cargos", get(cargos::list))
        .route("/console/admin/cargos/{slug}/{verb}", post(cargos::switch))
        .route("/console/admin/payouts", get(payouts::list).post(payouts::create))
        .route("/console/admin/payouts/{id}", get(payouts::get))
        .route("/console/admin/payouts/{id}/{verb}", post(payouts::end))
        .route("/console/admin/audit-log", get(audit_log::list))
}

/// A request of an operator. To others, these pages do not exist; the API would refuse them as well.
#[derive(Debug)]
struct Operator(Member);

impl FromRequestParts<Arc<Console>> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let member = Member::from_request_parts(parts, console).await?;
        if member.who.operator {
            Ok(Self(member))
        } else {
            Err(web::not_found(&member.visit, Some(&member.who)))
        }
    }
}

fn not_found() -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// Posts the reason of a form to a route of the API, and leads back.
async fn post_reason(
    member: &Member,
    path: &str,
    posted: &Posted,
    back: &str,
    what: &str,
) -> Result<Response, ApiFailure> {
    let reason = Reason { reason: posted.get("reason").to_owned() };
    member.visit.api.post::<Data<IgnoredAny>>(path, &reason).await?;
    Ok(done(back, what))
}

/// The id of the account that a filter names by its id or its e-mail address. An address without an account has an id without one.
async fn account_id(member: &Member, entered: &str) -> Result<String, ApiFailure> {
    if !entered.contains('@') {
        return Ok(entered.to_owned());
    }
    let mut path = "/admin/accounts?limit=100".to_owned();
    add_parameter(&mut path, "email", entered);
    let page = member.visit.api.page::<AdminAccount>(&path).await?;
    let found = page.data.iter().find(|account| account.email.eq_ignore_ascii_case(entered));
    Ok(found.map_or_else(|| Uuid::nil().to_string(), |account| account.id.to_string()))
}
