//! The page on this machine, made of the blocks that the console of the network has (0128). It is rendered for each request; a script reads
//! it again while it is shown.

use std::sync::LazyLock;

use askama::Template;
use island_console_blocks::{
    block::{Block, Cell, Plot, Table, Tile, Tone},
    text_file::Texts,
};
use island_protocol::{host::GpuLoad, time::Timestamp};

use super::{
    history::Point,
    screen,
    status::{Status, Worker},
};
use crate::owner::policy::Verdict;

/// Address of the folder of scripts and styles.
pub(super) const ASSETS: &str = "/assets";

// Read when the page is opened first: an agent whose page nobody opens does not keep it in memory.
static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts::read(include_str!("../../texts/page.toml")));

/// The text of a key, or the key itself where it has no text.
pub(crate) fn text(key: &str) -> &str {
    TEXTS.find(key).unwrap_or(key)
}

#[derive(Debug)]
struct Frame {
    title: String,
    assets: &'static str,
    scripts: &'static [&'static str],
    has_plots: bool,
}

#[derive(Debug, Template)]
#[template(path = "local.html")]
struct Page {
    frame: Frame,
    state: (Tone, String),
    /// Parts that are replaced when they change, with their ids.
    parts: Vec<(&'static str, Block)>,
}

/// The HTML of a status.
pub(super) fn html(status: &Status) -> Result<String, askama::Error> {
    let frame = Frame { title: status.name.clone(), assets: ASSETS, scripts: &["live.js"], has_plots: true };
    let parts = [
        ("notices", notices(status)),
        ("earned", Some(earned(status))),
        ("plots", Some(plots(status))),
        ("graphics", graphics(status)),
        ("work", Some(work(status))),
        ("models", Some(panel("models.title", vec![Block::Text(screen::models(status))]))),
        ("refusals", Some(panel("refusals.title", vec![Block::Table(refusals(status))]))),
    ];
    // A part without content keeps its place.
    let parts = parts.map(|(id, block)| (id, block.unwrap_or(Block::Columns(Vec::new()))));
    let page = Page { frame, state: (tone(status), screen::state(status)), parts: parts.into() };
    page.render()
}

fn tone(status: &Status) -> Tone {
    match status.verdict {
        _ if status.left || !status.connected => Tone::Bad,
        Verdict::Yes => Tone::Good,
        _ => Tone::Warn,
    }
}

fn panel(title: &str, blocks: Vec<Block>) -> Block {
    Block::Panel(text(title).to_owned(), blocks)
}

fn table(columns: &[&str], rows: Vec<Vec<Cell>>, none: &str) -> Table {
    let columns = columns.iter().map(|key| text(key).to_owned()).collect();
    Table { columns, rows, empty: text(none).to_owned(), ..Table::default() }
}

/// What the owner should see first.
fn notices(status: &Status) -> Option<Block> {
    let lines = |title: &str, lines: Vec<String>| {
        (!lines.is_empty()).then(|| panel(title, lines.into_iter().map(Block::Text).collect()))
    };
    let why = if status.connected && status.verdict.reason().is_none() {
        Vec::new()
    } else {
        screen::why_idle(status)
    };
    let why = why.into_iter().chain(status.notes.iter().cloned()).collect();
    let blocks: Vec<Block> = [lines("why.title", why), lines("network.title", status.notices.clone())]
        .into_iter()
        .flatten()
        .collect();
    (!blocks.is_empty()).then_some(Block::Columns(blocks))
}

fn earned(status: &Status) -> Block {
    let earned = &status.earned;
    let total = Tile {
        note: screen::jobs(u32::try_from(earned.jobs).unwrap_or(u32::MAX)),
        ..Tile::new(text("earned.total"), Cell::Credits(earned.total))
    };
    Block::Tiles(vec![
        Tile::new(text("earned.today"), Cell::Credits(earned.today)),
        Tile::new(text("earned.jobs"), Cell::number(earned.jobs_today)),
        total,
    ])
}

fn plots(status: &Status) -> Block {
    let days: Vec<_> = status
        .earned
        .days
        .iter()
        .filter_map(|(day, credits)| Some((day_begin(day)?, vec![credits.0 as f64 / 1e6])))
        .collect();
    let credits = Plot {
        title: text("earned.by_day").to_owned(),
        columns: vec![text("earned.credits").to_owned()],
        points: days,
        is_bars: true,
    };
    Block::Columns(vec![load(&status.history), Block::Plot(credits)])
}

/// A day as earnings name it, `2026-11-20`.
fn day_begin(day: &str) -> Option<Timestamp> {
    serde_json::from_value(format!("{day}T00:00:00Z").into()).ok()
}

/// The load of the last hour, without what this machine does not have.
fn load(points: &[Point]) -> Block {
    type Series = (&'static str, fn(&Point) -> Option<f32>);
    let all: [Series; 4] = [
        ("load.cpu", |point| Some(point.cpu)),
        ("load.memory", |point| Some(point.memory)),
        ("load.gpu", |point| point.gpu),
        ("load.gpu_memory", |point| point.gpu_memory),
    ];
    let known: Vec<Series> =
        all.into_iter().filter(|(_, value)| points.iter().any(|point| value(point).is_some())).collect();
    let values = |point: &Point| {
        known.iter().map(|(_, value)| f64::from(value(point).unwrap_or(0.0)).round()).collect()
    };
    Block::Plot(Plot {
        title: text("load.title").to_owned(),
        columns: known.iter().map(|(key, _)| text(key).to_owned()).collect(),
        points: points.iter().map(|point| (point.at, values(point))).collect(),
        is_bars: false,
    })
}

fn graphics(status: &Status) -> Option<Block> {
    if status.gpus.is_empty() && status.gpu_notes.is_empty() && status.engines.is_empty() {
        return None;
    }
    let known = |value: Option<String>| value.map_or(Cell::Nothing, Cell::Number);
    let row = |gpu: &GpuLoad| {
        let memory = gpu.memory_used_mb.map(|used| format!("{used} / {} MB", gpu.memory_total_mb));
        vec![
            Cell::number(gpu.index),
            known(gpu.utilization_percent.map(|percent| format!("{percent} %"))),
            known(memory),
            known(gpu.temperature_c.map(|celsius| format!("{celsius} °C"))),
            known(gpu.power_draw_w.map(|watts| format!("{watts:.0} W"))),
        ]
    };
    let columns = ["gpus.gpu", "gpus.load", "gpus.memory", "gpus.temperature", "gpus.power"];
    let gpus = table(&columns, status.gpus.iter().map(row).collect(), "gpus.none");
    let engines = status
        .engines
        .iter()
        .map(|engine| vec![Cell::text(engine.engine.clone()), Cell::text(engine.in_words())]);
    let engines = table(&["engines.engine", "engines.runs_on"], engines.collect(), "engines.none");
    let notes = status.gpu_notes.iter().map(|note| Block::Notice(Tone::Warn, note.clone()));
    let gpus = std::iter::once(Block::Table(gpus)).chain(notes).collect();
    Some(Block::Columns(vec![panel("gpus.title", gpus), panel("engines.title", vec![Block::Table(engines)])]))
}

fn work(status: &Status) -> Block {
    let jobs = status.jobs.iter().map(|job| {
        vec![
            Cell::text(job.slug.to_string()),
            Cell::text(job.phase.clone()),
            Cell::number(job.duration_ms / 1000),
        ]
    });
    let jobs = table(&["jobs.cargo", "jobs.phase", "jobs.seconds"], jobs.collect(), "jobs.none");
    let row = |worker: &Worker| {
        vec![
            Cell::text(worker.cargo.clone()),
            Cell::text(worker.state.clone()),
            Cell::number(worker.jobs),
            Cell::number(worker.ram_mb),
            Cell::number(worker.vram_mb),
        ]
    };
    let columns = ["engines.engine", "workers.state", "workers.jobs", "workers.memory", "workers.gpu_memory"];
    let workers = table(&columns, status.workers.iter().map(row).collect(), "workers.none");
    Block::Columns(vec![
        panel("jobs.title", vec![Block::Table(jobs)]),
        panel("workers.title", vec![Block::Table(workers)]),
    ])
}

fn refusals(status: &Status) -> Table {
    let rows = status.refusals.iter().map(|(reason, count)| {
        let reason = serde_json::to_value(reason).ok().and_then(|name| name.as_str().map(str::to_owned));
        vec![
            Cell::Code(reason.unwrap_or_default()),
            Cell::number(count.times),
            Cell::text(count.latest.clone()),
        ]
    });
    table(&["refusals.reason", "refusals.times", "refusals.latest"], rows.collect(), "refusals.none")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use island_console_blocks::check;

    use super::*;
    use crate::control::screen::tests::status;

    #[test]
    fn every_key_that_is_used_has_a_text_and_every_text_is_used() {
        let root = Path::new(".");
        let (page, template) = (root.join("src/control/page.rs"), root.join("templates/local.html"));
        // Keys are also elements of lists, so every string that begins as one counts.
        let source = std::fs::read_to_string(page).expect("the source");
        let source = source.split("#[cfg(test)]").next().expect("the part before the tests");
        let is_key = |word: &&str| {
            let parts = word.split_once('.');
            let plain = |part: &str| {
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            parts.is_some_and(|(section, key)| {
                plain(section) && plain(key) && !["js", "html", "toml"].contains(&key)
            })
        };
        let mut used: std::collections::BTreeSet<String> =
            source.split('"').filter(is_key).map(str::to_owned).collect();
        used.extend(check::keys(&[&template], &["text(\""]));
        assert!(used.len() > 30, "{used:?}");
        assert_eq!(used, TEXTS.keys(), "texts/page.toml has the keys that are used, and no others");
    }

    #[test]
    fn no_template_turns_escaping_off() {
        check::escaping(Path::new("templates"));
    }

    #[test]
    fn the_page_shows_the_status_and_what_others_wrote_is_text() {
        let hostile = "<script>alert(1)</script>";
        let status = Status { notices: vec![hostile.to_owned()], name: hostile.to_owned(), ..status() };
        let page = html(&status).expect("a page");
        assert!(!page.contains(hostile), "{page}");
        for part in
            ["llama-3.1-8b-instruct", "needs 40000 MB of GPU memory", "287 W", "84 °C, the limit is 80 °C"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        // Both plots have the tables that they are drawn from.
        assert_eq!(page.matches("<figure class=\"plot\"").count(), 2);
        assert!(page.contains(text("load.gpu_memory")) && page.contains(text("earned.by_day")), "{page}");
        let refused = Status { connected: false, refusal: Some("upgrade island-agent".to_owned()), ..status };
        let page = html(&refused).expect("a page");
        assert!(
            page.contains("refused by the coordinator") && page.contains("upgrade island-agent"),
            "{page}"
        );
        assert!(page.contains(text("why.title")), "{page}");
    }
}
