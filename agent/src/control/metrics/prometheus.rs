//! Metrics in the OpenMetrics text format, which Prometheus scrapes.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit as Suffix},
};

use super::{Series, Unit};

/// Content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All series as one exposition. Names get the prefix `island_`, their unit and, where they only grow, `_total`.
pub fn text(all: Vec<Series>) -> String {
    let mut registry = Registry::with_prefix("island");
    registry.register_collector(Box::new(All(all)));
    let mut page = String::new();
    encode(&mut page, &registry).expect("writing to a string does not fail");
    page
}

#[derive(Debug)]
struct All(Vec<Series>);

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for series in &self.0 {
            let suffix = suffix(series.unit);
            let kind = if series.is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(series.name, series.help, suffix.as_ref(), kind)?;
            for point in &series.points {
                if point.labels.is_empty() {
                    sample(&mut metric, series.is_counter, point.value)?;
                } else {
                    sample(&mut metric.encode_family(&point.labels)?, series.is_counter, point.value)?;
                }
            }
        }
        Ok(())
    }
}

fn sample(metric: &mut MetricEncoder<'_>, is_counter: bool, value: f64) -> fmt::Result {
    if is_counter {
        metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
    } else {
        metric.encode_gauge(&value)
    }
}

fn suffix(unit: Unit) -> Option<Suffix> {
    Some(match unit {
        Unit::None => return None,
        Unit::Seconds => Suffix::Seconds,
        Unit::Bytes => Suffix::Bytes,
        Unit::Percent => Suffix::Other("percent".to_owned()),
        Unit::Celsius => Suffix::Celsius,
        Unit::Watts => Suffix::Other("watts".to_owned()),
        Unit::Credits => Suffix::Other("credits".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::metrics::Point;

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
            points: vec![Point { labels: vec![], value: 3.0 }],
            ..series.clone()
        };
        let expected = concat!(
            "# HELP island_worker_memory_bytes Memory.\n",
            "# TYPE island_worker_memory_bytes gauge\n",
            "# UNIT island_worker_memory_bytes bytes\n",
            "island_worker_memory_bytes{cargo=\"a\\\"b\\\\c\\nd\"} 1.5\n",
            "# HELP island_paid_jobs Memory.\n",
            "# TYPE island_paid_jobs counter\n",
            "island_paid_jobs_total 3.0\n",
            "# EOF\n",
        );
        assert_eq!(text(vec![series, counter]), expected);
    }
}
