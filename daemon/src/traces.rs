//! Traces: what happened to one job in each program, sent to an OpenTelemetry collector over HTTP.
//!
//! A [`Span`] is a value that whatever does the work holds; it ends when it is dropped. Its [`TraceContext`] travels in the
//! header `traceparent` of HTTP requests and of messages on the fabric. Spans of one trace may begin and end in different
//! tasks and programs, so nothing here depends on the current task or thread.
//!
//! Recording never waits: spans beyond a limit are dropped and counted. Without a collector nothing is recorded.

mod context;
mod exporter;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{self as proto, span::SpanKind, status::StatusCode},
};
use tokio::sync::mpsc;

pub use context::{HEADER, InvalidTraceContext, TraceContext};
pub use exporter::Exporter;

/// Spans that wait to be sent. One has some hundred bytes.
const MAX_WAITING: usize = 8192;

/// A finished span and the program that it is about.
type Finished = (&'static str, proto::Span);

#[derive(Debug)]
struct Recorder {
    service: &'static str,
    /// The part of the traces begun here that is recorded, 0 to 1.
    sample: f64,
    finished: mpsc::Sender<Finished>,
    dropped: AtomicU64,
}

/// Begins spans. Clones share the collector; the default one records nothing.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Recorder>>);

/// What a span is to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A step of the same program.
    Internal,
    /// The answer to another program's request.
    Server,
    /// A request to another program.
    Client,
}

impl Traces {
    /// Records spans of `service`, and the part `sample` of the traces that begin here, for the collector at `endpoint`.
    /// The exporter must be run.
    pub fn to(endpoint: &str, service: &'static str, version: &'static str, sample: f64) -> (Self, Exporter) {
        let (finished, waiting) = mpsc::channel(MAX_WAITING);
        let recorder = Arc::new(Recorder { service, sample, finished, dropped: AtomicU64::default() });
        let exporter = Exporter::new(endpoint, version, waiting, Arc::clone(&recorder));
        (Self(Some(recorder)), exporter)
    }

    /// Begins a span: of the parent's trace, or of a new one.
    pub fn begin(&self, name: impl Into<String>, kind: Kind, parent: Option<TraceContext>) -> Span {
        let Some(recorder) = &self.0 else { return Span::default() };
        let context = match &parent {
            Some(parent) => parent.child(),
            None => TraceContext::new(recorder.sample),
        };
        Span::begin(recorder, name.into(), kind, context, parent)
    }

    /// Begins a span of the parent's trace; without a parent nothing is recorded.
    pub fn follow(&self, name: impl Into<String>, kind: Kind, parent: Option<TraceContext>) -> Span {
        if parent.is_some() { self.begin(name, kind, parent) } else { Span::default() }
    }
}

/// A span, which ends when it is dropped. The default one is not recorded and belongs to no trace.
#[derive(Debug, Default)]
pub struct Span {
    context: Option<TraceContext>,
    recording: Option<Box<Recording>>,
}

#[derive(Debug)]
struct Recording {
    recorder: Arc<Recorder>,
    span: proto::Span,
    begin: Instant,
}

impl Span {
    fn begin(
        recorder: &Arc<Recorder>,
        name: String,
        kind: Kind,
        context: TraceContext,
        parent: Option<TraceContext>,
    ) -> Self {
        let kind = match kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        };
        let recording = context.is_sampled().then(|| {
            let span = proto::Span {
                trace_id: context.trace_id().to_vec(),
                span_id: context.span_id().to_vec(),
                parent_span_id: parent.map(|parent| parent.span_id().to_vec()).unwrap_or_default(),
                name,
                kind: kind.into(),
                start_time_unix_nano: unix_ns(),
                ..proto::Span::default()
            };
            Box::new(Recording { recorder: Arc::clone(recorder), span, begin: Instant::now() })
        });
        Self { context: Some(context), recording }
    }

    /// What continues its trace in another program; `None` if it belongs to none.
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    /// Begins a span inside of this one.
    #[must_use]
    pub fn child(&self, name: impl Into<String>, kind: Kind) -> Self {
        let (Some(context), Some(recording)) = (self.context, &self.recording) else {
            return Self { context: self.context, recording: None };
        };
        Self::begin(&recording.recorder, name.into(), kind, context.child(), Some(context))
    }

    /// Whether it is sent to a collector.
    pub fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// Sets an attribute. The value is computed only if the span is recorded.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        if let Some(recording) = &mut self.recording {
            recording.span.attributes.push(text(name, value.to_string()));
        }
    }

    /// Marks what it is about as failed.
    pub fn fail(&mut self, why: impl ToString) {
        if let Some(recording) = &mut self.recording {
            let (code, message) = (StatusCode::Error.into(), why.to_string());
            recording.span.status = Some(proto::Status { message, code });
        }
    }

    /// Records a step that another program measured: `service` began it `begin` after this span began, and it took
    /// `length`. Of other times, the part inside of this span is recorded: the other program may report anything.
    pub fn record_step(&self, service: &'static str, name: &str, begin: Duration, length: Duration) {
        let (Some(context), Some(recording)) = (self.context, &self.recording) else { return };
        let passed = recording.begin.elapsed();
        let begin = begin.min(passed);
        let length = length.min(passed.saturating_sub(begin));
        let start = recording.span.start_time_unix_nano.saturating_add(nanoseconds(begin));
        let span = proto::Span {
            trace_id: context.trace_id().to_vec(),
            span_id: context.child().span_id().to_vec(),
            parent_span_id: context.span_id().to_vec(),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: start,
            end_time_unix_nano: start.saturating_add(nanoseconds(length)),
            ..proto::Span::default()
        };
        recording.recorder.send(service, span);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(Recording { recorder, mut span, begin }) =
            self.recording.take().map(|recording| *recording)
        {
            span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(nanoseconds(begin.elapsed()));
            recorder.send(recorder.service, span);
        }
    }
}

impl Recorder {
    fn send(&self, service: &'static str, span: proto::Span) {
        if self.finished.try_send((service, span)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn text(name: &str, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// Nanoseconds since 1970.
fn unix_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_recorded_without_a_collector() {
        let traces = Traces::default();
        let mut span = traces.begin(
            "request",
            Kind::Server,
            Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a context")),
        );
        span.set("a", 1);
        assert_eq!((span.context(), span.is_recorded()), (None, false));
        assert_eq!(span.child("step", Kind::Internal).context(), None);
    }

    #[test]
    fn spans_of_a_trace_name_their_parents_and_the_rest_of_a_sample_names_only_its_trace() {
        let (finished, mut waiting) = mpsc::channel(3);
        let recorder = |sample| Recorder {
            service: "a",
            sample,
            finished: finished.clone(),
            dropped: AtomicU64::default(),
        };
        let traces = Traces(Some(Arc::new(recorder(1.0))));
        let mut root = traces.begin("request", Kind::Server, None);
        root.fail("no");
        let step = root.child("step", Kind::Client);
        let (of_root, of_step) = (root.context().expect("a trace"), step.context().expect("a trace"));
        drop(step);
        root.record_step("b", "load", Duration::ZERO, Duration::MAX);
        let more = root.child("more", Kind::Internal);
        drop(root);
        // One more than may wait.
        drop(more);
        let (service, step) = waiting.try_recv().expect("the step");
        assert_eq!((service, step.name.as_str(), step.span_id), ("a", "step", of_step.span_id().to_vec()));
        assert_eq!(
            (&step.trace_id[..], &step.parent_span_id[..]),
            (&of_root.trace_id()[..], &of_root.span_id()[..])
        );
        let (service, load) = waiting.try_recv().expect("the other program's step");
        let (_, root) = waiting.try_recv().expect("the request");
        assert_eq!((service, load.start_time_unix_nano), ("b", root.start_time_unix_nano));
        assert!(load.end_time_unix_nano <= root.end_time_unix_nano, "a step is inside of its span");
        assert_eq!(root.status.map(|status| status.message), Some("no".to_owned()));
        assert!(waiting.try_recv().is_err());
        assert_eq!(traces.0.as_ref().expect("a recorder").dropped.load(Ordering::Relaxed), 1);

        let unsampled = Traces(Some(Arc::new(recorder(0.0)))).begin("request", Kind::Server, None);
        let context = unsampled.context().expect("a trace");
        assert!(!context.is_sampled() && !unsampled.is_recorded());
        assert!(
            !traces.begin("next", Kind::Server, Some(context)).is_recorded(),
            "the first program decides"
        );
    }
}
