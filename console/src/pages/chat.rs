//! Chat. A message is a job like any other, so that a reply goes on when its page is reloaded, and its cost is known.

use askama::Template;
use axum::response::Response;
use island_protocol_api::WorkloadView;

use crate::{
    texts::t,
    view::{Block, Frame, Tone},
    web::{Member, html},
};

/// A model that takes messages.
#[derive(Debug)]
struct Model {
    slug: String,
    name: String,
    price: String,
    has_pictures: bool,
    has_reasoning: bool,
    is_default: bool,
}

#[derive(Debug, Template)]
#[template(path = "chat.html")]
struct Chat {
    frame: Frame,
    models: Vec<Model>,
    others: Vec<Model>,
    account: String,
    efforts: Vec<(&'static str, &'static str)>,
    states: String,
}

/// `GET /console/chat`.
pub(super) async fn page(member: Member) -> Response {
    let cargos: Vec<WorkloadView> = match member.visit.api.get("/workloads").await {
        Ok(cargos) => cargos,
        Err(failure) => return member.failed(failure, "/"),
    };
    let chosen = member.visit.param("model").unwrap_or(DEFAULT).to_owned();
    let mut models: Vec<Model> = cargos.iter().filter_map(|cargo| model(cargo, &chosen)).collect();
    if models.is_empty() {
        let blocks = vec![
            Block::Notice(Tone::Warn, t("chat.none").to_owned()),
            Block::Links(vec![("/console/cargos".to_owned(), t("nav.cargos").to_owned())]),
        ];
        return member.page(t("chat.title"), "", blocks);
    }
    models.sort_by(|one, other| other.is_default.cmp(&one.is_default).then(one.name.cmp(&other.name)));
    let mut frame = member.frame(t("chat.title"));
    frame.scripts = vec!["chat.js"];
    frame.is_wide = true;
    let (models, others) = models.into_iter().partition(|model| !model.slug.starts_with("sim-"));
    let account = member.who.account.to_string();
    html(&Chat { frame, models, others, account, efforts: efforts(), states: super::jobs::states() })
}

/// The model that Island ships, which is small enough for every Island.
const DEFAULT: &str = "llm-chat";

/// Values of `reasoning_effort`, with their texts.
fn efforts() -> Vec<(&'static str, &'static str)> {
    vec![
        ("none", t("effort.none")),
        ("minimal", t("effort.minimal")),
        ("low", t("effort.low")),
        ("medium", t("effort.medium")),
        ("high", t("effort.high")),
        ("xhigh", t("effort.xhigh")),
    ]
}

fn model(cargo: &WorkloadView, chosen: &str) -> Option<Model> {
    let properties = &cargo.input_schema["properties"];
    let takes_messages = cargo.is_enabled && properties["messages"].is_object();
    let slug = cargo.entry.slug.to_string();
    takes_messages.then(|| Model {
        name: cargo.entry.name.clone(),
        price: super::prices(&cargo.entry),
        has_pictures: properties["messages"]["items"]["properties"]["content"]["anyOf"].is_array(),
        has_reasoning: properties["reasoning_effort"].is_object(),
        is_default: slug == chosen,
        slug,
    })
}
