//! Heartbeats that could not be read. They have no answer, so their Islands get the reason when they register again.

use std::collections::HashMap;

use island_protocol::ids::HostId;
use parking_lot::Mutex;

/// Islands that are remembered.
const MAX_ISLANDS: usize = 10_000;
/// Maximum length of a reason, characters.
const MAX_REASON: usize = 300;

/// Why the last heartbeat of each Island could not be read, if so.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<HashMap<HostId, String>>);

impl Unread {
    /// Records that a heartbeat could not be read.
    pub(super) fn insert(&self, host: HostId, error: &serde_json::Error) {
        let mut unread = self.0.lock();
        if unread.len() < MAX_ISLANDS || unread.contains_key(&host) {
            unread.insert(host, brief(error));
        }
    }

    /// Records that one was read, or that the agent was started again.
    pub(super) fn remove(&self, host: HostId) {
        self.0.lock().remove(&host);
    }

    /// The reason.
    pub(super) fn of(&self, host: HostId) -> Option<String> {
        self.0.lock().get(&host).cloned()
    }
}

/// An error in what an Island sent, with a limited length: it may quote the message.
pub(super) fn brief(error: &serde_json::Error) -> String {
    error.to_string().chars().take(MAX_REASON).collect()
}
