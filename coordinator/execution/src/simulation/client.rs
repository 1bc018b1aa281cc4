//! A client: it reads a job's events wherever they are, and remembers them.

use island_protocol::event::{JobEvent, Numbered};

/// What one client has received.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub received: Vec<Numbered<JobEvent>>,
    /// Whether it reads now, or has hung up.
    pub is_connected: bool,
}

impl Client {
    /// Reads the events after the last one that it has.
    pub(super) fn read(&mut self, events: &[Numbered<JobEvent>]) {
        let last = self.received.last().map_or(0, |event| event.n);
        self.received.extend(events.iter().filter(|event| event.n > last).cloned());
    }

    /// The text so far.
    pub(super) fn text(events: &[Numbered<JobEvent>]) -> String {
        let tokens = events.iter().filter_map(|event| match &event.event {
            JobEvent::Token { content, .. } => Some(content.as_str()),
            _ => None,
        });
        tokens.collect()
    }
}
