//! Chat. A message is a job like any other, so that a reply goes on when its page is reloaded, and its cost is known.

use askama::Template;
use axum::response::Response;
use island_protocol::api::WorkloadView;

use crate::{
    texts::t,
    view::Frame,
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
}

/// `GET /console/chat`.
pub(super) async fn page(member: Member) -> Response {
    let cargos: Vec<WorkloadView> = match member.visit.api.get("/workloads").await {
        Ok(cargos) => cargos,
        Err(failure) => return member.failed(failure, "/"),
    };
    let chosen = member.visit.param("model").unwrap_or(DEFAULT).to_owned();
    let mut models: Vec<Model> = cargos.iter().filter_map(|cargo| model(cargo, &chosen)).collect();
    models.sort_by(|one, other| other.is_default.cmp(&one.is_default).then(one.name.cmp(&other.name)));
    let mut frame = member.frame(t("chat.title"));
    frame.scripts = vec!["chat.js"];
    frame.is_wide = true;
    let (models, others) = models.into_iter().partition(|model| !model.slug.starts_with("sim-"));
    html(&Chat { frame, models, others, account: member.who.account.to_string() })
}

/// The model that Island ships, which is small enough for every Island.
const DEFAULT: &str = "llm-chat";

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
