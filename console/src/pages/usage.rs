//! What was spent and earned, by day, Cargo, key and Island.

use std::collections::BTreeMap;

use axum::response::Response;
use futures::future;
use island_protocol::{
    api::{
        key::KeyView,
        quota::{OwnQuotas, QuotaView},
        statement::Statement,
    },
    credits::MicroCredits,
    time::Timestamp,
};

use super::{amount, keys::now};
use crate::{
    backend::{ApiFailure, encoded},
    texts::t,
    view::{Block, Cell, Plot, Table, Tile},
    web::Member,
};

const DAY_MS: i64 = 24 * 3_600_000;
/// Days in the plots.
const DAYS: i64 = 14;
/// Series in a plot; further ones are added up.
const MAX_SERIES: usize = 5;

/// Statements of each of the last days, oldest first, UTC.
async fn by_day(member: &Member) -> Result<Vec<Statement>, ApiFailure> {
    let today = now().day_begin();
    let days = (0..DAYS).rev().map(|ago| {
        let from = today.plus_ms(-ago * DAY_MS);
        async move { member.visit.api.get(&statement_path(from, from.next_day())).await }
    });
    future::try_join_all(days).await
}

fn statement_path(from: Timestamp, until: Timestamp) -> String {
    format!("/account/statement?from={}&until={}", encoded(&from.to_string()), encoded(&until.to_string()))
}

/// A plot of amounts by day, with the largest series by name and the sum of the others.
fn plot(
    title: &str,
    days: &[Statement],
    of_day: impl Fn(&Statement) -> Vec<(String, MicroCredits)>,
) -> Block {
    let mut sums: BTreeMap<String, MicroCredits> = BTreeMap::new();
    let by_day: Vec<(Timestamp, Vec<(String, MicroCredits)>)> =
        days.iter().map(|day| (day.from, of_day(day))).collect();
    for (name, sum) in by_day.iter().flat_map(|(_, amounts)| amounts) {
        *sums.entry(name.clone()).or_default() += *sum;
    }
    let mut names: Vec<(String, MicroCredits)> = sums.into_iter().collect();
    names.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
    let mut columns: Vec<String> = names.iter().take(MAX_SERIES).map(|(name, _)| name.clone()).collect();
    let has_rest = names.len() > MAX_SERIES;
    let of = |amounts: &[(String, MicroCredits)], holds: &dyn Fn(&str) -> bool| {
        amount(amounts.iter().filter(|(name, _)| holds(name)).map(|(_, sum)| *sum).sum())
    };
    let points = by_day.iter().map(|(day, amounts)| {
        let mut values: Vec<f64> = columns.iter().map(|column| of(amounts, &|name| name == column)).collect();
        if has_rest {
            values.push(of(amounts, &|name| !columns.iter().any(|column| column == name)));
        }
        (*day, values)
    });
    let points = points.collect();
    if has_rest {
        columns.push(t("usage.others").to_owned());
    }
    if columns.is_empty() {
        return Block::Panel(title.to_owned(), vec![Block::Text(t("usage.none").to_owned())]);
    }
    Block::Plot(Plot { title: title.to_owned(), columns, points, is_bars: true })
}

/// `GET /console/usage`.
pub(super) async fn page(member: Member) -> Response {
    let api = &member.visit.api;
    let month = now().month_begin();
    let path = statement_path(month, now().plus_ms(1));
    let answers = futures::try_join!(
        by_day(&member),
        api.get::<Statement>(&path),
        api.get::<Vec<KeyView>>("/api-keys"),
        api.get::<OwnQuotas>("/account/quotas"),
    );
    let (days, month, keys, quota) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let spent: MicroCredits = month.spent.iter().map(|spending| spending.amount).sum();
    let jobs: u64 = month.spent.iter().map(|spending| spending.jobs).sum();
    let tiles = vec![
        Tile::new(t("usage.available"), Cell::Credits(member.who.credits)),
        Tile::new(t("usage.month"), Cell::Credits(spent)),
        Tile::new(t("usage.jobs"), Cell::number(jobs)),
    ];
    let of_cargo = |day: &Statement| {
        day.spent.iter().map(|spending| (spending.workload_slug.to_string(), spending.amount)).collect()
    };
    let cargos = month.spent.iter().map(|spending| {
        vec![
            Cell::Code(spending.workload_slug.to_string()),
            Cell::number(spending.jobs),
            Cell::Credits(spending.amount),
        ]
    });
    let by_key = keys.iter().map(|key| vec![Cell::text(key.name.clone()), Cell::Credits(key.spent)]);
    let table = |columns: &[&str], rows: Vec<Vec<Cell>>| {
        Block::Table(Table {
            columns: columns.iter().map(|key| t(key).to_owned()).collect(),
            rows,
            empty: t("usage.none").to_owned(),
            ..Table::default()
        })
    };
    let mut blocks = vec![Block::Tiles(tiles), plot(t("usage.by_day"), &days, of_cargo)];
    blocks.extend(quotas(&quota));
    blocks.push(Block::Columns(vec![
        Block::Panel(
            t("usage.by_cargo").to_owned(),
            vec![table(&["jobs.cargo", "usage.count", "usage.credits"], cargos.collect())],
        ),
        Block::Panel(
            t("usage.by_key").to_owned(),
            vec![table(&["keys.name", "usage.credits"], by_key.collect())],
        ),
    ]));
    member.page(t("usage.title"), t("usage.lead"), blocks)
}

/// `GET /console/earnings`.
pub(super) async fn earnings(member: Member) -> Response {
    let path = statement_path(now().month_begin(), now().plus_ms(1));
    let answers = futures::try_join!(by_day(&member), member.visit.api.get::<Statement>(&path));
    let (days, month) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/islands"),
    };
    let of_island = |day: &Statement| {
        let name = |earned: &island_protocol::api::statement::IslandEarnings| {
            earned.name.clone().unwrap_or_else(|| t("earnings.unnamed").to_owned())
        };
        day.earned.iter().map(|earned| (name(earned), earned.amount)).collect()
    };
    let rows = month.earned.iter().map(|earned| {
        let name = earned.name.clone().unwrap_or_else(|| t("earnings.unnamed").to_owned());
        vec![
            earned
                .host_id
                .map_or(Cell::text(name.clone()), |id| Cell::link(format!("/console/islands/{id}"), name)),
            Cell::text(earned.device.clone().unwrap_or_default()),
            Cell::number(earned.jobs),
            Cell::Credits(earned.amount),
        ]
    });
    let total: MicroCredits = month.earned.iter().map(|earned| earned.amount).sum();
    let table = Table {
        columns: ["earnings.island", "earnings.device", "usage.count", "usage.credits"]
            .iter()
            .map(|key| t(key).to_owned())
            .collect(),
        rows: rows.collect(),
        empty: t("earnings.none").to_owned(),
        ..Table::default()
    };
    let blocks = vec![
        Block::Tiles(vec![Tile::new(t("earnings.month"), Cell::Credits(total))]),
        plot(t("earnings.by_day"), &days, of_island),
        Block::Panel(t("earnings.this_month").to_owned(), vec![Block::Table(table)]),
    ];
    member.page(t("earnings.title"), t("earnings.lead"), blocks)
}

/// What the quotas leave, if there are any.
pub(super) fn quotas(quotas: &OwnQuotas) -> Option<Block> {
    let of = |holder: &str, views: &[QuotaView]| -> Vec<Vec<Cell>> {
        let row = |view: &QuotaView, key: &str, used: f64, max: f64, text: String| {
            let part = if max > 0.0 { (used / max * 100.0).clamp(0.0, 100.0) } else { 100.0 };
            vec![
                Cell::text(t(holder)),
                Cell::text(format!("{} · {}", t(&format!("quota.{}", view.period.as_str())), t(key))),
                Cell::Bar(part as u64, text),
                Cell::Time(view.resets_at),
            ]
        };
        let rows = |view: &QuotaView| {
            let numbers = [("quota.requests", &view.requests), ("quota.tokens", &view.tokens)];
            let mut rows: Vec<Vec<Cell>> = numbers
                .iter()
                .filter_map(|(key, used)| {
                    let used = used.as_ref()?;
                    let text = format!("{} / {}", used.used, used.max);
                    Some(row(view, key, used.used as f64, used.max as f64, text))
                })
                .collect();
            rows.extend(view.credits.as_ref().map(|used| {
                let text = format!("{} / {}", used.used, used.max);
                row(view, "quota.credits", amount(used.used), amount(used.max), text)
            }));
            rows
        };
        views.iter().flat_map(rows).collect()
    };
    let mut rows = of("quota.account", &quotas.account);
    rows.extend(of("quota.key", &quotas.key));
    let columns = ["quota.holder", "quota.period", "quota.used", "quota.resets"];
    let table =
        Table { columns: columns.iter().map(|key| t(key).to_owned()).collect(), rows, ..Table::default() };
    (!table.rows.is_empty()).then(|| Block::Panel(t("quota.title").to_owned(), vec![Block::Table(table)]))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn day(ms: i64) -> Statement {
        Statement {
            account: island_protocol::ids::AccountId(Uuid::nil()),
            from: Timestamp::from_unix_ms(ms),
            until: Timestamp::from_unix_ms(ms + DAY_MS),
            opening: MicroCredits::ZERO,
            closing: MicroCredits::ZERO,
            totals: Vec::new(),
            earned: Vec::new(),
            spent: Vec::new(),
        }
    }

    #[test]
    fn a_plot_loses_no_credits() {
        let of_day = |_: &Statement| -> Vec<(String, MicroCredits)> {
            (1..=8).map(|n| (format!("cargo-{n}"), MicroCredits::from_credits(n))).collect()
        };
        let Block::Plot(plot) = plot("x", &[day(0), day(DAY_MS)], of_day) else { panic!("no plot") };
        assert_eq!(plot.columns.len(), MAX_SERIES + 1);
        assert_eq!(plot.columns[0], "cargo-8");
        for (_, values) in &plot.points {
            assert!((values.iter().sum::<f64>() - 36.0).abs() < 1e-9, "{values:?}");
        }
    }
}
