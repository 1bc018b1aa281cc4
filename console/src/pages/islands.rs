//! Islands: all of the network, and what their owners see of their own.

mod control;
mod load;

use axum::{extract::Path, response::Response};
use island_protocol::{fabric::Heartbeat, host::SandboxLevel};
use island_protocol_api::{
    Data, HostView, Page, Pair,
    advice::{Advice, Change, Improvement},
    alert::HostAlert,
    recommendation::Recommendations,
};

pub(super) use self::control::order;
use self::{
    control::control,
    load::{alert, load, refusals},
};
use super::megabytes;
use crate::{
    backend::{add_parameter, encoded},
    posted::Posted,
    session::{OwnIsland, paths},
    texts::{fill, t},
    view::{Block, Card, Cell, Field, Form, Kind, Live, Pager, Table, Tone},
    web::{Member, done},
};

/// Islands in one page.
const PAGE: u64 = 60;
/// The alerts of all Islands of the account.
const ALERTS: &str = "/hosts/alerts";

pub(super) fn badge(status: &str) -> (Tone, String) {
    let tone = match status {
        "online" => Tone::Good,
        "offline" | "suspended" => Tone::Bad,
        _ => Tone::Warn,
    };
    (tone, t(&format!("island.{status}")).to_owned())
}

/// The states by which lists are filtered, with their texts.
pub(super) fn states() -> Vec<(String, String)> {
    let states = ["", "online", "draining", "paused", "suspended", "offline"];
    let text = |state: &str| {
        let key = if state.is_empty() { "islands.any" } else { &format!("island.{state}") };
        t(key).to_owned()
    };
    states.iter().map(|state| ((*state).to_owned(), text(state))).collect()
}

/// `GET /console/islands`.
pub(super) async fn list(member: Member) -> Response {
    let api = &member.visit.api;
    let search = member.visit.param("q").unwrap_or_default();
    let state = member.visit.param("status").unwrap_or_default();
    let mut path = format!("/hosts?own=false&limit={PAGE}&offset={}", member.visit.offset());
    for (name, value) in [("q", search), ("status", state)] {
        if !value.is_empty() {
            add_parameter(&mut path, name, value);
        }
    }
    let answers = futures::try_join!(
        api.get::<Vec<HostView>>("/hosts?own=true"),
        api.page::<HostView>(&path),
        api.bare::<Vec<OwnIsland>>(paths::ISLANDS),
        api.get::<Vec<HostAlert>>(ALERTS)
    );
    let (islands, others, own, alerts) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let heartbeat =
        |island: &HostView| own.iter().find(|own| own.id == island.id).and_then(|own| own.heartbeat.as_ref());
    let mine: Vec<Card> = islands.iter().map(|island| card(island, heartbeat(island))).collect();
    let mut blocks: Vec<Block> = alerts.iter().map(alert).collect();
    blocks.push(Block::Heading(t("islands.own").to_owned()));
    blocks.push(if mine.is_empty() { Block::Text(t("islands.none").to_owned()) } else { Block::Cards(mine) });
    let code = Field::line("code", t("islands.code")).required().help(t("islands.code_help"));
    let pair = Form::post("/console/islands", t("islands.pair"), vec![code]);
    blocks.push(Block::Panel(
        t("islands.add").to_owned(),
        vec![Block::Text(t("islands.add_help").to_owned()), Block::Form(pair)],
    ));
    blocks.push(Block::Heading(fill("islands.others", &[("count", &others.meta.total.to_string())])));
    let address = format!("/console/islands?q={}&status={}&", encoded(search), encoded(state));
    blocks.push(Block::Form(Form::filter(
        "/console/islands",
        vec![
            Field::line("q", t("islands.search")).value(member.visit.param("q").unwrap_or_default()),
            Field::new("status", t("islands.status"), Kind::Choice(states())).value(state),
        ],
    )));
    blocks.push(Block::Table(table(&others, &address)));
    let mut frame = member.frame(t("islands.title"));
    frame.is_wide = true;
    crate::web::blocks_page(frame, t("islands.lead").to_owned(), blocks)
}

fn table(islands: &Page<HostView>, address: &str) -> Table {
    let row = |island: &HostView| {
        let (tone, text) = badge(&island.status);
        let gpus = island.capabilities.as_ref().map(|of| {
            let names: Vec<&str> = of.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
            names.join(", ")
        });
        vec![
            Cell::link(format!("/console/islands/{}", island.id), island.name.clone()),
            Cell::Badge(tone, text),
            Cell::text(island.region.clone().unwrap_or_default()),
            Cell::text(gpus.unwrap_or_default()),
            Cell::number(format!("{:.1}", island.karma)),
            island.tokens_per_second.map_or(Cell::Nothing, |speed| Cell::number(format!("{speed:.0}"))),
        ]
    };
    let columns = [
        "islands.name",
        "islands.status",
        "islands.region",
        "islands.gpus",
        "islands.karma",
        "islands.speed",
    ];
    Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: islands.data.iter().map(row).collect(),
        empty: t("islands.no_others").to_owned(),
        pager: Pager::new(address, islands.meta),
        id: "islands",
        ..Table::default()
    }
}

fn card(island: &HostView, heartbeat: Option<&Heartbeat>) -> Card {
    let mut facts = vec![(t("islands.karma").to_owned(), Cell::number(format!("{:.1} h", island.karma)))];
    if let Some(heartbeat) = heartbeat {
        facts.push((t("islands.jobs").to_owned(), Cell::number(heartbeat.jobs.len())));
        let hottest = heartbeat.gpus.iter().filter_map(|gpu| gpu.temperature_c).max();
        facts.extend(
            hottest.map(|degrees| (t("islands.heat").to_owned(), Cell::number(format!("{degrees} °C")))),
        );
    }
    Card {
        href: format!("/console/islands/{}", island.id),
        title: island.name.clone(),
        note: String::new(),
        text: String::new(),
        badges: vec![badge(&island.status)],
        facts,
    }
}

/// `POST /console/islands`: ties an Island to the account by its code.
pub(super) async fn pair(member: Member, posted: Posted) -> Response {
    let request = Pair { code: posted.get("code").to_owned() };
    match member.visit.api.post::<Data<HostView>>("/hosts/pair", &request).await {
        Ok(Data { data }) => done(&format!("/console/islands/{}", data.id), "paired"),
        Err(failure) => member.again(failure, posted, "/console/islands", list).await,
    }
}

/// `GET /console/islands/:id`.
pub(super) async fn get(member: Member, Path(id): Path<String>) -> Response {
    let api = &member.visit.api;
    let path = format!("/hosts/{}", encoded(&id));
    let recommended = format!("/island/recommendations?host_id={}", encoded(&id));
    let improved = format!("{path}/advice");
    // The rest of the page is shown without advice, which only owners get.
    let answers = futures::try_join!(
        api.get::<HostView>(&path),
        api.bare::<Vec<OwnIsland>>(paths::ISLANDS),
        api.get::<Vec<HostAlert>>(ALERTS),
        async { Ok(api.bare::<Recommendations>(&recommended).await.ok()) },
        async { Ok(api.get::<Advice>(&improved).await.ok()) },
    );
    let (island, own, alerts, advice, improved) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, "/console/islands"),
    };
    let own = own.into_iter().find(|own| own.id == island.id);
    let heartbeat = own.as_ref().and_then(|own| own.heartbeat.as_ref());
    let mut now: Vec<Block> = alerts.iter().filter(|one| one.host_id == island.id).map(alert).collect();
    now.push(about(&island));
    now.extend(heartbeat.map(load).into_iter().flatten());
    let mut blocks = if own.is_some() {
        vec![Block::Live(Live { id: "now", address: member.visit.path.clone(), blocks: now })]
    } else {
        now
    };
    blocks.extend(hardware(&island));
    if let Some(heartbeat) = heartbeat {
        blocks.push(refusals(heartbeat));
    }
    blocks.extend(advice.filter(|_| own.is_some()).map(|advice| preload(&advice)));
    if own.is_some() {
        blocks.extend(improved.map(|advice| improvements(&advice)));
        blocks.push(control(&island, heartbeat.and_then(|heartbeat| heartbeat.control)));
    }
    member.page(island.name.clone(), "", blocks)
}

/// What everybody sees of an Island at once.
fn about(island: &HostView) -> Block {
    let (tone, text) = badge(&island.status);
    Block::Facts(vec![
        (t("islands.status").to_owned(), Cell::Badge(tone, text)),
        (t("islands.region").to_owned(), Cell::text(island.region.clone().unwrap_or_default())),
        (t("islands.karma").to_owned(), Cell::number(format!("{:.1} h", island.karma))),
        (t("islands.seen").to_owned(), Cell::time(island.last_heartbeat_at)),
        (t("islands.id").to_owned(), Cell::Code(island.id.to_string())),
    ])
}

/// Which models to download before jobs need them.
fn preload(advice: &Recommendations) -> Block {
    let rows = advice.recommendations.iter().take(10).map(|one| {
        vec![
            Cell::link(
                format!("/console/cargos/{}", encoded(&one.workload_slug.to_string())),
                one.workload_slug.to_string(),
            ),
            Cell::number(&one.estimated_earnings_per_job),
            Cell::number(one.queued_demand),
        ]
    });
    let columns = ["jobs.cargo", "islands.per_job", "islands.queued"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: rows.collect(),
        empty: t("islands.no_advice").to_owned(),
        ..Table::default()
    };
    Block::Panel(t("islands.advice").to_owned(), vec![Block::Table(table)])
}

/// Which one change would have earned more yesterday.
fn improvements(advice: &Advice) -> Block {
    let row = |one: &Improvement| {
        let cargos: Vec<String> = one.cargos.iter().take(3).map(ToString::to_string).collect();
        let more = one.cargos.len() - cargos.len();
        let rest = if more > 0 { format!(" +{more}") } else { String::new() };
        vec![
            Cell::text(change(&one.change)),
            Cell::Credits(one.credits),
            Cell::number(one.jobs),
            Cell::text(format!("{}{rest}", cargos.join(", "))),
        ]
    };
    let columns = ["advice.change", "advice.credits", "usage.count", "jobs.cargo"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: advice.improvements.iter().take(5).map(row).collect(),
        empty: t("advice.none").to_owned(),
        ..Table::default()
    };
    Block::Panel(
        t("advice.title").to_owned(),
        vec![Block::Text(t("advice.help").to_owned()), Block::Table(table)],
    )
}

fn change(change: &Change) -> String {
    let (key, value) = match change {
        Change::Availability => ("advice.availability", String::new()),
        Change::Engine { engine } => ("advice.engine", engine.to_string()),
        Change::Tier { tier } => ("advice.tier", <&str>::from(*tier).to_owned()),
        Change::Egress => ("advice.egress", String::new()),
        Change::Price => ("advice.price", String::new()),
        Change::Hub => ("advice.hub", String::new()),
        Change::MainMemory { mb } => ("advice.main_memory", megabytes(*mb)),
        Change::GpuMemory { mb } => ("advice.gpu_memory", megabytes(*mb)),
    };
    fill(key, &[("value", &value)])
}

fn hardware(island: &HostView) -> Vec<Block> {
    let Some(of) = &island.capabilities else { return Vec::new() };
    let sandbox = match of.sandbox.level {
        SandboxLevel::Full => (Tone::Good, "island.sandbox_full"),
        SandboxLevel::Partial => (Tone::Warn, "island.sandbox_partial"),
        SandboxLevel::None => (Tone::Bad, "island.sandbox_none"),
    };
    let mut facts = vec![
        (t("islands.platform").to_owned(), Cell::text(of.platform.clone())),
        (t("islands.processor").to_owned(), Cell::text(format!("{} × {}", of.cpu_cores, of.cpu_model))),
        (t("islands.memory").to_owned(), Cell::text(megabytes(of.ram_mb))),
        (t("islands.sandbox").to_owned(), Cell::Badge(sandbox.0, t(sandbox.1).to_owned())),
    ];
    facts.extend(of.gpus.iter().map(|gpu| {
        (t("islands.gpu").to_owned(), Cell::text(format!("{}, {}", gpu.name, megabytes(gpu.vram_mb))))
    }));
    facts.extend(
        of.no_gpu_reason.iter().map(|reason| (t("islands.gpu").to_owned(), Cell::text(reason.clone()))),
    );
    facts.extend(
        island
            .tokens_per_second
            .map(|speed| (t("islands.speed").to_owned(), Cell::number(format!("{speed:.1}")))),
    );
    let row = |report: &island_protocol::host::RuntimeReport| {
        let state = if report.available {
            (Tone::Good, "island.available")
        } else {
            (Tone::Warn, "island.unavailable")
        };
        vec![
            Cell::Code(report.kind.to_string()),
            Cell::Badge(state.0, t(state.1).to_owned()),
            Cell::text(report.version.clone().unwrap_or_default()),
            Cell::text(report.reason.clone().unwrap_or_default()),
        ]
    };
    let columns = ["islands.engine", "islands.state", "islands.version", "islands.reason"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: of.runtimes.iter().map(row).collect(),
        ..Table::default()
    };
    vec![
        Block::Panel(t("islands.hardware").to_owned(), vec![Block::Facts(facts)]),
        Block::Panel(t("islands.engines").to_owned(), vec![Block::Table(table)]),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An Island in this state.
    pub(super) fn island(status: &str) -> HostView {
        let island = json!({
            "id": "0192f1a0-0000-7000-8000-000000000000",
            "name": "cellar",
            "status": status,
            "region": null,
            "karma": 1.0,
            "karma_score": 0.5,
            "capabilities": null,
            "last_heartbeat_at": null,
        });
        serde_json::from_value(island).expect("an Island")
    }
}
