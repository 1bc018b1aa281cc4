//! In Prometheus' text format, for whoever asks.

use std::fmt::Write as _;

use super::{Point, Series, Unit};

/// Content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of these series.
pub fn text(all: &[Series]) -> String {
    let mut page = String::new();
    for series in all {
        let name = name(series);
        let kind = if series.is_counter { "counter" } else { "gauge" };
        let _ = writeln!(page, "# HELP {name} {}\n# TYPE {name} {kind}", series.help);
        for point in &series.points {
            let _ = writeln!(page, "{name}{} {}", labels(point), point.value);
        }
    }
    page
}

/// As Prometheus wants it: with the unit, and `_total` where it only grows.
fn name(series: &Series) -> String {
    let unit = match series.unit {
        Unit::None => "",
        Unit::Seconds => "_seconds",
        Unit::Bytes => "_bytes",
        Unit::Percent => "_percent",
        Unit::Celsius => "_celsius",
        Unit::Watts => "_watts",
        Unit::Credits => "_credits",
    };
    format!("island_{}{unit}{}", series.name, if series.is_counter { "_total" } else { "" })
}

fn labels(point: &Point) -> String {
    let label = |(name, value): &(&str, String)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let labels: Vec<_> = point.labels.iter().map(label).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_units_and_labels_are_escaped() {
        let point = |value: &str| Point { labels: vec![("cargo", value.to_owned())], value: 1.5 };
        let series = Series {
            name: "worker_memory",
            help: "Memory.",
            unit: Unit::Bytes,
            is_counter: false,
            points: vec![point("a\"b\\c\nd")],
        };
        let counter = Series {
            name: "paid_jobs",
            unit: Unit::None,
            is_counter: true,
            points: vec![],
            ..series.clone()
        };
        let expected = concat!(
            "# HELP island_worker_memory_bytes Memory.\n# TYPE island_worker_memory_bytes gauge\n",
            "island_worker_memory_bytes{cargo=\"a\\\"b\\\\c\\nd\"} 1.5\n",
            "# HELP island_paid_jobs_total Memory.\n# TYPE island_paid_jobs_total counter\n",
        );
        assert_eq!(text(&[series, counter]), expected);
    }
}
