//! Cargos that the account publishes.

use axum::{extract::Path, response::Response};
use island_protocol_api::{
    Data,
    publication::{Publication, PublicationDetails, PublicationState, SubmitPublication},
};

use crate::{
    backend::{ApiFailure, encoded},
    posted::Posted,
    texts::t,
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tone},
    web::{Member, described, done},
};

/// The badge of a publication's state.
pub(super) fn badge(state: PublicationState) -> Cell {
    let tone = match state {
        PublicationState::Approved => Tone::Good,
        PublicationState::Rejected => Tone::Bad,
        PublicationState::Submitted => Tone::Warn,
        _ => Tone::Plain,
    };
    Cell::Badge(tone, t(&format!("publication.{}", state.as_str())).to_owned())
}

/// `GET /console/publications`.
pub(super) async fn list(member: Member) -> Response {
    show(&member, Vec::new(), "").await
}

async fn show(member: &Member, mut blocks: Vec<Block>, manifest: &str) -> Response {
    let offset = member.visit.offset();
    let path = format!("/publications?limit=25&offset={offset}");
    let page = match member.visit.api.page::<Publication>(&path).await {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let row = |one: &Publication| {
        vec![
            Cell::link(format!("/console/publications/{}", one.id), one.workload_slug.to_string()),
            Cell::text(one.name.clone()),
            badge(one.state),
            Cell::Time(one.created_at),
            Cell::text(one.reason.clone().unwrap_or_default()),
        ]
    };
    let columns = ["jobs.cargo", "publications.name", "jobs.status", "publications.submitted", "form.reason"];
    blocks.push(Block::Table(Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("publications.none").to_owned(),
        pager: Pager::new("/console/publications?", page.meta),
        ..Table::default()
    }));
    let field = Field::new("manifest", t("publications.manifest"), Kind::Code).required().value(manifest);
    let form = Form::post("/console/publications", t("publications.submit"), vec![field]);
    blocks.push(Block::Panel(t("publications.new").to_owned(), vec![Block::Form(form)]));
    member.page(t("publications.title"), t("publications.lead"), blocks)
}

/// `POST /console/publications`.
pub(super) async fn submit(member: Member, posted: Posted) -> Response {
    let manifest = posted.raw("manifest").unwrap_or_default().to_owned();
    let request = SubmitPublication { manifest };
    match member.visit.api.post::<Data<Publication>>("/publications", &request).await {
        Ok(Data { data }) => done(&format!("/console/publications/{}", data.id), "submitted"),
        Err(ApiFailure::Refused { problem, .. }) => {
            let (message, details) = described(&problem);
            let mut blocks = vec![Block::Notice(Tone::Bad, message)];
            blocks.extend(details.into_iter().map(Block::Text));
            show(&member, blocks, &request.manifest).await
        }
        Err(failure) => member.failed(failure, "/console/publications"),
    }
}

/// `GET /console/publications/:id`.
pub(super) async fn get(member: Member, Path(id): Path<String>) -> Response {
    let path = format!("/publications/{}", encoded(&id));
    let PublicationDetails { publication, manifest } = match member.visit.api.get(&path).await {
        Ok(details) => details,
        Err(failure) => return member.failed(failure, "/console/publications"),
    };
    let mut facts = vec![
        (t("jobs.status").to_owned(), badge(publication.state)),
        (t("publications.submitted").to_owned(), Cell::Time(publication.created_at)),
    ];
    facts.extend(publication.reason.clone().map(|reason| (t("form.reason").to_owned(), Cell::text(reason))));
    let mut blocks = vec![Block::Facts(facts), Block::Pre(t("publications.manifest").to_owned(), manifest)];
    if matches!(publication.state, PublicationState::Submitted | PublicationState::Approved) {
        let action = format!("/console/publications/{}/withdraw", publication.id);
        let label = t("publications.withdraw");
        let withdraw = Form::button(action, label, label).bad().confirm(t("publications.withdraw_confirm"));
        blocks.push(Block::Form(withdraw));
    }
    member.page(publication.name.clone(), publication.workload_slug.to_string(), blocks)
}

/// `POST /console/publications/:id/withdraw`.
pub(super) async fn withdraw(member: Member, Path(id): Path<String>) -> Response {
    let path = format!("/publications/{}", encoded(&id));
    match member.visit.api.delete::<Data<Publication>>(&path).await {
        Ok(_) => done("/console/publications", "withdrawn"),
        Err(failure) => member.failed(failure, "/console/publications"),
    }
}
