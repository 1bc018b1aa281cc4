//! The labels on everything we create, by which a later worker tells its own Island's orphans from what belongs to others.

use std::collections::HashMap;

use island_protocol::ids::{AttemptKey, InstanceId};
use sha2::{Digest, Sha256};

/// Which Island: the state folder it lives in.
pub const ISLAND: &str = "island.island";
/// Which worker.
pub const WORKER: &str = "island.worker";
/// The worker's process, in words that no later process shares.
pub const PROCESS: &str = "island.process";
/// Which job.
pub const JOB: &str = "island.job";
/// Which try at it.
pub const ATTEMPT: &str = "island.attempt";
/// Fencing number of the assignment.
pub const EPOCH: &str = "island.epoch";

/// Who made a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maker {
    /// Our Island.
    pub island: String,
    /// Our worker.
    pub worker: InstanceId,
    /// Our process.
    pub process: String,
}

/// What a container is marked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerLabels<'a> {
    /// Who made it.
    pub maker: &'a Maker,
    /// For which attempt; none yet if it was made ahead.
    pub key: Option<AttemptKey>,
}

impl ContainerLabels<'_> {
    /// All labels, always: an image may carry labels of its own, and one that we leave out would be its to choose.
    pub fn labels(&self) -> HashMap<String, String> {
        let of_key = |part: fn(AttemptKey) -> String| self.key.map(part).unwrap_or_default();
        let pairs = [
            (ISLAND, self.maker.island.clone()),
            (WORKER, self.maker.worker.to_string()),
            (PROCESS, self.maker.process.clone()),
            (JOB, of_key(|key| key.job_id.to_string())),
            (ATTEMPT, of_key(|key| key.attempt.to_string())),
            (EPOCH, of_key(|key| key.epoch.to_string())),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The name by which people find a job's container, also one that was made ahead and has no labels of the job.
pub fn container_name(key: AttemptKey) -> String {
    format!("island-{}-{}-{}", key.job_id, key.attempt, key.epoch)
}

/// Short name of a thing that has a long one.
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
