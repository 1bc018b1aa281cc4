//! Every movement of credits, and statements as files.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
};
use island_protocol::time::Timestamp;
use island_protocol_api::{Page, ledger::LedgerEntry, statement::Statement};

use super::keys::now;
use crate::{
    backend::{add_parameter, encoded},
    texts::{fill, find, t},
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tile},
    web::Member,
};

/// Months that the page offers, with this one.
const MONTHS: usize = 12;

/// The last months, this one first: each as in `2026-11`, with its begin.
fn months(now: Timestamp) -> Vec<(String, Timestamp)> {
    let earlier = |month: &Timestamp| Some(month.plus_ms(-1).month_begin());
    std::iter::successors(Some(now.month_begin()), earlier)
        .take(MONTHS)
        .map(|begin| (begin.to_string().chars().take(7).collect(), begin))
        .collect()
}

/// The span of a month as parameters of a query, without an end that has not come.
fn span(begin: Timestamp, now: Timestamp) -> String {
    let mut query = format!("from={}", encoded(&begin.to_string()));
    let end = begin.next_month();
    if end <= now {
        add_parameter(&mut query, "until", &end.to_string());
    }
    query
}

/// The text of a kind of entry, or of a book, or its name where it has none.
fn name(prefix: &str, of: &str) -> Cell {
    Cell::text(find(&format!("{prefix}.{of}")).unwrap_or(of))
}

/// `GET /console/ledger`.
pub(super) async fn page(member: Member) -> Response {
    let now = now();
    let months = months(now);
    let chosen = member.visit.param("month").unwrap_or_default();
    let (month, begin) = months.iter().find(|(month, _)| month == chosen).unwrap_or(&months[0]).clone();
    let span = span(begin, now);
    let (api, path) =
        (&member.visit.api, format!("/account/ledger?limit=50&offset={}", member.visit.offset()));
    let statement = format!("/account/statement?{span}");
    let answers = futures::try_join!(api.page::<LedgerEntry>(&path), api.get::<Statement>(&statement));
    let (page, statement) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let choices = months.iter().map(|(month, _)| (month.clone(), month.clone())).collect();
    let choice = Field::new("month", t("ledger.month"), Kind::Choice(choices)).value(month.clone());
    let is_this_month = begin == now.month_begin();
    let closing = if is_this_month { "ledger.closing" } else { "ledger.closing_month" };
    let csv = (format!("/console/ledger/statement.csv?{span}"), fill("ledger.csv", &[("month", &month)]));
    let blocks = vec![
        Block::Form(Form {
            submit: t("ledger.show").to_owned(),
            ..Form::filter("/console/ledger", vec![choice])
        }),
        Block::Tiles(vec![
            Tile::new(t("ledger.opening"), Cell::Credits(statement.opening)),
            Tile::new(t(closing), Cell::Credits(statement.closing)),
        ]),
        Block::Panel(
            fill("ledger.statement", &[("month", &month)]),
            vec![Block::Table(totals(&statement)), Block::Links(vec![csv])],
        ),
        Block::Panel(t("ledger.entries_title").to_owned(), vec![Block::Table(entries(&page, &month))]),
    ];
    member.page(t("ledger.title"), t("ledger.lead"), blocks)
}

fn totals(statement: &Statement) -> Table {
    let rows = statement.totals.iter().map(|total| {
        vec![name("entry", &total.kind), Cell::number(total.entries), Cell::Credits(total.amount)]
    });
    let columns = ["ledger.kind", "ledger.entries", "ledger.amount"];
    Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: rows.collect(),
        empty: t("ledger.none").to_owned(),
        ..Table::default()
    }
}

fn entries(page: &Page<LedgerEntry>, month: &str) -> Table {
    let row = |entry: &LedgerEntry| {
        let about = match (entry.job_id, entry.host_id) {
            (Some(job), _) => Cell::link(format!("/console/jobs/{job}"), t("ledger.job")),
            (None, Some(host)) => Cell::link(format!("/console/islands/{host}"), t("ledger.island")),
            _ => Cell::Nothing,
        };
        vec![
            Cell::Time(entry.created_at),
            name("entry", &entry.kind),
            name("book", &entry.book),
            about,
            Cell::Credits(entry.amount),
        ]
    };
    let columns = ["ledger.time", "ledger.kind", "ledger.book", "ledger.about", "ledger.amount"];
    Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("ledger.none").to_owned(),
        pager: Pager::new(&format!("/console/ledger?month={month}&"), page.meta),
        ..Table::default()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_whole_and_the_last_one_has_no_end() {
        // 2026-01-15T00:00:00Z
        let now = Timestamp::from_unix_ms(1_768_435_200_000);
        let months = months(now);
        assert_eq!(months.len(), MONTHS);
        assert_eq!((months[0].0.as_str(), months[1].0.as_str()), ("2026-01", "2025-12"));
        assert_eq!(span(months[0].1, now), "from=2026-01-01T00%3A00%3A00.000Z");
        assert_eq!(
            span(months[1].1, now),
            "from=2025-12-01T00%3A00%3A00.000Z&until=2026-01-01T00%3A00%3A00.000Z"
        );
    }
}
