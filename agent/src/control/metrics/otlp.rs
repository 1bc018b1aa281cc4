//! Sends metrics to an OpenTelemetry collector over HTTP.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
        metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use reqwest::{Client, Response, header::CONTENT_TYPE};
use tokio_util::sync::CancellationToken;

use super::{Series, Unit, series};
use crate::{
    clock,
    config::OtlpSection,
    control::status::{Sources, Status},
};

/// Time to wait for the collector's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends metrics until stopped. If the collector cannot be reached, that is logged once, and again when it can.
pub async fn run(sources: Arc<Sources>, settings: OtlpSection, stop: CancellationToken) {
    let Some(endpoint) = settings.endpoint else { return stop.cancelled().await };
    let url = format!("{}/v1/metrics", endpoint.trim_end_matches('/'));
    let http = Client::new();
    let start = clock::now().unix_ms();
    let mut tick = tokio::time::interval(Duration::from_secs(settings.every_s.max(1)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_away = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let page = request(&sources.status(), start, clock::now().unix_ms()).encode_to_vec();
        let post =
            http.post(&url).timeout(PATIENCE).header(CONTENT_TYPE, "application/x-protobuf").body(page);
        let sent = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            sent = post.send() => sent.and_then(Response::error_for_status),
        };
        match &sent {
            Ok(_) if is_away => tracing::info!(url, "the collector accepts metrics again"),
            Err(error) if !is_away => {
                tracing::warn!(url, error = %Chain(error), "the collector accepts no metrics");
            }
            _ => {}
        }
        is_away = sent.is_err();
    }
}

/// All metrics as one message; times are milliseconds since 1970.
fn request(status: &Status, start: i64, now: i64) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "island-agent".to_owned(),
        version: status.version.clone(),
        ..InstrumentationScope::default()
    };
    let metrics = series(status).into_iter().map(|series| metric(series, start, now)).collect();
    let resource = Resource {
        attributes: vec![
            text("service.name", "island-agent".to_owned()),
            text("service.version", status.version.clone()),
            text("service.instance.id", status.host_id.to_string()),
            text("island.name", status.name.clone()),
        ],
        ..Resource::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn metric(series: Series, start: i64, now: i64) -> Metric {
    let nanoseconds = |ms: i64| ms.max(0) as u64 * 1_000_000;
    let data_points = series.points.into_iter().map(|point| NumberDataPoint {
        attributes: point.labels.into_iter().map(|(name, value)| text(name, value)).collect(),
        start_time_unix_nano: nanoseconds(start),
        time_unix_nano: nanoseconds(now),
        value: Some(number_data_point::Value::AsDouble(point.value)),
        ..NumberDataPoint::default()
    });
    let data_points = data_points.collect();
    let data = if series.is_counter {
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
    } else {
        Data::Gauge(Gauge { data_points })
    };
    Metric {
        name: format!("island.{}", series.name),
        description: series.help.to_owned(),
        unit: unit(series.unit).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// The unit in UCUM notation.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::None => "1",
        Unit::Seconds => "s",
        Unit::Bytes => "By",
        Unit::Percent => "%",
        Unit::Celsius => "Cel",
        Unit::Watts => "W",
        Unit::Credits => "{credit}",
    }
}

fn text(name: &str, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}
