//! Permissions to publish and to subscribe, as allow-lists.

use island_protocol::{
    MAX_MESSAGE_BYTES,
    ids::{HostId, JobId},
    subjects::{self, HostTopic},
};
use serde_json::{Value, json};

/// Maximum time for an Island's reply to a request, seconds.
const RESPONSE_TTL_S: i64 = 60;

/// Maximum subscriptions of one user: an Island needs a handful, a watcher one for each subject that it reads.
const MAX_SUBSCRIPTIONS: usize = 256;

/// Maximum bytes of a message of a user that may not publish. The server disconnects who sends more, before it looks at
/// the subject.
const WATCHER_BYTES: usize = 1 << 10;

/// Subjects that one user may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
    /// Whether it may reply once to each request, on whatever subject the request names.
    pub respond: bool,
    /// Maximum bytes of a message that it publishes, with headers.
    pub max_payload: usize,
}

/// An Island: its own subjects, its own inbox, no JetStream.
pub fn island(host: HostId) -> Permissions {
    let publish = HostTopic::FROM_HOST.map(|topic| topic.of(host));
    let subscribe = HostTopic::TO_HOST.map(|topic| topic.of(host));
    let inbox = format!("{}.>", subjects::inbox_prefix(host));
    Permissions {
        publish: publish
            .into_iter()
            .chain([subjects::REGISTER.to_owned(), subjects::LEASE.to_owned()])
            .collect(),
        subscribe: subscribe.into_iter().chain([inbox]).collect(),
        respond: true,
        max_payload: MAX_MESSAGE_BYTES,
    }
}

/// An operator: every subject of the specification, and the events of all jobs.
pub fn operator() -> Permissions {
    let topics = [HostTopic::Heartbeat, HostTopic::Status, HostTopic::Output, HostTopic::Jobs];
    let subscribe = topics.map(HostTopic::of_all).into_iter();
    Permissions {
        publish: Vec::new(),
        subscribe: subscribe
            .chain([subjects::REGISTER.to_owned(), subjects::ALL_JOB_EVENTS.to_owned()])
            .collect(),
        respond: false,
        max_payload: WATCHER_BYTES,
    }
}

/// A consumer: subjects without other users' content, and its own jobs.
pub fn consumer(jobs: &[JobId]) -> Permissions {
    let common = [HostTopic::Heartbeat, HostTopic::Status].map(HostTopic::of_all);
    Permissions {
        publish: Vec::new(),
        subscribe: common.into_iter().chain(jobs.iter().copied().map(subjects::job_events)).collect(),
        respond: false,
        max_payload: WATCHER_BYTES,
    }
}

impl Permissions {
    /// The `nats` part of a user JWT. An empty list would allow everything, so it is replaced by a subject that is
    /// never used.
    pub fn claims(&self) -> Value {
        let list = |subjects: &[String]| {
            if subjects.is_empty() { json!(["_ISLAND_NOTHING"]) } else { json!(subjects) }
        };
        let mut nats = json!({
            "pub": {"allow": list(&self.publish)},
            "sub": {"allow": list(&self.subscribe)},
            "subs": MAX_SUBSCRIPTIONS, "data": -1, "payload": self.max_payload,
            "type": "user", "version": 2,
        });
        if self.respond {
            nats["resp"] = json!({"max": 1, "ttl": RESPONSE_TTL_S * 1_000_000_000});
        }
        nats
    }
}
