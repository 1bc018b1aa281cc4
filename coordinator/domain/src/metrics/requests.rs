//! Requests to the API.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use tokio::time::Instant;

use super::{Histograms, seconds_since, short};

/// Methods that have a label of their own; a client may send any other word.
const METHODS: [&str; 6] = ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

/// Requests. Clones share them.
#[derive(Debug, Clone)]
pub struct Requests {
    answered: Family<Answer, Counter>,
    seconds: Histograms<Route>,
    in_flight: Gauge,
    streams: Gauge,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            answered: Family::default(),
            seconds: Histograms::new_with_constructor(short),
            in_flight: Gauge::default(),
            streams: Gauge::default(),
        }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Answered requests", self.answered.clone());
        let about = "Time until an answer begins";
        registry.register_with_unit("request", about, Unit::Seconds, self.seconds.clone());
        registry.register("requests_in_flight", "Requests that are being answered", self.in_flight.clone());
        registry.register("streams", "Open streams of events", self.streams.clone());
    }

    /// Counts a request in flight until the value is dropped.
    pub fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight { requests: self.clone(), begin: Instant::now() }
    }

    /// Counts an open stream until the value is dropped.
    pub fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct InFlight {
    requests: Requests,
    begin: Instant,
}

impl InFlight {
    /// Counts its answer. `route` is the template of its path, or `None` if no route has it.
    pub fn answered(self, route: Option<&str>, method: &str, status: u16) {
        let route = route.unwrap_or("none").to_owned();
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        let Requests { answered, seconds, .. } = &self.requests;
        seconds.get_or_create(&Route { route: route.clone() }).observe(seconds_since(self.begin));
        answered.get_or_create(&Answer { route, method, status }).inc();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.requests.in_flight.dec();
    }
}

/// An open stream.
#[derive(Debug)]
pub struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_route_and_unknown_methods_share_a_label() {
        let requests = Requests::default();
        let begun = requests.begin();
        assert_eq!(requests.in_flight.get(), 1);
        begun.answered(Some("/api/v1/jobs/{id}"), "GET", 200);
        for method in ["BREW", "PROPFIND"] {
            requests.begin().answered(None, method, 404);
        }
        drop(requests.begin());
        assert_eq!(requests.in_flight.get(), 0, "also those without an answer");
        let count = |route: &str, method, status| {
            requests.answered.get_or_create(&Answer { route: route.to_owned(), method, status }).get()
        };
        assert_eq!(count("/api/v1/jobs/{id}", "GET", 200), 1);
        assert_eq!(count("none", "other", 404), 2);
        let (one, two) = (requests.open_stream(), requests.open_stream());
        drop(one);
        assert_eq!(requests.streams.get(), 1);
        drop(two);
    }
}
