//! Every movement of credits, and statements as files.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
};
use island_protocol::api::{ledger::LedgerEntry, statement::Statement};

use crate::{
    backend::add_parameter,
    texts::t,
    view::{Block, Cell, Pager, Table, Tile},
    web::Member,
};

/// `GET /console/ledger`.
pub(super) async fn page(member: Member) -> Response {
    let (api, path) =
        (&member.visit.api, format!("/account/ledger?limit=50&offset={}", member.visit.offset()));
    let answers =
        futures::try_join!(api.page::<LedgerEntry>(&path), api.get::<Statement>("/account/statement"),);
    let (page, month) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let row = |entry: &LedgerEntry| {
        let about = match (entry.job_id, entry.host_id) {
            (Some(job), _) => Cell::link(format!("/console/jobs/{job}"), t("ledger.job")),
            (None, Some(host)) => Cell::link(format!("/console/islands/{host}"), t("ledger.island")),
            _ => Cell::Nothing,
        };
        vec![
            Cell::Time(entry.created_at),
            Cell::text(entry.kind.clone()),
            Cell::text(entry.book.clone()),
            about,
            Cell::Credits(entry.amount),
        ]
    };
    let columns = ["ledger.time", "ledger.kind", "ledger.book", "ledger.about", "ledger.amount"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("ledger.none").to_owned(),
        pager: Pager::new("/console/ledger?", page.meta),
        ..Table::default()
    };
    let totals = month.totals.iter().map(|total| {
        vec![Cell::text(total.kind.clone()), Cell::number(total.entries), Cell::Credits(total.amount)]
    });
    let totals = Table {
        columns: ["ledger.kind", "ledger.entries", "ledger.amount"]
            .iter()
            .map(|key| t(key).to_owned())
            .collect(),
        rows: totals.collect(),
        empty: t("ledger.none").to_owned(),
        ..Table::default()
    };
    let blocks = vec![
        Block::Tiles(vec![
            Tile::new(t("ledger.opening"), Cell::Credits(month.opening)),
            Tile::new(t("ledger.closing"), Cell::Credits(month.closing)),
        ]),
        Block::Panel(
            t("ledger.statement").to_owned(),
            vec![
                Block::Table(totals),
                Block::Links(vec![("/console/ledger/statement.csv".to_owned(), t("ledger.csv").to_owned())]),
            ],
        ),
        Block::Panel(t("ledger.entries_title").to_owned(), vec![Block::Table(table)]),
    ];
    member.page(t("ledger.title"), t("ledger.lead"), blocks)
}

/// `GET /console/ledger/statement.csv?from=…&until=…`.
pub(super) async fn csv(member: Member) -> Response {
    let mut path = "/account/statement?format=csv".to_owned();
    for name in ["from", "until"] {
        if let Some(value) = member.visit.param(name) {
            add_parameter(&mut path, name, value);
        }
    }
    match member.visit.api.send(Method::GET, &path, Body::empty(), &HeaderMap::new()).await {
        Ok(mut answer) => {
            let name = HeaderValue::from_static("attachment; filename=\"statement.csv\"");
            answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
            answer.into_response()
        }
        Err(failure) => member.failed(failure, "/console/ledger"),
    }
}
