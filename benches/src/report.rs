//! The results of one claim: a table on standard output, and JSON that [`chart`](crate::chart) draws.

use std::{env, fmt::Write as _, fs, thread};

use serde_json::{Value, json};

use crate::stats::Spread;

/// Which direction of a figure is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// Rates.
    Higher,
    /// Times and sizes.
    Lower,
}

/// One figure of Island, beside the same figure of a peer where there is one.
#[derive(Debug)]
struct Row {
    figure: String,
    unit: &'static str,
    better: Better,
    island: Spread,
    peer: Option<Peer>,
    headline: bool,
}

/// The same figure of another program.
#[derive(Debug)]
struct Peer {
    name: String,
    value: Spread,
    /// Island / peer, per round.
    ratio: Spread,
}

/// The results of one claim.
#[derive(Debug)]
pub(crate) struct Report {
    claim: &'static str,
    setup: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    /// An empty report; `setup` names what every figure has in common.
    pub(crate) fn new(claim: &'static str, setup: String) -> Self {
        Self { claim, setup, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a figure beside a peer's, both series round by round.
    pub(crate) fn compare(
        &mut self,
        figure: impl Into<String>,
        (unit, better): (&'static str, Better),
        island: &[f64],
        peer: impl Into<String>,
        theirs: &[f64],
    ) {
        let peer = Peer {
            name: peer.into(),
            value: Spread::of(theirs.to_vec()),
            ratio: Spread::of_ratios(island, theirs),
        };
        self.push(figure.into(), (unit, better), island, Some(peer));
    }

    /// Adds a figure that has no peer.
    pub(crate) fn figure(
        &mut self,
        figure: impl Into<String>,
        (unit, better): (&'static str, Better),
        island: &[f64],
    ) {
        self.push(figure.into(), (unit, better), island, None);
    }

    fn push(
        &mut self,
        figure: String,
        (unit, better): (&'static str, Better),
        island: &[f64],
        peer: Option<Peer>,
    ) {
        let island = Spread::of(island.to_vec());
        self.rows.push(Row { figure, unit, better, island, peer, headline: false });
    }

    /// Marks the last row as one that the chart draws.
    pub(crate) fn headline(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.headline = true;
        }
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// The report as Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}: {}\n\n", self.claim, self.setup);
        text.push_str("| figure | unit | Island | peer | its figure | Island / peer |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for Row { figure, unit, island, peer, .. } in &self.rows {
            let _ = match peer {
                Some(Peer { name, value, ratio }) => writeln!(
                    text,
                    "| {figure} | {unit} | {} | {name} | {} | {ratio} |",
                    number(island.median),
                    number(value.median)
                ),
                None => writeln!(text, "| {figure} | {unit} | {island} | – | – | – |"),
            };
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        text
    }

    /// The report as JSON, with the command line and the processor that it was measured with.
    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let mut json = json!({
                "figure": row.figure, "unit": row.unit, "better": better_name(row.better),
                "island": spread(row.island), "headline": row.headline,
            });
            if let Some(peer) = &row.peer {
                json["peer"] =
                    json!({ "name": peer.name, "value": spread(peer.value), "ratio": spread(peer.ratio) });
            }
            json
        });
        json!({
            "claim": self.claim, "setup": self.setup, "machine": machine(), "command": command(),
            "rows": rows.collect::<Vec<_>>(), "notes": self.notes,
        })
    }
}

fn better_name(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}

fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

/// Three significant digits, or all digits before the point.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        large if large >= 10.0 => 1,
        large if large >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn machine() -> String {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    });
    format!("{threads} processor threads, {}", model.unwrap_or_else(|| env::consts::ARCH.to_owned()))
}

fn command() -> String {
    let arguments = env::args().skip(1).collect::<Vec<_>>().join(" ");
    format!("island-bench {arguments}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("decode", "64 tokens".to_owned());
        report.compare("1 stream", ("tokens/s", Better::Higher), &[30.0, 20.0], "peer", &[15.0, 20.0]);
        report.headline();
        report.figure("added", ("ms", Better::Lower), &[4.0]);
        report.note("no other peer was measured");
        report
    }

    #[test]
    fn a_table_names_the_peer_and_the_ratio_of_each_figure() {
        let table = report().table();
        assert!(
            table.contains("| 1 stream | tokens/s | 25.0 | peer | 17.5 | 1.500 (1.000 to 2.000) |"),
            "{table}"
        );
        assert!(table.contains("| added | ms | 4.000 (4.000 to 4.000) | – | – | – |"), "{table}");
        assert!(table.ends_with("\nno other peer was measured\n"), "{table}");
    }

    #[test]
    fn json_holds_every_row() {
        let json = report().json();
        assert_eq!(json["rows"][0]["peer"]["ratio"]["median"], 1.5);
        assert_eq!(json["rows"][0]["headline"], true);
        assert_eq!(json["rows"][1]["peer"], Value::Null);
        assert_eq!(json["rows"][1]["better"], "lower");
    }
}
