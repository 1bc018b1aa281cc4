//! What was spent and earned, by day, Cargo, key and Island.

use std::collections::BTreeMap;

use axum::response::Response;
use futures::future;
use island_protocol::{credits::MicroCredits, time::Timestamp};
use island_protocol_api::{
    key::KeyView,
    quota::{OwnQuotas, QuotaView},
    statement::{IslandEarnings, Statement},
    usage::{AccountUsage, UsageRow},
};

use super::{amount, cargos::slugs, keys::now};
use crate::{
    backend::{ApiFailure, encoded},
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Plot, Table, Tile},
    web::Member,
};

const DAY_MS: i64 = 24 * 3_600_000;
/// Days in the plots.
const DAYS: i64 = 14;
/// Series in a plot; further ones are added up.
const MAX_SERIES: usize = 5;

/// Spans that a page of usage offers, in days.
const SPANS: [i64; 3] = [14, 30, 90];

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

/// The amounts of a day, each with the name of its series.
type Day = (Timestamp, Vec<(String, f64)>);

/// A plot of amounts by day, with the largest series by name and the sum of the others.
fn plot(title: &str, days: &[Day]) -> Block {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, value) in days.iter().flat_map(|(_, amounts)| amounts) {
        *sums.entry(name).or_default() += *value;
    }
    let mut names: Vec<(&str, f64)> = sums.into_iter().collect();
    names.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
    let has_rest = names.len() > MAX_SERIES;
    let mut columns: Vec<String> =
        names.iter().take(MAX_SERIES).map(|(name, _)| (*name).to_owned()).collect();
    let of = |amounts: &[(String, f64)], holds: &dyn Fn(&str) -> bool| -> f64 {
        amounts.iter().filter(|(name, _)| holds(name)).map(|(_, value)| *value).sum()
    };
    let points = days.iter().map(|(day, amounts)| {
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

/// The amounts of every day from `from` until before `until`, also of days without any.
fn each_day(usage: &AccountUsage, of_row: impl Fn(&UsageRow) -> Vec<(String, f64)>) -> Vec<Day> {
    let mut days: BTreeMap<i64, Vec<(String, f64)>> = BTreeMap::new();
    let mut day = usage.from;
    while day < usage.until {
        days.insert(day.unix_ms(), Vec::new());
        day = day.next_day();
    }
    for row in &usage.rows {
        days.entry(row.day.unix_ms()).or_default().extend(of_row(row));
    }
    days.into_iter().map(|(at, amounts)| (Timestamp::from_unix_ms(at), amounts)).collect()
}

/// Jobs, tokens that were read, tokens that were written, and credits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    jobs: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    amount: MicroCredits,
}

/// Sums of rows with the same name, the dearest first.
fn sums(rows: &[UsageRow], name: impl Fn(&UsageRow) -> String) -> Vec<(String, Sum)> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(name(row)).or_default();
        sum.jobs += row.jobs;
        sum.prompt_tokens += row.prompt_tokens;
        sum.completion_tokens += row.completion_tokens;
        sum.amount += row.amount;
    }
    let mut sums: Vec<(String, Sum)> = sums.into_iter().collect();
    sums.sort_by(|one, other| other.1.amount.cmp(&one.1.amount).then(one.0.cmp(&other.0)));
    sums
}

fn cargo_of(row: &UsageRow) -> String {
    row.workload_slug.to_string()
}

fn key_of(row: &UsageRow) -> String {
    row.key_name.clone().unwrap_or_else(|| t("usage.no_key").to_owned())
}

/// Where the usage of a span is read; an empty filter is left out.
fn usage_path(from: Timestamp, cargo: &str, key: &str) -> String {
    let mut path = format!("/account/usage?from={}", encoded(&from.to_string()));
    for (name, value) in [("workload", cargo), ("key", key)] {
        if !value.is_empty() {
            path = format!("{path}&{name}={}", encoded(value));
        }
    }
    path
}

/// `GET /console/usage`.
pub(super) async fn page(member: Member) -> Response {
    let api = &member.visit.api;
    let param = |name| member.visit.param(name).unwrap_or_default();
    let (cargo, key) = (param("cargo"), param("key"));
    let days = param("days").parse().ok().filter(|days| SPANS.contains(days)).unwrap_or(SPANS[0]);
    let path = usage_path(now().plus_ms(-(days - 1) * DAY_MS), cargo, key);
    let answers = futures::try_join!(
        api.get::<AccountUsage>(&path),
        api.get::<Vec<KeyView>>("/api-keys"),
        api.get::<OwnQuotas>("/account/quotas"),
        async { Ok(slugs(&member.visit).await) },
    );
    let (usage, keys, quota, cargos) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/usage"),
    };
    let total = sums(&usage.rows, |_| String::new()).pop().map(|(_, sum)| sum).unwrap_or_default();
    let tiles = vec![
        Tile::new(t("usage.available"), Cell::Credits(member.who.credits)),
        Tile::new(t("usage.spent"), Cell::Credits(total.amount)),
        Tile::new(t("usage.count"), Cell::number(total.jobs)),
        Tile::new(t("usage.prompt"), Cell::number(total.prompt_tokens)),
        Tile::new(t("usage.completion"), Cell::number(total.completion_tokens)),
    ];
    let credits =
        |name: fn(&UsageRow) -> String| each_day(&usage, move |row| vec![(name(row), amount(row.amount))]);
    let tokens = each_day(&usage, |row| {
        [("usage.prompt", row.prompt_tokens), ("usage.completion", row.completion_tokens)]
            .into_iter()
            .filter(|(_, tokens)| *tokens > 0)
            .map(|(key, tokens)| (t(key).to_owned(), tokens as f64))
            .collect()
    });
    let mut blocks = vec![
        Block::Form(filter(days, cargo, key, &keys, cargos)),
        Block::Tiles(tiles),
        plot(t("usage.by_day"), &credits(cargo_of)),
        plot(t("usage.by_day_and_key"), &credits(key_of)),
        plot(t("usage.tokens_by_day"), &tokens),
    ];
    blocks.extend(quotas(&quota));
    for (title, column, name) in [
        ("usage.by_cargo", "jobs.cargo", cargo_of as fn(&UsageRow) -> String),
        ("usage.by_key", "keys.name", key_of),
    ] {
        blocks.push(Block::Panel(
            t(title).to_owned(),
            vec![Block::Table(table(column, &sums(&usage.rows, name)))],
        ));
    }
    member.page(t("usage.title"), t("usage.lead"), blocks)
}

fn filter(days: i64, cargo: &str, key: &str, keys: &[KeyView], cargos: Vec<String>) -> Form {
    let spans =
        SPANS.iter().map(|days| (days.to_string(), fill("usage.days", &[("days", &days.to_string())])));
    let all = std::iter::once((String::new(), t("usage.all_keys").to_owned()));
    let keys = all.chain(keys.iter().map(|key| (key.id.to_string(), key.name.clone())));
    Form::filter(
        "/console/usage",
        vec![
            Field::new("days", t("usage.span"), Kind::Choice(spans.collect())).value(days.to_string()),
            Field::new("cargo", t("jobs.cargo"), Kind::Suggested(cargos)).value(cargo),
            Field::new("key", t("usage.key"), Kind::Choice(keys.collect())).value(key),
        ],
    )
}

fn table(column: &str, sums: &[(String, Sum)]) -> Table {
    let columns = [column, "usage.count", "usage.prompt", "usage.completion", "usage.credits"];
    let rows = sums.iter().map(|(name, sum)| {
        vec![
            Cell::text(name.clone()),
            Cell::number(sum.jobs),
            Cell::number(sum.prompt_tokens),
            Cell::number(sum.completion_tokens),
            Cell::Credits(sum.amount),
        ]
    });
    Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: rows.collect(),
        empty: t("usage.none").to_owned(),
        ..Table::default()
    }
}

fn island_of(earned: &IslandEarnings) -> String {
    earned.name.clone().unwrap_or_else(|| t("earnings.unnamed").to_owned())
}

fn device_of(earned: &IslandEarnings) -> String {
    earned.device.clone().unwrap_or_else(|| t("earnings.no_device").to_owned())
}

/// What was earned on each day, by a name.
fn earned_by(days: &[Statement], name: fn(&IslandEarnings) -> String) -> Vec<Day> {
    let amounts = |day: &Statement| -> Vec<(String, f64)> {
        day.earned.iter().map(|earned| (name(earned), amount(earned.amount))).collect()
    };
    days.iter().map(|day| (day.from, amounts(day))).collect()
}

/// `GET /console/earnings`.
pub(super) async fn earnings(member: Member) -> Response {
    let path = statement_path(now().month_begin(), now().plus_ms(1));
    let answers = futures::try_join!(by_day(&member), member.visit.api.get::<Statement>(&path));
    let (days, month) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/islands"),
    };
    let rows = month.earned.iter().map(|earned| {
        let name = island_of(earned);
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
        plot(t("earnings.by_day"), &earned_by(&days, island_of)),
        plot(t("earnings.by_day_and_device"), &earned_by(&days, device_of)),
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

    fn row(day: i64, cargo: &str, key: Option<&str>, jobs: u64) -> UsageRow {
        UsageRow {
            day: Timestamp::from_unix_ms(day * DAY_MS),
            workload_slug: cargo.parse().expect("a slug"),
            key_id: key.map(|_| island_protocol::ids::ApiKeyId(Uuid::nil())),
            key_name: key.map(str::to_owned),
            jobs,
            prompt_tokens: jobs * 2,
            completion_tokens: jobs * 3,
            amount: MicroCredits::from_credits(jobs.cast_signed()),
        }
    }

    #[test]
    fn a_plot_loses_no_credits() {
        let amounts: Vec<(String, f64)> = (1..=8).map(|n| (format!("cargo-{n}"), f64::from(n))).collect();
        let day = |at| (Timestamp::from_unix_ms(at), amounts.clone());
        let Block::Plot(plot) = plot("x", &[day(0), day(DAY_MS)]) else { panic!("no plot") };
        assert_eq!(plot.columns.len(), MAX_SERIES + 1);
        assert_eq!(plot.columns[0], "cargo-8");
        for (_, values) in &plot.points {
            assert!((values.iter().sum::<f64>() - 36.0).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn rows_are_summed_by_name_and_shown_on_every_day() {
        let rows = vec![
            row(1, "story", Some("laptop"), 1),
            row(1, "echo", Some("laptop"), 2),
            row(3, "echo", None, 4),
        ];
        let by_cargo = sums(&rows, cargo_of);
        let names: Vec<(&str, u64, u64)> =
            by_cargo.iter().map(|(name, sum)| (name.as_str(), sum.jobs, sum.completion_tokens)).collect();
        assert_eq!(names, [("echo", 6, 18), ("story", 1, 3)]);
        let by_key = sums(&rows, key_of);
        assert_eq!(by_key.iter().map(|(_, sum)| sum.jobs).collect::<Vec<_>>(), [4, 3]);
        let usage = AccountUsage {
            from: Timestamp::from_unix_ms(DAY_MS),
            until: Timestamp::from_unix_ms(4 * DAY_MS),
            rows,
        };
        let days = each_day(&usage, |row| vec![(cargo_of(row), amount(row.amount))]);
        assert_eq!(days.iter().map(|(_, amounts)| amounts.len()).collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn earnings_are_summed_by_island_and_by_device() {
        let earned = |name: Option<&str>, device: Option<&str>, credits: i64| IslandEarnings {
            host_id: None,
            name: name.map(str::to_owned),
            device: device.map(str::to_owned),
            jobs: 1,
            amount: MicroCredits::from_credits(credits),
        };
        let day = Statement {
            account: island_protocol::ids::AccountId(Uuid::nil()),
            from: Timestamp::from_unix_ms(0),
            until: Timestamp::from_unix_ms(DAY_MS),
            opening: MicroCredits::ZERO,
            closing: MicroCredits::ZERO,
            totals: Vec::new(),
            earned: vec![earned(Some("cellar"), Some("cpu"), 1), earned(Some("cellar"), None, 2)],
            spent: Vec::new(),
        };
        let names = |name: fn(&IslandEarnings) -> String| -> Vec<String> {
            let (_, amounts) = earned_by(std::slice::from_ref(&day), name).remove(0);
            amounts.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(island_of), ["cellar", "cellar"]);
        assert_eq!(names(device_of), ["cpu", t("earnings.no_device")]);
    }

    #[test]
    fn filters_are_encoded_into_the_path() {
        let from = Timestamp::from_unix_ms(0);
        assert_eq!(usage_path(from, "", ""), "/account/usage?from=1970-01-01T00%3A00%3A00.000Z");
        assert!(usage_path(from, "a&b", "k").ends_with("&workload=a%26b&key=k"));
    }
}
