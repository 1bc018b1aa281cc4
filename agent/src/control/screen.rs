//! The status for a terminal: once as text, or drawn anew every second.

use std::{fmt::Write as _, io, time::Duration};

use island_protocol::{credits::MicroCredits, fabric::RefusalReason, host::Measured};
use ratatui::{
    Frame,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Bar, BarChart, BarGroup, Block, Cell, Paragraph, Row, Sparkline, Table},
};

use super::{
    client::{Control, ControlError},
    status::Status,
};
use crate::policy::Verdict;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// The status as text.
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<11} {value}");
    };
    line("Island", format!("{} ({})", status.name, status.host_id));
    line("state", state(status));
    line("coordinator", coordinator(status));
    line("earned", earned(status));
    line("machine", machine(status));
    if let Some(measured) = &status.measured {
        line("measured", speeds(measured));
    }
    for gpu in &status.gpus {
        line(&format!("GPU {}", gpu.index), gpu_line(gpu));
    }
    for note in &status.gpu_notes {
        line("note", note.clone());
    }
    line("models", models(status));
    for job in &status.jobs {
        let seconds = job.duration_ms / 1000;
        line("job", format!("{} {} {}, {seconds} s", job.key.job_id, job.slug, job.phase));
    }
    for worker in &status.workers {
        let use_ =
            format!("{}, {} MB memory, {} MB GPU memory", jobs(worker.jobs), worker.ram_mb, worker.vram_mb);
        line("engine", format!("{} {}: {use_}, pid {}", worker.cargo, worker.state, worker.pid));
    }
    for (reason, count) in &status.refusals {
        line("not taken", format!("{} x {}: {}", count.times, name(*reason), count.latest));
    }
    for reason in why_idle(status) {
        line("no work?", reason);
    }
    text
}

fn speeds(measured: &Measured) -> String {
    let others = [("disk", measured.disk_mb_s), ("link", measured.link_mb_s)];
    let mut told = format!("memory {:.1} GB/s", measured.memory_mb_s as f64 / 1e3);
    for (name, speed) in others.into_iter().filter_map(|(name, speed)| Some((name, speed?))) {
        told = format!("{told}, {name} {speed} MB/s");
    }
    told
}

/// Draws the status until `q`, Escape or Ctrl-C.
pub async fn watch(control: &Control) -> Result<(), ControlError> {
    let mut status = control.status().await?;
    let mut terminal = ratatui::init();
    let shown = loop {
        if terminal.draw(|frame| draw(frame, &status)).is_err() {
            break Ok(());
        }
        let quit = tokio::task::spawn_blocking(wants_to_quit).await;
        if !matches!(quit, Ok(Ok(false))) {
            break Ok(());
        }
        match control.status().await {
            Ok(fresh) => status = fresh,
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    shown
}

/// Waits for the next look; true if a key asked for the end.
fn wants_to_quit() -> io::Result<bool> {
    if !event::poll(EVERY)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let interrupted = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

/// One screen.
pub fn draw(frame: &mut Frame<'_>, status: &Status) {
    let [head, plots, middle, foot] = Layout::vertical([
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Min(6),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, status);
    draw_plots(frame, plots, status);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(middle);
    let rows = status.jobs.len().max(1) as u16 + 3;
    let [jobs, engines] = Layout::vertical([Constraint::Max(rows), Constraint::Min(3)]).areas(left);
    draw_jobs(frame, jobs, status);
    draw_engines(frame, engines, status);
    let [earnings, reasons] = Layout::vertical([Constraint::Length(9), Constraint::Min(3)]).areas(right);
    draw_earnings(frame, earnings, status);
    draw_reasons(frame, reasons, status);
    frame.render_widget(Line::from(" q quits; `island-agent pause 2h`, `resume`, `drain`").dim(), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let color = match status.verdict {
        _ if !status.connected => Color::Red,
        Verdict::Yes => Color::Green,
        Verdict::Finish { .. } | Verdict::Leave { .. } => Color::Yellow,
    };
    let named = |name: &'static str, value: String| {
        Line::from(vec![Span::from(format!("{name:<12}")).dim(), value.into()])
    };
    let lines = vec![
        Line::from(vec![
            Span::from(format!("{:<12}", "state")).dim(),
            Span::styled(state(status), Style::new().fg(color).bold()),
        ]),
        named("coordinator", coordinator(status)),
        named("machine", machine(status)),
        named("models", models(status)),
    ];
    let title = format!(" {} · island-agent {} ", status.name, status.version);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title.bold())), area);
}

fn draw_plots(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let series = |value: fn(&super::history::Point) -> Option<f32>| {
        status.history.iter().filter_map(value).map(|percent| percent.round() as u64).collect::<Vec<_>>()
    };
    let mut plots = vec![
        ("processors", series(|point| Some(point.cpu)), Color::Cyan),
        ("memory", series(|point| Some(point.memory)), Color::Blue),
    ];
    if !status.gpus.is_empty() {
        plots.push(("GPU", series(|point| point.gpu), Color::Magenta));
        plots.push(("GPU memory", series(|point| point.gpu_memory), Color::Red));
    }
    let areas = Layout::horizontal(vec![Constraint::Ratio(1, plots.len() as u32); plots.len()]).split(area);
    for ((name, data, color), area) in plots.into_iter().zip(areas.iter()) {
        let now = data.last().map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
        let heat = status.gpus.iter().filter_map(|gpu| gpu.temperature_c).max().filter(|_| name == "GPU");
        let heat = heat.map_or_else(String::new, |celsius| format!("{celsius} °C "));
        let block = Block::bordered().title(format!(" {name} {now} {heat}"));
        let width = usize::from(area.width.saturating_sub(2));
        let shown = &data[data.len().saturating_sub(width)..];
        frame.render_widget(Sparkline::default().block(block).data(shown).max(100).style(color), *area);
    }
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let row = |job: &island_protocol::host::RunningJob| {
        Row::new([job.slug.to_string(), job.phase.clone(), format!("{} s", job.duration_ms / 1000)])
    };
    let rows: Vec<_> = status.jobs.iter().map(row).collect();
    let empty = rows.is_empty();
    let widths = [Constraint::Fill(3), Constraint::Fill(1), Constraint::Length(9)];
    let table = Table::new(rows, widths).header(Row::new(["Cargo", "phase", "for"]).dim());
    frame.render_widget(table.block(Block::bordered().title(format!(" jobs {} ", status.jobs.len()))), area);
    if empty && area.height > 3 {
        let inner = Rect { x: area.x + 1, y: area.y + 2, width: area.width.saturating_sub(2), height: 1 };
        frame.render_widget(Line::from("none").dim(), inner);
    }
}

fn draw_engines(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let row = |worker: &super::status::Worker| {
        Row::new([
            Cell::from(worker.cargo.clone()),
            Cell::from(worker.state.clone()),
            Cell::from(format!("{} MB", worker.ram_mb)),
            Cell::from(format!("{} MB", worker.vram_mb)),
            Cell::from(if worker.jobs > 0 {
                format!("{} jobs", worker.jobs)
            } else {
                format!("idle {} s", worker.idle_s)
            }),
        ])
    };
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(12),
    ];
    let table = Table::new(status.workers.iter().map(row), widths)
        .header(Row::new(["engine", "state", "memory", "GPU", "work"]).dim());
    frame.render_widget(table.block(Block::bordered().title(" engines ")), area);
}

fn draw_earnings(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let bar = |(day, credits): &(String, MicroCredits)| {
        let short = day.get(5..).unwrap_or(day).to_owned();
        Bar::default().value(credits.0.max(0) as u64).label(short).text_value(String::new())
    };
    // As many of the latest days as have room.
    let fit = usize::from(area.width.saturating_sub(2) / 6);
    let days = &status.earned.days[status.earned.days.len().saturating_sub(fit)..];
    let bars: Vec<_> = days.iter().map(bar).collect();
    let chart =
        BarChart::default().data(BarGroup::default().bars(&bars)).bar_width(5).bar_style(Color::Green);
    frame.render_widget(chart.block(Block::bordered().title(format!(" earned: {} ", earned(status)))), area);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let refused = status
        .refusals
        .iter()
        .map(|(reason, count)| Line::from(format!("{} x {}: {}", count.times, name(*reason), count.latest)));
    let notes = status.gpu_notes.iter().cloned().map(Line::from);
    let lines: Vec<_> = why_idle(status).into_iter().map(Line::from).chain(refused).chain(notes).collect();
    let block = Block::bordered().title(" why not more work ");
    frame.render_widget(Paragraph::new(lines).wrap(ratatui::widgets::Wrap { trim: true }).block(block), area);
}

fn jobs(count: u32) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

/// Whether it works, in a few words.
fn state(status: &Status) -> String {
    match &status.verdict {
        _ if !status.connected => "not connected".to_owned(),
        Verdict::Yes if status.jobs.is_empty() => "ready, waiting for jobs".to_owned(),
        verdict => verdict.to_string(),
    }
}

fn coordinator(status: &Status) -> String {
    let link =
        if status.connected { "connected" } else { "not reached; jobs that run go on, new ones do not come" };
    format!(
        "{}, {link}; agent up {}",
        status.api_url,
        humantime::format_duration(Duration::from_secs(status.up_s))
    )
}

fn earned(status: &Status) -> String {
    let earned = &status.earned;
    format!("{} credits today in {} jobs, {} in all", earned.today, earned.jobs_today, earned.total)
}

fn machine(status: &Status) -> String {
    let system = &status.system;
    let gigabytes = |mb: u64| mb as f64 / 1024.0;
    let (used, total) = (gigabytes(system.memory_used_mb), gigabytes(system.memory_total_mb));
    format!("processors {:.0} %, memory {used:.1} of {total:.1} GB", system.cpu_percent)
}

fn gpu_line(gpu: &island_protocol::host::GpuLoad) -> String {
    let told = |value: Option<String>| value.unwrap_or_else(|| "not told".to_owned());
    let busy = told(gpu.utilization_percent.map(|percent| format!("{percent} %")));
    let heat = told(gpu.temperature_c.map(|celsius| format!("{celsius} °C")));
    let power = told(gpu.power_draw_w.map(|watts| format!("{watts:.0} W")));
    let used = told(gpu.memory_used_mb.map(|mb| mb.to_string()));
    format!("{busy}, {used} of {} MB, {heat}, {power}", gpu.memory_total_mb)
}

fn models(status: &Status) -> String {
    let fetching = status.fetching.as_ref().map_or_else(String::new, |fetching| {
        let percent = fetching.done * 100 / fetching.total.max(1);
        format!("; fetching {} ahead, {percent} % of {} MB", fetching.cargo, fetching.total >> 20)
    });
    format!("{:.1} GB on disk, room for {:.1} GB{fetching}", status.models_gb, status.room_gb)
}

/// Why jobs may stay away, as far as this Island knows.
fn why_idle(status: &Status) -> Vec<String> {
    let mut reasons = Vec::new();
    if !status.connected {
        reasons.push(
            "the coordinator is not reached: look at its address, the network and `island-agent doctor`"
                .to_owned(),
        );
    }
    if let Some(reason) = status.verdict.reason() {
        reasons.push(format!("the owner's rules: {reason}"));
    }
    if reasons.is_empty() && status.jobs.is_empty() && status.refusals.is_empty() {
        reasons.push("none of these: nobody has asked for what this Island can run".to_owned());
    }
    reasons
}

fn name(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::NoSlot => "all places taken",
        RefusalReason::NoRam => "too little memory",
        RefusalReason::NoVram => "too little GPU memory",
        RefusalReason::NoDisk => "too little disk",
        RefusalReason::NoRuntime => "no engine",
        RefusalReason::Draining => "taking no work",
        RefusalReason::WeakSandbox => "walls too low",
        RefusalReason::NotAllowed => "not allowed by the owner",
        RefusalReason::Invalid => "malformed or stale",
        RefusalReason::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use island_protocol::{
        host::{GpuLoad, RunningJob, SystemLoad},
        ids::{AttemptKey, HostId, JobId},
        time::Timestamp,
    };
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::{
        control::{
            history::Point,
            status::{Earned, Worker},
        },
        policy::{Cause, OwnerOrder},
        preload::Fetching,
        supervisor::refusals::Count,
    };

    fn status() -> Status {
        let key = AttemptKey { job_id: JobId(uuid::Uuid::from_u128(7)), attempt: 1, epoch: 1 };
        let wave = |at: i64| 50.0 + 45.0 * (at as f32 / 9.0).sin();
        let point = |at: i64| Point {
            at: Timestamp::from_unix_ms(at * 15_000),
            cpu: wave(at),
            memory: 40.0 + at as f32 / 8.0,
            gpu: Some(wave(at + 20)),
            gpu_memory: Some(60.0),
            jobs: 1,
        };
        Status {
            host_id: HostId(uuid::Uuid::from_u128(3)),
            name: "attic".into(),
            version: "0.1.0".into(),
            api_url: "https://island.example.org".into(),
            connected: true,
            up_s: 3 * 3600 + 125,
            verdict: Verdict::Yes,
            order: OwnerOrder::None,
            measured: Some(Measured {
                memory_mb_s: 38_400,
                disk_mb_s: Some(2150),
                link_mb_s: None,
                at: Timestamp::from_unix_ms(0),
            }),
            system: SystemLoad {
                cpu_percent: 37.0,
                memory_used_mb: 9000,
                memory_total_mb: 32_000,
                disk_used_gb: 100.0,
                disk_total_gb: 500.0,
            },
            gpus: vec![GpuLoad {
                index: 0,
                utilization_percent: Some(93),
                memory_used_mb: Some(14_000),
                memory_total_mb: 24_000,
                temperature_c: Some(71),
                power_draw_w: Some(287.4),
            }],
            gpu_notes: vec!["GPU 1 rests: 84 °C, the limit is 80 °C".into()],
            jobs: vec![RunningJob {
                key,
                slug: "llama-3.1-8b-instruct".parse().expect("a slug"),
                phase: "running".into(),
                duration_ms: 12_400,
                last_event: 90,
            }],
            workers: vec![Worker {
                cargo: "llama-3.1-8b-instruct".into(),
                pid: 4711,
                state: "ready".into(),
                jobs: 1,
                ram_mb: 900,
                vram_mb: 8100,
                idle_s: 0,
            }],
            models_gb: 31.5,
            room_gb: 68.5,
            fetching: Some(Fetching {
                cargo: "qwen3.5-9b".parse().expect("a slug"),
                done: 3 << 30,
                total: 6 << 30,
            }),
            refusals: BTreeMap::from([(
                RefusalReason::NoVram,
                Count { times: 3, latest: "needs 40000 MB of GPU memory, 15744 MB are free".into() },
            )]),
            earned: Earned {
                today: MicroCredits(12_500_000),
                jobs_today: 14,
                total: MicroCredits(250_000_000),
                jobs: 310,
                days: (15..=22)
                    .map(|day| (format!("2026-11-{day}"), MicroCredits(day * 1_000_000)))
                    .collect(),
            },
            history: (0..120).map(point).collect(),
        }
    }

    fn drawn(status: &Status, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, status)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_busy_island() {
        insta::assert_snapshot!(drawn(&status(), 120, 36));
    }

    #[test]
    fn a_paused_island_as_text() {
        let paused =
            Verdict::Leave { cause: Cause::InUse, reason: "somebody was here in the last 5 min".into() };
        insta::assert_snapshot!(text(&Status { verdict: paused, jobs: Vec::new(), ..status() }));
    }

    #[test]
    fn any_terminal_is_large_enough() {
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            drawn(&status(), width, height);
        }
    }
}
