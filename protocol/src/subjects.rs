//! Subject names, built and parsed here and nowhere else.

use crate::ids::{HostId, InstanceId, JobId};

/// Registration of Islands.
pub const REGISTER: &str = "coordinator.hosts.register";
/// Lease renewal by Islands.
pub const LEASE: &str = "coordinator.hosts.lease";
/// The JetStream stream that holds `job.*.events`.
pub const JOB_EVENTS_STREAM: &str = "JOB_EVENTS";
/// All jobs' events.
pub const ALL_JOB_EVENTS: &str = "job.*.events";

/// Last token of a `host.<id>.…` subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostTopic {
    /// Load metrics, from the Island.
    Heartbeat,
    /// Where attempts stand, from the Island.
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
}

impl HostTopic {
    /// What an Island publishes.
    pub const FROM_HOST: [Self; 3] = [Self::Heartbeat, Self::Status, Self::Output];
    /// What an Island receives.
    pub const TO_HOST: [Self; 4] = [Self::Jobs, Self::Cancel, Self::Preload, Self::Ping];

    /// The token in the subject.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Status => "status",
            Self::Output => "output",
            Self::Jobs => "jobs",
            Self::Cancel => "cancel",
            Self::Preload => "preload",
            Self::Ping => "ping",
        }
    }

    /// `host.<id>.<topic>`.
    pub fn of(self, host: HostId) -> String {
        format!("host.{host}.{}", self.as_str())
    }

    /// `host.*.<topic>`.
    pub fn of_all(self) -> String {
        format!("host.*.{}", self.as_str())
    }
}

/// The Island and topic of a `host.<id>.<topic>` subject.
pub fn parse_host(subject: &str) -> Option<(HostId, HostTopic)> {
    let mut tokens = subject.split('.');
    let ("host", id, topic, None) = (tokens.next()?, tokens.next()?, tokens.next()?, tokens.next()) else {
        return None;
    };
    let topic =
        HostTopic::FROM_HOST.into_iter().chain(HostTopic::TO_HOST).find(|known| known.as_str() == topic)?;
    Some((id.parse().ok()?, topic))
}

/// `coordinator.<id>.cancel`: a request among coordinators; no Island may publish there.
pub fn coordinator_cancel(coordinator: InstanceId) -> String {
    format!("coordinator.{coordinator}.cancel")
}

/// `job.<id>.events`.
pub fn job_events(job: JobId) -> String {
    format!("job.{job}.events")
}

/// The job of a `job.<id>.events` subject.
pub fn parse_job_events(subject: &str) -> Option<JobId> {
    subject.strip_prefix("job.")?.strip_suffix(".events")?.parse().ok()
}

/// Where answers to an Island's requests go; it may subscribe to nothing else of the kind.
pub fn inbox_prefix(host: HostId) -> String {
    format!("_INBOX_{host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_built_parses_back(id in any::<u128>(), which in 0_usize..7) {
            let host = HostId(uuid::Uuid::from_u128(id));
            let topic = HostTopic::FROM_HOST.into_iter().chain(HostTopic::TO_HOST).nth(which).expect("seven topics");
            prop_assert_eq!(parse_host(&topic.of(host)), Some((host, topic)));
        }

        #[test]
        fn nothing_else_parses(text in "[a-z.*>]{0,60}") {
            prop_assert_eq!(parse_host(&text), None);
        }
    }
}
