//! What an Island of one's own does: its load, jobs and models, what its owner should know, and what it refused.

use island_protocol::{
    fabric::{Heartbeat, RefusalCount},
    host::{GpuLoad, HostModel, RunningJob},
};
use island_protocol_api::alert::{Alert, HostAlert};

use crate::{
    pages::{duration, jobs::phase, megabytes, megabytes_of},
    texts::{fill, t},
    view::{Block, Cell, Table, Tile, Tone},
};

/// Files of models in one page, the largest first.
const MODELS: usize = 30;

/// What an owner should know at once, in words.
pub(super) fn alert(HostAlert { name, alert, .. }: &HostAlert) -> Block {
    let (tone, key, value) = match alert {
        Alert::Offline => (Tone::Bad, "alert.offline", String::new()),
        Alert::Suspended => (Tone::Bad, "alert.suspended", String::new()),
        Alert::Hot { degrees } => (Tone::Warn, "alert.hot", degrees.to_string()),
        Alert::DiskFull { free_gb } => (Tone::Warn, "alert.disk", format!("{free_gb:.0}")),
    };
    Block::Notice(tone, fill(key, &[("name", name), ("value", &value)]))
}

/// What an Island does now.
pub(super) fn load(heartbeat: &Heartbeat) -> Vec<Block> {
    let system = &heartbeat.system;
    let mut blocks = vec![Block::Tiles(vec![
        Tile::new(t("islands.processor"), Cell::number(format!("{:.0} %", system.cpu_percent))),
        Tile::new(
            t("islands.memory"),
            Cell::number(megabytes_of(system.memory_used_mb, system.memory_total_mb)),
        ),
        Tile::new(
            t("islands.disk"),
            Cell::number(format!("{:.0} / {:.0} GB", system.disk_used_gb, system.disk_total_gb)),
        ),
        Tile::new(t("islands.agent"), Cell::text(heartbeat.agent_version.clone())),
    ])];
    let table = |title: &str, columns: &[&str], rows: Vec<Vec<Cell>>, empty: &str| {
        let columns = columns.iter().map(|key| t(key).to_owned()).collect();
        let table = Table { columns, rows, empty: t(empty).to_owned(), ..Table::default() };
        Block::Panel(t(title).to_owned(), vec![Block::Table(table)])
    };
    let gpu = |gpu: &GpuLoad| {
        let percent =
            |part: Option<u32>| part.map_or(Cell::Nothing, |part| Cell::number(format!("{part} %")));
        let memory = gpu.memory_used_mb.map_or_else(
            || format!("– / {}", megabytes(gpu.memory_total_mb)),
            |used| megabytes_of(used, gpu.memory_total_mb),
        );
        vec![
            Cell::number(gpu.index),
            percent(gpu.utilization_percent),
            Cell::number(memory),
            gpu.temperature_c.map_or(Cell::Nothing, |degrees| Cell::number(format!("{degrees} °C"))),
            gpu.power_draw_w.map_or(Cell::Nothing, |watts| Cell::number(format!("{watts:.0} W"))),
        ]
    };
    if !heartbeat.gpus.is_empty() {
        blocks.push(table(
            "islands.gpus",
            &["islands.gpu", "islands.busy", "islands.memory", "islands.heat", "islands.power"],
            heartbeat.gpus.iter().map(gpu).collect(),
            "islands.no_gpu",
        ));
    }
    let job = |job: &RunningJob| {
        vec![
            Cell::Code(job.slug.to_string()),
            Cell::text(phase(&job.phase)),
            Cell::number(duration(job.duration_ms)),
        ]
    };
    blocks.push(table(
        "islands.jobs",
        &["jobs.cargo", "islands.phase", "jobs.duration"],
        heartbeat.jobs.iter().map(job).collect(),
        "islands.no_jobs",
    ));
    let memory = |mb: u64| if mb == 0 { Cell::Nothing } else { Cell::number(megabytes(mb)) };
    let model = |model: &HostModel| {
        let name = model.url.rsplit('/').next().unwrap_or(&model.url).to_owned();
        let state = if model.warm { (Tone::Good, "islands.warm") } else { (Tone::Plain, "islands.on_disk") };
        vec![
            Cell::Code(name),
            Cell::number(megabytes(model.size_mb)),
            memory(model.ram_mb),
            memory(model.vram_mb),
            Cell::Badge(state.0, t(state.1).to_owned()),
        ]
    };
    // The files of a model are listed one by one, and the small ones are many.
    let mut models: Vec<&HostModel> = heartbeat.models.iter().collect();
    models.sort_by_key(|model| std::cmp::Reverse((model.warm, model.size_mb)));
    blocks.push(table(
        "islands.models",
        &["islands.model", "islands.size", "islands.memory", "islands.gpu_memory", "islands.state"],
        models.into_iter().take(MODELS).map(model).collect(),
        "islands.no_models",
    ));
    blocks
}

/// Why the Island refused jobs since its agent started.
pub(super) fn refusals(heartbeat: &Heartbeat) -> Block {
    let row = |one: &RefusalCount| {
        let reason = serde_json::to_value(one.reason).ok();
        let reason = reason.as_ref().and_then(|name| name.as_str()).unwrap_or("other");
        vec![
            Cell::text(t(&format!("refusal.{reason}"))),
            Cell::number(one.times),
            Cell::text(one.latest.clone()),
        ]
    };
    let columns = ["refusal.reason", "refusal.times", "refusal.latest"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: heartbeat.refusals.iter().map(row).collect(),
        empty: t("refusal.none").to_owned(),
        ..Table::default()
    };
    Block::Panel(t("refusal.title").to_owned(), vec![Block::Table(table)])
}

#[cfg(test)]
mod tests {
    use askama::Template as _;
    use island_protocol::{fabric::RefusalReason, ids::HostId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::texts;

    /// What an Island sends, with some values changed.
    fn heartbeat(changes: impl FnOnce(&mut serde_json::Value)) -> Heartbeat {
        let sample = include_str!("../../../../protocol/tests/wire/heartbeat.json");
        let mut sample = serde_json::from_str(sample).expect("JSON");
        changes(&mut sample);
        serde_json::from_value(sample).expect("a heartbeat")
    }

    fn html(blocks: &[Block]) -> String {
        blocks.iter().map(|block| block.render().expect("rendered")).collect()
    }

    #[test]
    fn alerts_are_in_words() {
        let shown = |of| {
            html(&[alert(&HostAlert { host_id: HostId(Uuid::nil()), name: "cellar".into(), alert: of })])
        };
        assert!(shown(Alert::Hot { degrees: 86 }).contains("A GPU of cellar has 86 °C."));
        let full = shown(Alert::DiskFull { free_gb: 9.6 });
        assert!(full.contains("The disk of cellar is almost full: 10 GB are free."), "{full}");
        assert!(shown(Alert::Offline).contains("cellar is offline."));
        assert!(shown(Alert::Suspended).contains("cellar is suspended by an operator"));
    }

    #[test]
    fn the_load_has_gpus_jobs_and_the_memory_of_models() {
        let shown = html(&load(&heartbeat(|_| {})));
        for part in ["90 %", "19.5 / 23.4 GB", "65 °C", "llm-chat", "1.2 s", "900 MB", "loaded"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn refusals_are_in_words() {
        let shown = refusals(&heartbeat(|_| {})).render().expect("rendered");
        assert!(shown.contains("Not enough GPU memory") && shown.contains("needs 20 GB"), "{shown}");
        let none = refusals(&heartbeat(|sent| sent["refusals"] = json!([])));
        assert!(none.render().expect("rendered").contains(t("refusal.none")));
    }

    #[test]
    fn every_reason_of_a_refusal_has_a_text() {
        use RefusalReason::*;
        let all =
            [NoSlot, NoRam, NoVram, NoDisk, NoRuntime, Draining, WeakSandbox, NotAllowed, Invalid, Other];
        for reason in all {
            let name = serde_json::to_value(reason).expect("JSON");
            let key = format!("refusal.{}", name.as_str().expect("a name"));
            assert!(texts::find(&key).is_some(), "{key}");
        }
    }
}
