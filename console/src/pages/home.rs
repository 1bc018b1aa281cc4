//! The first page: what this network is, and how to join.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use island_protocol::cargo::Category;
use island_protocol_api::{
    CargoList,
    network::{NetworkNotices, NetworkStats},
};
use std::sync::Arc;

use crate::{
    texts::{fill, t},
    view::Frame,
    web::{Console, Visit, failed, html},
};

#[derive(Debug, Template)]
#[template(path = "home.html")]
struct Home {
    frame: Frame,
    is_member: bool,
    islands: u64,
    jobs: u64,
    cargos: usize,
    /// The command with which a machine joins this network.
    enroll: String,
    kinds: Vec<(&'static str, String, usize)>,
}

/// `GET /`.
pub(super) async fn page(visit: Visit) -> Response {
    let api = &visit.api;
    let answers = futures::try_join!(
        api.get::<NetworkStats>("/network/stats"),
        api.get::<NetworkNotices>("/network/notices"),
        api.bare::<CargoList>("/cargos"),
        visit.who(),
    );
    let (stats, notices, cargos, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/docs"),
    };
    let mut frame = visit.frame(t("home.title"), who.as_ref());
    frame.is_wide = true;
    t("home.sentence").clone_into(&mut frame.description);
    frame.notices.extend(super::network::notices(&notices));
    let kinds = Category::ALL.iter().map(|category| {
        let count = cargos.cargos.iter().filter(|cargo| cargo.category == Some(*category)).count();
        (category.as_str(), t(&format!("category.{}", category.as_str())).to_owned(), count)
    });
    html(&Home {
        frame,
        is_member: who.is_some(),
        islands: stats.online_islands,
        jobs: stats.jobs_completed,
        cargos: cargos.count,
        enroll: fill("home.enroll", &[("origin", &visit.origin)]),
        kinds: kinds.filter(|(_, _, count)| *count > 0).collect(),
    })
}

/// `GET /console`: where a person continues.
pub(super) async fn begin(State(console): State<Arc<Console>>, headers: axum::http::HeaderMap) -> Response {
    let is_member = console.cookies.session(&headers).is_some();
    Redirect::to(if is_member { "/console/chat" } else { "/" }).into_response()
}
