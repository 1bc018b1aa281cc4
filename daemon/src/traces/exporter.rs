//! Sends finished spans to the collector, several at a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans},
};
use prost::Message as _;
use reqwest::{Client, Response, header::CONTENT_TYPE};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{Finished, Recorder, text};
use crate::chain::Chain;

/// Maximum spans of a request.
const BATCH: usize = 512;
/// Time for which further spans are collected after the first one.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for the collector's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporter {
    http: Client,
    url: String,
    version: &'static str,
    waiting: mpsc::Receiver<Finished>,
    recorder: Arc<Recorder>,
    is_away: bool,
}

impl Exporter {
    pub(super) fn new(
        endpoint: &str,
        version: &'static str,
        waiting: mpsc::Receiver<Finished>,
        recorder: Arc<Recorder>,
    ) -> Self {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        Self { http: Client::new(), url, version, waiting, recorder, is_away: false }
    }

    /// Sends spans until `stop` is triggered, and then those that have ended before. What the collector does not accept is
    /// lost; that is logged once, and again when it accepts spans.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        while !stop.is_cancelled() {
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    while let Ok(finished) = self.waiting.try_recv() {
                        batch.push(finished);
                    }
                }
                () = self.collect(&mut batch) => {}
            }
            if !batch.is_empty() {
                self.send(std::mem::take(&mut batch)).await;
            }
        }
        let dropped = self.recorder.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans were dropped: more ended than the collector accepted");
        }
    }

    /// Waits for the next spans. `batch` has them also if this is cancelled.
    async fn collect(&mut self, batch: &mut Vec<Finished>) {
        // The recorder, which this holds, keeps the channel open.
        self.waiting.recv_many(batch, BATCH).await;
        let more = async {
            while batch.len() < BATCH {
                let left = BATCH - batch.len();
                self.waiting.recv_many(batch, left).await;
            }
        };
        let _ = timeout(INTERVAL, more).await;
    }

    async fn send(&mut self, batch: Vec<Finished>) {
        let body = request(batch, self.version).encode_to_vec();
        let post = self.http.post(&self.url).timeout(PATIENCE);
        let post = post.header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let sent = post.send().await.and_then(Response::error_for_status);
        match &sent {
            Ok(_) if self.is_away => tracing::info!(url = self.url, "the collector accepts spans again"),
            Err(error) if !self.is_away => {
                tracing::warn!(url = self.url, error = %Chain(error), "the collector accepts no spans");
            }
            _ => {}
        }
        self.is_away = sent.is_err();
    }
}

/// Spans as one message, by the program that they are about.
fn request(batch: Vec<Finished>, version: &str) -> ExportTraceServiceRequest {
    let mut services = BTreeMap::<_, Vec<_>>::new();
    for (service, span) in batch {
        services.entry(service).or_default().push(span);
    }
    let resource_spans = services.into_iter().map(|(service, spans)| {
        let attributes =
            vec![text("service.name", service.to_owned()), text("service.version", version.to_owned())];
        let scope = InstrumentationScope { name: "island".to_owned(), ..InstrumentationScope::default() };
        ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }
    });
    ExportTraceServiceRequest { resource_spans: resource_spans.collect() }
}
