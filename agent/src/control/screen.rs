//! The status for a terminal: once as text, or redrawn every second.

use std::{fmt::Write as _, io, time::Duration};

use island_protocol::{credits::MicroCredits, fabric::RefusalReason, host::Measured};
use ratatui::{
    DefaultTerminal, Frame,
    crossterm::{
        event::{self, Event, KeyCode, KeyModifiers},
        terminal,
    },
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize as _},
    text::{Line, Span},
    widgets::{Bar, BarChart, BarGroup, Block, Cell, Paragraph, Row, Sparkline, Table},
};

use super::{
    client::{Control, ControlError},
    history,
    status::Status,
};
use crate::{
    clock,
    owner::policy::{OwnerOrder, Verdict},
};

/// Time between two updates.
const EVERY: Duration = Duration::from_secs(1);
/// Columns from which tables and earnings stand beside each other.
const WIDE: u16 = 100;
/// Rows of the chart of earnings.
const CHART: u16 = 9;
/// Columns of a label.
const LABEL: usize = 12;

/// Returns the columns of the terminal.
pub fn width() -> usize {
    terminal::size().map_or(80, |(columns, _)| usize::from(columns))
}

/// Breaks `text` between words into lines of at most `width` characters; longer words are broken too. Returns at least one line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("at least one line");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.extend((gap > 0).then_some(' ').into_iter().chain(word));
                break;
            }
            if used > 0 {
                lines.push(String::new());
            } else {
                line.extend(word.drain(..width));
            }
        }
    }
    lines
}

/// Returns the status as text, wrapped to `width` columns if one is given.
pub fn text(status: &Status, width: Option<usize>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let lines =
            width.map_or_else(|| vec![value.clone()], |width| wrap(&value, width.saturating_sub(LABEL)));
        for (number, part) in lines.iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            let _ = writeln!(text, "{name:<LABEL$}{part}");
        }
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
    for engine in &status.engines {
        line("runs on", format!("{}: {}", engine.engine, engine.in_words()));
    }
    for note in status.notes.iter().chain(&status.gpu_notes) {
        line("note", note.clone());
    }
    for notice in &status.notices {
        line("network", notice.clone());
    }
    line("models", models(status));
    for job in &status.jobs {
        let seconds = job.duration_ms / 1000;
        line("job", format!("{} {} {}, {seconds} s", job.key.job_id, job.slug, job.phase));
    }
    for worker in &status.workers {
        let usage =
            format!("{}, {} MB memory, {} MB GPU memory", jobs(worker.jobs), worker.ram_mb, worker.vram_mb);
        line("engine", format!("{} {}: {usage}, pid {}", worker.cargo, worker.state, worker.pid));
    }
    for (reason, count) in &status.refusals {
        line("refused", format!("{} x {}: {}", count.times, name(*reason), count.latest));
    }
    for reason in why_idle(status) {
        line("why idle", reason);
    }
    text
}

fn speeds(measured: &Measured) -> String {
    let others = [("disk", measured.disk_mb_s), ("link", measured.link_mb_s)];
    let mut text = format!("memory {:.1} GB/s", measured.memory_mb_s as f64 / 1e3);
    for (name, speed) in others.into_iter().filter_map(|(name, speed)| Some((name, speed?))) {
        text = format!("{text}, {name} {speed} MB/s");
    }
    text
}

/// Draws the status until `q`, Escape or Ctrl-C. The inner error is the terminal's.
pub async fn watch(control: &Control) -> Result<io::Result<()>, ControlError> {
    let status = control.status().await?;
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => {
            let _ = terminal::disable_raw_mode();
            return Ok(Err(error));
        }
    };
    let shown = draw_until_quit(&mut terminal, control, status).await;
    let restored = ratatui::try_restore();
    shown.map(|drawn| drawn.and(restored))
}

async fn draw_until_quit(
    terminal: &mut DefaultTerminal,
    control: &Control,
    mut status: Status,
) -> Result<io::Result<()>, ControlError> {
    loop {
        if let Err(error) = terminal.draw(|frame| draw(frame, &status)) {
            return Ok(Err(error));
        }
        match tokio::task::spawn_blocking(next_key).await {
            Ok(Ok(Key::None)) => {}
            Ok(Ok(Key::Order(order))) => {
                control.set_order(order).await?;
            }
            Ok(Ok(Key::Quit)) | Err(_) => return Ok(Ok(())),
            Ok(Err(error)) => return Ok(Err(error)),
        }
        status = control.status().await?;
    }
}

/// What a key requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    None,
    Quit,
    Order(OwnerOrder),
}

/// Waits for a key until the next update.
fn next_key() -> io::Result<Key> {
    if !event::poll(EVERY)? {
        return Ok(Key::None);
    }
    let Event::Key(key) = event::read()? else { return Ok(Key::None) };
    Ok(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('p') => Key::Order(OwnerOrder::Pause { until: None }),
        KeyCode::Char('d') => Key::Order(OwnerOrder::Drain),
        KeyCode::Char('r') => Key::Order(OwnerOrder::None),
        _ => Key::None,
    })
}

/// Draws one screen. Below [`WIDE`] columns everything is stacked; what has no rows left is omitted: first the plots, then the engines.
pub fn draw(frame: &mut Frame<'_>, status: &Status) {
    let area = frame.area();
    let head = head_lines(status, usize::from(area.width.saturating_sub(2)));
    let head_rows = head.len() as u16 + 2;
    let [head_area, rest, foot] =
        Layout::vertical([Constraint::Length(head_rows), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    let title = format!(" {} · island-agent {} ", status.name, status.version);
    frame.render_widget(Paragraph::new(head).block(Block::bordered().title(title.bold())), head_area);
    if area.width < WIDE {
        draw_stacked(frame, rest, status);
    } else {
        draw_wide(frame, rest, status);
    }
    frame.render_widget(Line::from(" q quit  p pause  d drain  r resume").dim(), foot);
}

fn draw_wide(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let plots_rows = if area.height >= 7 + 8 { 7 } else { 0 };
    let [plots, middle] = Layout::vertical([Constraint::Length(plots_rows), Constraint::Min(0)]).areas(area);
    draw_plots(frame, plots, status);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(middle);
    let rows = status.jobs.len().max(1) as u16 + 3;
    let [jobs, engines] = Layout::vertical([Constraint::Max(rows), Constraint::Min(3)]).areas(left);
    draw_jobs(frame, jobs, status);
    draw_engines(frame, engines, status);
    let chart_rows = if right.height >= CHART + 6 { CHART } else { 0 };
    let [earnings, reasons] =
        Layout::vertical([Constraint::Length(chart_rows), Constraint::Min(0)]).areas(right);
    draw_earnings(frame, earnings, status);
    draw_reasons(frame, reasons, status);
}

fn draw_stacked(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let reasons = reason_lines(status, usize::from(area.width.saturating_sub(2)));
    let jobs_rows = status.jobs.len().clamp(1, 4) as u16 + 3;
    let reasons_rows = (reasons.len().min(5) as u16) + 2;
    let left = area.height.saturating_sub(jobs_rows + reasons_rows);
    let engines_rows = if left >= 4 { (status.workers.len().clamp(1, 4) as u16 + 3).min(left) } else { 0 };
    let plots_rows = (left - engines_rows).min(7);
    let plots_rows = if plots_rows >= 3 { plots_rows } else { 0 };
    let [plots, jobs, engines, foot] = Layout::vertical([
        Constraint::Length(plots_rows),
        Constraint::Length(jobs_rows),
        Constraint::Length(engines_rows),
        Constraint::Min(0),
    ])
    .areas(area);
    draw_plots(frame, plots, status);
    draw_jobs(frame, jobs, status);
    draw_engines(frame, engines, status);
    draw_reasons(frame, foot, status);
}

/// The lines of the head: labels and values, wrapped to `width`.
fn head_lines(status: &Status, width: usize) -> Vec<Line<'static>> {
    let color = match status.verdict {
        _ if status.left || !status.connected => Color::Red,
        Verdict::Yes => Color::Green,
        Verdict::Finish { .. } | Verdict::Leave { .. } => Color::Yellow,
    };
    let fields = [
        ("state", state(status), Style::new().fg(color).bold()),
        ("coordinator", coordinator(status), Style::new()),
        ("earned", earned(status), Style::new()),
        ("machine", machine(status), Style::new()),
        ("models", models(status), Style::new()),
    ];
    let lines = fields.into_iter().flat_map(|(name, value, style)| {
        let parts = wrap(&value, width.saturating_sub(LABEL));
        parts.into_iter().enumerate().map(move |(number, part)| {
            let name = if number == 0 { name } else { "" };
            Line::from(vec![Span::from(format!("{name:<LABEL$}")).dim(), Span::styled(part, style)])
        })
    });
    lines.collect()
}

fn draw_plots(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    if area.height < 3 {
        return;
    }
    let series = |value: fn(&history::Point) -> Option<f32>| {
        status.history.iter().filter_map(value).map(|percent| percent.round() as u64).collect::<Vec<_>>()
    };
    let system = &status.system;
    let memory = system.memory_used_mb as f32 * 100.0 / system.memory_total_mb.max(1) as f32;
    let mut plots = vec![
        ("processors", Some(system.cpu_percent), series(|point| Some(point.cpu)), Color::Cyan),
        ("memory", Some(memory), series(|point| Some(point.memory)), Color::Blue),
    ];
    if !status.gpus.is_empty() {
        let (gpu, gpu_memory) = (series(|point| point.gpu), series(|point| point.gpu_memory));
        let now = |data: &[u64]| data.last().map(|percent| *percent as f32);
        plots.push(("GPU", now(&gpu), gpu, Color::Magenta));
        plots.push(("GPU memory", now(&gpu_memory), gpu_memory, Color::Red));
    }
    // As many as fit with their titles.
    plots.truncate(usize::from(area.width / 20).max(1));
    let areas = Layout::horizontal(vec![Constraint::Ratio(1, plots.len() as u32); plots.len()]).split(area);
    for ((name, now, data, color), area) in plots.into_iter().zip(areas.iter()) {
        let now = now.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %"));
        let heat = status.gpus.iter().filter_map(|gpu| gpu.temperature_c).max().filter(|_| name == "GPU");
        let heat = heat.map_or_else(String::new, |celsius| format!("{celsius} °C "));
        let width = usize::from(area.width.saturating_sub(2));
        let minutes = width as u64 * history::STEP.as_secs() / 60;
        let scale = format!(" 0-100 %, {minutes} min ");
        let block = Block::bordered().title(format!(" {name} {now} {heat}")).title_bottom(scale);
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
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(7)];
    let table = Table::new(rows, widths).header(Row::new(["Cargo", "phase", "for"]).dim());
    frame.render_widget(table.block(Block::bordered().title(format!(" jobs {} ", status.jobs.len()))), area);
    if empty && area.height > 3 {
        let inner = Rect { x: area.x + 1, y: area.y + 2, width: area.width.saturating_sub(2), height: 1 };
        frame.render_widget(Line::from("none").dim(), inner);
    }
}

/// Columns that leave less than 20 characters for the name are omitted, memory first.
fn draw_engines(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    type Column = (&'static str, u16, fn(&super::status::Worker) -> String);
    let all: [Column; 4] =
        [
            ("work", 10, |worker| {
                if worker.jobs > 0 { jobs(worker.jobs) } else { format!("idle {} s", worker.idle_s) }
            }),
            ("state", 7, |worker| worker.state.clone()),
            ("GPU", 9, |worker| format!("{} MB", worker.vram_mb)),
            ("memory", 9, |worker| format!("{} MB", worker.ram_mb)),
        ];
    let mut left = area.width.saturating_sub(2 + 20);
    let columns: Vec<_> = all
        .into_iter()
        .take_while(|(_, width, _)| {
            let fits = left > *width;
            left = left.saturating_sub(width + 1);
            fits
        })
        .collect();
    let cells = |worker| {
        let others = columns.iter().map(|(_, _, value)| Cell::from(value(worker)));
        Row::new(std::iter::once(Cell::from(worker.cargo.clone())).chain(others))
    };
    let widths = std::iter::once(Constraint::Fill(1))
        .chain(columns.iter().map(|(_, width, _)| Constraint::Length(*width)));
    let header = Row::new(std::iter::once("engine").chain(columns.iter().map(|(name, ..)| *name)));
    let table = Table::new(status.workers.iter().map(cells), widths).header(header.dim());
    frame.render_widget(table.block(Block::bordered().title(" engines ")), area);
}

fn draw_earnings(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let bar = |(day, credits): &(String, MicroCredits)| {
        let short = day.get(5..).unwrap_or(day).to_owned();
        Bar::default().value(credits.0.max(0) as u64).label(short).text_value(String::new())
    };
    // The latest days, as many as fit.
    let fit = usize::from(area.width.saturating_sub(2) / 6);
    let days = &status.earned.days[status.earned.days.len().saturating_sub(fit)..];
    let highest = days.iter().map(|(_, credits)| *credits).max().unwrap_or_default();
    let bars: Vec<_> = days.iter().map(bar).collect();
    let chart =
        BarChart::default().data(BarGroup::default().bars(&bars)).bar_width(5).bar_style(Color::Green);
    let title = format!(" credits by day, highest {highest} ");
    frame.render_widget(chart.block(Block::bordered().title(title)), area);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, status: &Status) {
    let lines: Vec<_> =
        reason_lines(status, usize::from(area.width.saturating_sub(2))).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" why not more work ")), area);
}

fn reason_lines(status: &Status, width: usize) -> Vec<String> {
    let refused = status
        .refusals
        .iter()
        .map(|(reason, count)| format!("{} x {}: {}", count.times, name(*reason), count.latest));
    let notes = status.notes.iter().chain(&status.gpu_notes).cloned();
    let lines = why_idle(status).into_iter().chain(refused).chain(notes);
    let notices = status.notices.iter().map(|notice| format!("the network: {notice}"));
    lines.chain(notices).flat_map(|line| wrap(&line, width)).collect()
}

pub(super) fn jobs(count: u32) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

/// Whether the Island works, in a few words.
pub(super) fn state(status: &Status) -> String {
    match &status.verdict {
        _ if status.left => "left the network".to_owned(),
        _ if status.refusal.is_some() => "refused by the coordinator".to_owned(),
        _ if !status.connected => "not connected".to_owned(),
        Verdict::Yes if status.jobs.is_empty() => "ready, waiting for jobs".to_owned(),
        verdict => match status.order {
            OwnerOrder::Pause { until: Some(until) } => {
                let left_ms = until.unix_ms() - clock::now().unix_ms();
                format!("{verdict} ({} left)", span(Duration::from_millis(left_ms.max(0) as u64)))
            }
            _ => verdict.to_string(),
        },
    }
}

/// A duration in its two largest units: `1 h 59 min`.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

fn coordinator(status: &Status) -> String {
    let link = match status {
        Status { left: true, .. } => "not enrolled",
        Status { connected: true, .. } => "connected",
        Status { refusal: Some(_), .. } => "refused by it; running jobs end, new ones do not arrive",
        _ => "not connected; running jobs continue, new ones do not arrive",
    };
    let orders = if status.control.allowed { "; remote orders allowed" } else { "" };
    format!("{}, {link}; agent up {}{orders}", status.api_url, span(Duration::from_secs(status.up_s)))
}

fn earned(status: &Status) -> String {
    let earned = &status.earned;
    let today = u32::try_from(earned.jobs_today).unwrap_or(u32::MAX);
    format!("{} credits today in {}, {} in total", earned.today, jobs(today), earned.total)
}

fn machine(status: &Status) -> String {
    let system = &status.system;
    let gigabytes = |mb: u64| mb as f64 / 1024.0;
    let (used, total) = (gigabytes(system.memory_used_mb), gigabytes(system.memory_total_mb));
    format!("processors {:.0} %, memory {used:.1} of {total:.1} GB", system.cpu_percent)
}

fn gpu_line(gpu: &island_protocol::host::GpuLoad) -> String {
    let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let busy = known(gpu.utilization_percent.map(|percent| format!("{percent} %")));
    let heat = known(gpu.temperature_c.map(|celsius| format!("{celsius} °C")));
    let power = known(gpu.power_draw_w.map(|watts| format!("{watts:.0} W")));
    let used = known(gpu.memory_used_mb.map(|mb| mb.to_string()));
    format!("load {busy}, memory {used} of {} MB, {heat}, {power}", gpu.memory_total_mb)
}

pub(super) fn models(status: &Status) -> String {
    let preloading = status.fetching.as_ref().map_or_else(String::new, |download| {
        let percent = download.done * 100 / download.total.max(1);
        format!("; preloading {}, {percent} % of {} MB", download.cargo, download.total >> 20)
    });
    format!("{:.1} GB on disk, {:.1} GB free for more{preloading}", status.models_gb, status.room_gb)
}

/// Returns why no jobs may arrive, as far as this Island knows.
pub(super) fn why_idle(status: &Status) -> Vec<String> {
    if status.left {
        return vec![
            "not enrolled: run `island-agent enroll --coordinator URL`, or stop the agent".to_owned(),
        ];
    }
    let mut reasons = Vec::new();
    if let Some(refusal) = &status.refusal {
        reasons.push(format!("the coordinator refuses this Island: {refusal}"));
    } else if !status.connected {
        reasons.push(
            "the coordinator cannot be reached: check its address, the network and `island-agent doctor`"
                .to_owned(),
        );
    }
    if let Some(reason) = status.verdict.reason() {
        reasons.push(format!("the owner's rules: {reason}"));
    }
    if reasons.is_empty() && status.jobs.is_empty() && status.refusals.is_empty() {
        reasons.push(match status.last_job {
            Some(last) => {
                let ago_ms = clock::now().unix_ms() - last.unix_ms();
                let ago = span(Duration::from_millis(ago_ms.max(0) as u64));
                format!("nothing prevents work and no job was refused; the last job ended {ago} ago")
            }
            None => "nothing prevents work, but no job that this Island can run has arrived yet; see \
                     `island market rates`"
                .to_owned(),
        });
    }
    reasons
}

fn name(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::NoSlot => "no free slot",
        RefusalReason::NoRam => "too little memory",
        RefusalReason::NoVram => "too little GPU memory",
        RefusalReason::NoDisk => "too little disk",
        RefusalReason::NoRuntime => "no engine",
        RefusalReason::Draining => "accepting no jobs",
        RefusalReason::WeakSandbox => "incomplete sandbox",
        RefusalReason::NotAllowed => "not allowed by the owner",
        RefusalReason::Invalid => "malformed or stale",
        RefusalReason::Other => "other",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use island_protocol::{
        host::{ControlState, GpuLoad, Order, RunningJob, SystemLoad},
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
        inventory::engine_devices::{EngineDevices, UsedDevice},
        owner::policy::Cause,
        preload::Fetching,
        supervisor::refusals::Count,
    };

    pub(in crate::control) fn status() -> Status {
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
            refusal: None,
            left: false,
            up_s: 3 * 3600 + 125,
            verdict: Verdict::Yes,
            order: OwnerOrder::None,
            control: ControlState::default(),
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
            notes: Vec::new(),
            notices: vec!["On Sunday at 10:00 UTC the network is updated.".into()],
            gpu_notes: vec!["GPU 1 is paused: 84 °C, the limit is 80 °C".into()],
            engines: vec![
                engine("llmcpp", &["cuda", "vulkan"], "NVIDIA GeForce RTX 3090", Some(0)),
                engine("onnx", &["cpu"], "CPU", None),
            ],
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
            last_job: None,
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
                devices: BTreeMap::from([("vulkan: Some GPU".to_owned(), 310)]),
            },
            history: (0..120).map(point).collect(),
            tables: BTreeMap::new(),
        }
    }

    fn engine(name: &str, apis: &[&str], device: &str, gpu: Option<u32>) -> EngineDevices {
        let apis = apis.iter().map(|api| (*api).to_owned()).collect();
        let devices = vec![UsedDevice { apis, name: device.to_owned(), gpu }];
        EngineDevices { engine: name.to_owned(), devices, unused: Vec::new() }
    }

    fn drawn(status: &Status, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, status)).expect("draw");
        terminal.backend().to_string()
    }

    #[test]
    fn a_busy_island() {
        insta::assert_snapshot!(drawn(&status(), 120, 36));
    }

    /// Every part of the screen in 80 columns, and what remains in 40.
    #[test]
    fn a_busy_island_on_small_terminals() {
        insta::assert_snapshot!("80_columns", drawn(&status(), 80, 30));
        insta::assert_snapshot!("40_columns", drawn(&status(), 40, 30));
        let small = drawn(&status(), 80, 24);
        for text in ["llama-3.1-8b-instruct", "3 x too little GPU memory: needs", "250 in total", "1 job "] {
            assert!(small.contains(text), "{text} in\n{small}");
        }
    }

    #[test]
    fn a_paused_island_as_text() {
        let paused =
            Verdict::Leave { cause: Cause::InUse, reason: "there was input in the last 5 min".into() };
        let paused = Status { verdict: paused, jobs: Vec::new(), ..status() };
        insta::assert_snapshot!(text(&paused, None));
        let lines = text(&paused, Some(80));
        assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
    }

    #[test]
    fn a_remote_pause_is_named() {
        let reason = "ordered remotely by the owner's account, until resumed".to_owned();
        let verdict = Verdict::Leave { cause: Cause::Paused, reason };
        let control = ControlState { allowed: true, order: Some(Order::Pause), remote: true };
        let paused = Status { verdict, control, order: OwnerOrder::Pause { until: None }, ..status() };
        assert_eq!(state(&paused), "paused: ordered remotely by the owner's account, until resumed");
        assert!(coordinator(&paused).ends_with("; remote orders allowed"), "{}", coordinator(&paused));
        assert!(!coordinator(&status()).contains("remote orders"));
    }

    /// The last line of the text.
    fn why(status: &Status) -> String {
        text(status, None).lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn an_idle_island_reports_its_last_job() {
        let idle = Status { jobs: Vec::new(), refusals: BTreeMap::new(), ..status() };
        assert!(why(&idle).starts_with("why idle    nothing prevents work, but no job"), "{}", why(&idle));
        let paid = Status { last_job: Some(clock::now().plus_ms(-3_600_000)), ..idle };
        assert!(
            why(&paid).ends_with("no job was refused; the last job ended 1 h 0 min ago"),
            "{}",
            why(&paid)
        );
    }

    #[test]
    fn an_island_that_left_is_neither_ready_nor_connected() {
        let left = Status { left: true, connected: false, jobs: Vec::new(), ..status() };
        let text = text(&left, None);
        assert!(text.contains("state       left the network\n"), "{text}");
        assert!(text.contains("example.org, not enrolled"), "{text}");
        assert!(why(&left).contains("island-agent enroll"), "{text}");
    }

    #[test]
    fn a_pause_shows_what_is_left_of_it() {
        let until = Some(clock::now().plus_ms(2 * 3_600_000 + 30_000));
        let verdict = Verdict::Leave { cause: Cause::Paused, reason: "until 10:25".into() };
        let paused = Status { verdict, order: OwnerOrder::Pause { until }, ..status() };
        assert_eq!(state(&paused), "paused: until 10:25 (2 h 0 min left)");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 4), ["unbr", "eaka", "ble"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("ab", 0), ["a", "b"]);
    }

    #[test]
    fn any_terminal_is_large_enough() {
        for width in [1, 2, 20, 40, 80, 99, 100, 300] {
            for height in [1, 2, 5, 12, 24, 36, 100] {
                drawn(&status(), width, height);
            }
        }
    }
}
