//! The state of the network, for everybody.

use axum::response::Response;
use island_protocol_api::{
    Health,
    network::{NetworkNotices, NetworkStats},
};

use crate::{
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

/// What a coordinator needs: how `/ready` names it when it is away, and its name for people.
const PARTS: [(&str, &str); 2] = [("database", "network.database"), ("fabric", "network.fabric")];

/// Whether the coordinator reaches its database and its fabric.
pub(super) async fn health(visit: &Visit) -> Vec<Tile> {
    let health = visit.api.either::<Health>("/ready").await;
    parts(health.ok().map(|health| health.status).as_deref())
}

/// A badge for each part. `status` is `ok`, or what is away; `None` if it is unknown.
fn parts(status: Option<&str>) -> Vec<Tile> {
    let is_away = |part: &str| status.is_none_or(|status| status.contains(part));
    let badge = |part: &str| {
        if is_away(part) {
            Cell::Badge(Tone::Bad, t("network.unhealthy").to_owned())
        } else {
            Cell::Badge(Tone::Good, t("network.healthy").to_owned())
        }
    };
    PARTS.iter().map(|(part, key)| Tile::new(t(key), badge(part))).collect()
}

/// `GET /console/network`.
pub(super) async fn page(visit: Visit) -> Response {
    let api = &visit.api;
    let answers = futures::try_join!(
        api.get::<NetworkStats>("/network/stats"),
        api.get::<NetworkNotices>("/network/notices"),
        api.either::<Health>("/health"),
        visit.who(),
    );
    let (stats, announced, about, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/"),
    };
    let mut tiles = vec![
        Tile::new(t("network.islands"), Cell::number(stats.online_islands)),
        Tile::new(t("network.regions"), Cell::number(stats.regions)),
        Tile::new(t("network.jobs"), Cell::number(stats.jobs_completed)),
    ];
    tiles.extend(health(&visit).await);
    let mut blocks: Vec<Block> =
        notices(&announced).into_iter().map(|(tone, text)| Block::Notice(tone, text)).collect();
    blocks.push(Block::Tiles(tiles));
    blocks.push(Block::Facts(vec![(t("network.version").to_owned(), Cell::Code(about.version))]));
    blocks_page(visit.frame(t("network.title"), who.as_ref()), t("network.lead").to_owned(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_badge() {
        let tones = |status| {
            let tone = |tile: Tile| match tile.value {
                Cell::Badge(tone, _) => tone,
                other => panic!("{other:?}"),
            };
            parts(status).into_iter().map(tone).collect::<Vec<_>>()
        };
        assert_eq!(tones(Some("ok")), [Tone::Good, Tone::Good]);
        assert_eq!(tones(Some("fabric unreachable")), [Tone::Good, Tone::Bad]);
        assert_eq!(tones(Some("database unreachable, fabric unreachable")), [Tone::Bad, Tone::Bad]);
        assert_eq!(tones(Some("stopping")), [Tone::Good, Tone::Good]);
        assert_eq!(tones(None), [Tone::Bad, Tone::Bad]);
    }
}
