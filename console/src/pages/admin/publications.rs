//! Review of the Cargos that accounts publish.

use axum::{extract::Path, response::Response};
use island_protocol_api::publication::{Publication, PublicationDetails, PublicationState};

use super::{Operator, not_found, post_reason};
use crate::{
    backend::encoded,
    pages::publications::badge,
    posted::Posted,
    texts::t,
    view::{Block, Cell, Field, Form, Pager, Tab, Table},
};

const PAGE: &str = "/console/admin/publications";

/// `GET /console/admin/publications`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let state = member.visit.param("state").unwrap_or("submitted").to_owned();
    let path =
        format!("/admin/publications?limit=25&offset={}&state={}", member.visit.offset(), encoded(&state));
    let page = match member.visit.api.page::<Publication>(&path).await {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let tabs = ["submitted", "approved", "rejected", "withdrawn", "replaced"].iter().map(|of| Tab {
        href: format!("{PAGE}?state={of}"),
        text: t(&format!("publication.{of}")).to_owned(),
        is_current: *of == state,
    });
    let row = |one: &Publication| {
        vec![
            Cell::link(format!("{PAGE}/{}", one.id), one.workload_slug.to_string()),
            Cell::text(one.name.clone()),
            badge(one.state),
            Cell::link(
                format!("/console/admin/accounts/{}", one.publisher),
                one.publisher.to_string().chars().take(8).collect::<String>(),
            ),
            Cell::Time(one.created_at),
        ]
    };
    let columns =
        ["jobs.cargo", "publications.name", "jobs.status", "cargos.publisher", "publications.submitted"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("review.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?state={}&", encoded(&state)), page.meta),
        ..Table::default()
    };
    member.page(t("review.title"), t("review.lead"), vec![Block::Tabs(tabs.collect()), Block::Table(table)])
}

/// `GET /console/admin/publications/:id`.
pub(super) async fn get(Operator(member): Operator, Path(id): Path<String>) -> Response {
    let path = format!("/admin/publications/{}", encoded(&id));
    let PublicationDetails { publication, manifest } = match member.visit.api.get(&path).await {
        Ok(details) => details,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let mut facts = vec![
        (t("jobs.status").to_owned(), badge(publication.state)),
        (t("cargos.publisher").to_owned(), Cell::Code(publication.publisher.to_string())),
        (t("publications.submitted").to_owned(), Cell::Time(publication.created_at)),
    ];
    facts.extend(publication.reason.clone().map(|reason| (t("form.reason").to_owned(), Cell::text(reason))));
    let mut blocks = vec![Block::Facts(facts), Block::Pre(t("publications.manifest").to_owned(), manifest)];
    let form = |verb: &str, text: &str| {
        Form::post(format!("{PAGE}/{}/{verb}", publication.id), t(text), vec![Field::reason()])
    };
    let panel = |text: &str, form: Form| Block::Panel(t(text).to_owned(), vec![Block::Form(form)]);
    let mut steps = Vec::new();
    if publication.state == PublicationState::Submitted {
        steps.push(panel("review.approve", form("approve", "review.approve")));
    }
    // One that is served can be rejected as well: it is served no longer.
    if matches!(publication.state, PublicationState::Submitted | PublicationState::Approved) {
        steps.push(panel("review.reject", form("reject", "review.reject").bad()));
    }
    if !steps.is_empty() {
        blocks.push(Block::Columns(steps));
    }
    member.page(publication.name.clone(), publication.workload_slug.to_string(), blocks)
}

/// `POST /console/admin/publications/:id/approve` and `/reject`.
pub(super) async fn decide(
    Operator(member): Operator,
    Path((id, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let what = match verb.as_str() {
        "approve" => "approved",
        "reject" => "rejected",
        _ => return not_found(),
    };
    let (path, page) =
        (format!("/admin/publications/{}/{verb}", encoded(&id)), format!("{PAGE}/{}", encoded(&id)));
    match post_reason(&member, &path, &posted, &page, what).await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, &page, |member| get(Operator(member), Path(id))).await,
    }
}
