//! The jobs that wait for an Island, and why; and the cancellation of any job.

use std::collections::BTreeMap;

use axum::response::Response;
use island_protocol_api::admin::{Queue, WaitingJob};

use super::{JOBS, Operator, account_id, post_reason};
use crate::{
    backend::{add_parameter, encoded},
    posted::Posted,
    texts::t,
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tile},
    web::blocks_page,
};

const PAGE: &str = "/console/admin/queue";

/// `GET /console/admin/queue`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let [cargo, reason, account] =
        ["cargo", "reason", "account"].map(|name| member.visit.param(name).unwrap_or_default().to_owned());
    let id = match account_id(&member, &account).await {
        Ok(id) => id,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let offset = member.visit.offset();
    let mut path = format!("/admin/queue?limit=25&offset={offset}");
    let mut address = format!("{PAGE}?");
    for (name, parameter, entered, value) in [
        ("cargo", "workload", &cargo, &cargo),
        ("reason", "reason", &reason, &reason),
        ("account", "account", &account, &id),
    ] {
        if !entered.is_empty() {
            add_parameter(&mut path, parameter, value);
            address = format!("{address}{name}={}&", encoded(entered));
        }
    }
    let queue = match member.visit.api.bare::<Queue>(&path).await {
        Ok(queue) => queue,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |job: &WaitingJob| {
        vec![
            // An operator reads their own jobs, and no others.
            if job.account == member.who.account {
                Cell::link(format!("/console/jobs/{}", job.id), job.id.to_string())
            } else {
                Cell::Code(job.id.to_string())
            },
            Cell::text(job.workload_slug.to_string()),
            Cell::link(
                format!("/console/admin/accounts/{}", job.account),
                job.account.to_string().chars().take(8).collect::<String>(),
            ),
            Cell::number(job.priority),
            Cell::Time(job.created_at),
            Cell::text(job.waiting_reason.clone().unwrap_or_else(|| t("queue.unknown").to_owned())),
        ]
    };
    let columns = ["queue.job", "jobs.cargo", "admin.account", "queue.priority", "jobs.created", "queue.why"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: queue.data.iter().map(row).collect(),
        empty: t("queue.none").to_owned(),
        pager: Pager::new(&address, queue.meta),
        refresh: Some(format!("{address}offset={offset}")),
        id: "queue",
        ..Table::default()
    };
    let total: u64 = queue.cargos.values().sum();
    let by_reason = most(&queue.reasons, "reason", "queue.reason");
    let cargos = queue.cargos.iter().map(|(slug, count)| (slug.to_string(), *count)).collect();
    let by_cargo = most(&cargos, "cargo", "jobs.cargo");
    let names = |counts: &BTreeMap<String, u64>, chosen: &str| {
        let all = std::iter::once((String::new(), t("queue.any").to_owned()));
        // What was chosen stays in the form when no job waits for it any longer.
        let chosen = (!chosen.is_empty() && !counts.contains_key(chosen)).then(|| chosen.to_owned());
        let names = counts.keys().cloned().chain(chosen).map(|name| (name.clone(), name));
        Kind::Choice(all.chain(names).collect())
    };
    let filter = Form::filter(
        PAGE,
        vec![
            Field::new("cargo", t("jobs.cargo"), names(&cargos, &cargo)).value(cargo),
            Field::new("reason", t("queue.reason"), names(&queue.reasons, &reason)).value(reason),
            Field::line("account", t("admin.account_filter")).value(account),
        ],
    );
    let mut frame = member.frame(t("queue.title"));
    frame.is_wide = true;
    let mut blocks = vec![Block::Tiles(vec![Tile::new(t("admin.waiting"), Cell::number(total))])];
    blocks.extend(member.dashboards(&[(JOBS, "admin.grafana_jobs")]));
    blocks.extend([
        Block::Columns(vec![
            Block::Panel(t("queue.by_reason").to_owned(), vec![Block::Table(by_reason)]),
            Block::Panel(t("queue.by_cargo").to_owned(), vec![Block::Table(by_cargo)]),
        ]),
        Block::Form(filter),
        Block::Table(table),
        Block::Panel(
            t("queue.cancel").to_owned(),
            vec![Block::Text(t("queue.cancel_help").to_owned()), Block::Form(cancellation())],
        ),
    ]);
    blocks_page(frame, t("queue.lead").to_owned(), blocks)
}

/// Takes the id of a job, because one that runs is not in the queue.
fn cancellation() -> Form {
    let fields = vec![Field::line("job", t("jobs.id")).required(), Field::reason()];
    Form::post(format!("{PAGE}/cancel"), t("queue.cancel"), fields).bad()
}

/// `POST /console/admin/queue/cancel`.
pub(super) async fn cancel(Operator(member): Operator, posted: Posted) -> Response {
    let path = format!("/admin/jobs/{}/cancel", encoded(posted.get("job")));
    match post_reason(&member, &path, &posted, PAGE, "job_cancelled").await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}

/// The names with the most jobs, each with a link to its jobs.
fn most(counts: &BTreeMap<String, u64>, parameter: &str, column: &str) -> Table {
    let mut counts: Vec<(&String, u64)> = counts.iter().map(|(name, count)| (name, *count)).collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    let row = |(name, count): &(&String, u64)| {
        let link = format!("{PAGE}?{parameter}={}", encoded(name));
        vec![Cell::link(link, (*name).clone()), Cell::number(count)]
    };
    Table {
        columns: vec![t(column).to_owned(), t("usage.count").to_owned()],
        rows: counts.iter().take(12).map(row).collect(),
        empty: t("queue.none").to_owned(),
        ..Table::default()
    }
}
