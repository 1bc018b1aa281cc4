//! The state of the network, for everybody.

use axum::response::Response;
use island_protocol::api::{
    Health,
    network::{NetworkNotices, NetworkStats},
};

use crate::{
    backend::ApiFailure,
    texts::{fill, t},
    view::{Block, Cell, Tile, Tone},
    web::{Visit, blocks_page, failed},
};

/// What operators announce.
pub(super) fn notices(notices: &NetworkNotices) -> Vec<(Tone, String)> {
    let maintenance = notices.maintenance.iter();
    let maintenance =
        maintenance.map(|of| (Tone::Warn, fill("network.maintenance", &[("reason", &of.reason)])));
    maintenance.chain(notices.notices.iter().map(|notice| (Tone::Plain, notice.text.clone()))).collect()
}

/// Whether the coordinator reaches its database and its fabric.
pub(super) async fn health(visit: &Visit) -> (Tone, String) {
    match visit.api.bare::<Health>("/ready").await {
        Ok(health) if health.status == "ok" => (Tone::Good, t("network.healthy").to_owned()),
        Ok(health) => (Tone::Bad, health.status),
        Err(ApiFailure::Refused { problem, .. }) => (Tone::Bad, problem.message),
        Err(_) => (Tone::Bad, t("network.unhealthy").to_owned()),
    }
}

/// `GET /console/network`.
pub(super) async fn page(visit: Visit) -> Response {
    let api = &visit.api;
    let answers = futures::try_join!(
        api.get::<NetworkStats>("/network/stats"),
        api.get::<NetworkNotices>("/network/notices"),
        api.bare::<Health>("/health"),
        visit.who(),
    );
    let (stats, announced, about, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/"),
    };
    let (tone, text) = health(&visit).await;
    let mut blocks: Vec<Block> =
        notices(&announced).into_iter().map(|(tone, text)| Block::Notice(tone, text)).collect();
    blocks.push(Block::Tiles(vec![
        Tile::new(t("network.islands"), Cell::number(stats.online_islands)),
        Tile::new(t("network.regions"), Cell::number(stats.regions)),
        Tile::new(t("network.jobs"), Cell::number(stats.jobs_completed)),
        Tile::new(t("network.state"), Cell::Badge(tone, text)),
    ]));
    blocks.push(Block::Facts(vec![(t("network.version").to_owned(), Cell::Code(about.version))]));
    blocks_page(visit.frame(t("network.title"), who.as_ref()), t("network.lead").to_owned(), blocks)
}
