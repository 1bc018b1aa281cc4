//! Subject names: built and parsed only here.

use crate::ids::{HostId, InstanceId, JobId};

/// Registration of Islands.
pub const REGISTER: &str = "coordinator.hosts.register";
/// Lease renewal by Islands.
pub const LEASE: &str = "coordinator.hosts.lease";
/// The JetStream stream that holds `job.*.events`.
pub const JOB_EVENTS_STREAM: &str = "JOB_EVENTS";
/// Wildcard subject of all jobs' events.
pub const ALL_JOB_EVENTS: &str = "job.*.events";

/// Last token of a `host.<id>.…` subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum HostTopic {
    /// Load metrics, from the Island.
    Heartbeat,
    /// Progress of attempts, from the Island.
    Status,
    /// Events of attempts, from the Island.
    Output,
    /// Assignments, to the Island.
    Jobs,
    /// Cancellations, to the Island.
    Cancel,
    /// Preload hints, to the Island.
    Preload,
    /// Liveness probes, to the Island.
    Ping,
    /// Orders of the owner's account, to the Island.
    Control,
}

impl HostTopic {
    /// Topics that an Island publishes.
    pub const FROM_HOST: [Self; 3] = [Self::Heartbeat, Self::Status, Self::Output];
    /// Topics that an Island subscribes to.
    pub const TO_HOST: [Self; 5] = [Self::Jobs, Self::Cancel, Self::Preload, Self::Ping, Self::Control];

    /// Returns the token in the subject.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns `host.<id>.<topic>`.
    pub fn of(self, host: HostId) -> String {
        format!("host.{host}.{}", self.as_str())
    }

    /// Returns `host.*.<topic>`.
    pub fn of_all(self) -> String {
        format!("host.*.{}", self.as_str())
    }
}

/// Returns the Island and topic of a `host.<id>.<topic>` subject.
pub fn parse_host(subject: &str) -> Option<(HostId, HostTopic)> {
    let mut tokens = subject.split('.');
    let ("host", id, topic, None) = (tokens.next()?, tokens.next()?, tokens.next()?, tokens.next()) else {
        return None;
    };
    Some((id.parse().ok()?, topic.parse().ok()?))
}

/// Returns `coordinator.<id>.cancel`: a request among coordinators; Islands may not publish there.
pub fn coordinator_cancel(coordinator: InstanceId) -> String {
    format!("coordinator.{coordinator}.cancel")
}

/// Returns `job.<id>.events`.
pub fn job_events(job: JobId) -> String {
    format!("job.{job}.events")
}

/// Returns the job of a `job.<id>.events` subject.
pub fn parse_job_events(subject: &str) -> Option<JobId> {
    subject.strip_prefix("job.")?.strip_suffix(".events")?.parse().ok()
}

/// Returns the prefix of the only inbox that an Island may subscribe to.
pub fn inbox_prefix(host: HostId) -> String {
    format!("_INBOX_{host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(id in any::<u128>(), which in 0_usize..8) {
            let host = HostId(uuid::Uuid::from_u128(id));
            let topic = HostTopic::FROM_HOST.into_iter().chain(HostTopic::TO_HOST).nth(which).expect("eight topics");
            prop_assert_eq!(parse_host(&topic.of(host)), Some((host, topic)));
        }

        // Mutations of a valid subject reach every branch of the parser; arbitrary text would fail at the first token.
        #[test]
        fn only_the_canonical_form_parses(id in any::<u128>(), at in 0_usize..60, with in "[a-z0-9.*> -]{0,3}", cut in 0_usize..3) {
            let host = HostId(uuid::Uuid::from_u128(id));
            let mut text = HostTopic::Output.of(host);
            let start = at.min(text.len());
            let end = (start + cut).min(text.len());
            text.replace_range(start..end, &with);
            if let Some((host, topic)) = parse_host(&text) {
                prop_assert_eq!(topic.of(host), text);
            } else {
                prop_assert_ne!(text, HostTopic::Output.of(host));
            }
        }
    }
}
