//! Labels on all objects that we create, by which an agent distinguishes the orphans of its own workers from objects of others.

use std::{collections::HashMap, time::Duration};

use island_protocol::ids::{AttemptKey, InstanceId};
use sha2::{Digest, Sha256};

/// The Island: its state folder.
pub const ISLAND: &str = "island.island";
/// The worker.
pub const WORKER: &str = "island.worker";
/// The job.
pub const JOB: &str = "island.job";
/// The attempt.
pub const ATTEMPT: &str = "island.attempt";
/// Epoch of the assignment.
pub const EPOCH: &str = "island.epoch";
/// Seconds after its creation at which a container is removed, whatever its worker does.
pub const LIFETIME: &str = "island.lifetime";

/// The creator of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maker {
    /// Our Island.
    pub island: String,
    /// Our worker.
    pub worker: InstanceId,
}

/// The labels of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerLabels<'a> {
    /// Its creator.
    pub maker: &'a Maker,
    /// The attempt; `None` if it was created in advance.
    pub key: Option<AttemptKey>,
    /// Longest time for which it may exist.
    pub lifetime: Duration,
}

impl ContainerLabels<'_> {
    /// Always all labels: an image may have labels of its own, which would count otherwise.
    pub fn labels(&self) -> HashMap<String, String> {
        let of_key = |part: fn(AttemptKey) -> String| self.key.map(part).unwrap_or_default();
        let pairs = [
            (ISLAND, self.maker.island.clone()),
            (WORKER, self.maker.worker.to_string()),
            (JOB, of_key(|key| key.job_id.to_string())),
            (ATTEMPT, of_key(|key| key.attempt.to_string())),
            (EPOCH, of_key(|key| key.epoch.to_string())),
            (LIFETIME, self.lifetime.as_secs().to_string()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The name by which people find a job's container, also one created in advance without labels of the job.
pub fn container_name(key: AttemptKey) -> String {
    format!("island-{}-{}-{}", key.job_id, key.attempt, key.epoch)
}

/// A short form of a long name.
pub(crate) fn short_hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..16])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
