//! The state of the network for operators: health, maintenance, notices.

use axum::{extract::Path, response::Response};
use island_protocol_api::{
    Data, HostView,
    admin::{CreateNotice, Queue},
    network::{NetworkNotices, NetworkStats, Notice},
};
use serde::de::IgnoredAny;

use super::{JOBS, OPERATOR, OWNER, Operator, not_found, post_reason};
use crate::{
    backend::encoded,
    pages::{keys::now, network},
    posted::Posted,
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Table, Tile, Tone},
    web::done,
};

const PAGE: &str = "/console/admin";
/// Those of `packaging/dashboards`, by their ids.
const DASHBOARDS: [(&str, &str); 3] =
    [(OPERATOR, "admin.grafana_operator"), (JOBS, "admin.grafana_jobs"), (OWNER, "admin.grafana_owner")];

/// `GET /console/admin`.
pub(super) async fn page(Operator(member): Operator) -> Response {
    let api = &member.visit.api;
    let answers = futures::try_join!(
        api.get::<NetworkStats>("/network/stats"),
        api.get::<NetworkNotices>("/network/notices"),
        api.get::<Vec<Notice>>("/admin/notices"),
        api.page::<HostView>("/hosts?status=offline&limit=1"),
        api.bare::<Queue>("/admin/queue?limit=1"),
    );
    let (stats, state, notices, offline, queue) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let mut tiles = network::health(&member.visit).await;
    tiles.extend([
        Tile::new(t("network.islands"), Cell::number(stats.online_islands)),
        Tile::new(t("admin.offline"), Cell::number(offline.meta.total)),
        Tile::new(t("admin.waiting"), Cell::number(queue.meta.total)),
        Tile::new(t("network.jobs"), Cell::number(stats.jobs_completed)),
    ]);
    let mut blocks = vec![Block::Tiles(tiles)];
    blocks.extend(member.dashboards(&DASHBOARDS));
    blocks.push(match &state.maintenance {
        None => Block::Panel(
            t("admin.maintenance").to_owned(),
            vec![
                Block::Text(t("admin.maintenance_help").to_owned()),
                Block::Form(
                    Form::post(format!("{PAGE}/maintenance/start"), t("admin.start"), vec![Field::reason()])
                        .bad(),
                ),
            ],
        ),
        Some(maintenance) => Block::Panel(
            t("admin.maintenance").to_owned(),
            vec![
                Block::Notice(Tone::Warn, maintenance.reason.clone()),
                Block::Facts(vec![(t("admin.since").to_owned(), Cell::Time(maintenance.since))]),
                Block::Form(Form::post(
                    format!("{PAGE}/maintenance/end"),
                    t("admin.end"),
                    vec![Field::reason()],
                )),
            ],
        ),
    });
    let row = |notice: &Notice| {
        let label = fill("admin.remove_one", &[("text", &notice.text)]);
        let remove = Form::button(format!("{PAGE}/notices/{}/remove", notice.id), t("admin.remove"), label);
        vec![
            Cell::text(notice.text.clone()),
            Cell::Time(notice.created_at),
            Cell::time(notice.until),
            Cell::Actions(vec![remove.bad().confirm(t("admin.remove_confirm"))]),
        ]
    };
    let columns = ["admin.notice", "jobs.created", "admin.until", "keys.change"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: notices.iter().map(row).collect(),
        empty: t("admin.no_notices").to_owned(),
        ..Table::default()
    };
    let hours = [("", "keys.never"), ("1", "admin.hour"), ("24", "keys.day"), ("720", "keys.month")];
    let hours = hours.iter().map(|(value, key)| ((*value).to_owned(), t(key).to_owned())).collect();
    let fields = vec![
        Field::line("text", t("admin.notice")).required(),
        Field::new("hours", t("keys.expires"), Kind::Choice(hours)),
    ];
    let form = Form::post(format!("{PAGE}/notices"), t("admin.announce"), fields);
    blocks.push(Block::Panel(t("admin.notices").to_owned(), vec![Block::Table(table), Block::Form(form)]));
    member.page(t("admin.title"), t("admin.lead"), blocks)
}

/// `POST /console/admin/maintenance/start` and `/end`.
pub(super) async fn maintenance(
    Operator(member): Operator,
    Path(verb): Path<String>,
    posted: Posted,
) -> Response {
    let (path, what) = match verb.as_str() {
        "start" => ("/admin/maintenance/start", "maintenance_started"),
        "end" => ("/admin/maintenance/end", "maintenance_ended"),
        _ => return not_found(),
    };
    match post_reason(&member, path, &posted, PAGE, what).await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, PAGE, |member| page(Operator(member))).await,
    }
}

/// `POST /console/admin/notices`.
pub(super) async fn create_notice(Operator(member): Operator, posted: Posted) -> Response {
    let hours = posted.get("hours").parse::<i64>().ok();
    let notice = CreateNotice {
        text: posted.get("text").to_owned(),
        until: hours.map(|hours| now().plus_ms(hours * 3_600_000)),
    };
    match member.visit.api.post::<Data<Notice>>("/admin/notices", &notice).await {
        Ok(_) => done(PAGE, "announced"),
        Err(failure) => member.again(failure, posted, PAGE, |member| page(Operator(member))).await,
    }
}

/// `POST /console/admin/notices/:id/remove`.
pub(super) async fn remove_notice(Operator(member): Operator, Path(id): Path<String>) -> Response {
    let path = format!("/admin/notices/{}", encoded(&id));
    match member.visit.api.delete::<Data<IgnoredAny>>(&path).await {
        Ok(_) => done(PAGE, "removed"),
        Err(failure) => member.failed(failure, PAGE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn dashboards_are_those_that_are_shipped() {
        let files = [
            include_str!("../../../../packaging/dashboards/operator.json"),
            include_str!("../../../../packaging/dashboards/jobs.json"),
            include_str!("../../../../packaging/dashboards/owner.json"),
        ];
        let uid = |file: &str| {
            let file: Value = serde_json::from_str(file).expect("JSON");
            file["uid"].as_str().expect("an id").to_owned()
        };
        assert_eq!(files.map(uid), DASHBOARDS.map(|(id, _)| id.to_owned()));
    }
}
