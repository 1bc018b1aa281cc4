//! Versions of the fabric's messages, and how an Island and a coordinator agree on one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::FABRIC_VERSION;

/// The versions that a program speaks, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct Versions {
    oldest: u32,
    newest: u32,
}

#[derive(Serialize, Deserialize)]
struct Bounds {
    oldest: u32,
    newest: u32,
}

/// The versions that this build speaks.
pub const VERSIONS: Versions = Versions { oldest: 1, newest: FABRIC_VERSION };

/// A range whose end is before its begin.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the newest version, {newest}, is older than the oldest, {oldest}")]
pub struct EmptyRange {
    oldest: u32,
    newest: u32,
}

impl Versions {
    /// The versions from `oldest` to `newest`.
    pub fn new(oldest: u32, newest: u32) -> Result<Self, EmptyRange> {
        if oldest <= newest { Ok(Self { oldest, newest }) } else { Err(EmptyRange { oldest, newest }) }
    }

    /// One version: that of the messages of a program from before versions were negotiated.
    pub fn only(version: u32) -> Self {
        Self { oldest: version, newest: version }
    }

    /// Whether `version` is one of them.
    pub fn contains(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl TryFrom<Bounds> for Versions {
    type Error = EmptyRange;
    fn try_from(Bounds { oldest, newest }: Bounds) -> Result<Self, EmptyRange> {
        Self::new(oldest, newest)
    }
}

impl From<Versions> for Bounds {
    fn from(Versions { oldest, newest }: Versions) -> Self {
        Self { oldest, newest }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { write!(f, "{oldest}") } else { write!(f, "{oldest} to {newest}") }
    }
}

/// An Island and a coordinator have no version in common.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error(
    "this Island speaks version {island} of the fabric protocol and the coordinator version {coordinator}; upgrade {}",
    self.outdated()
)]
pub struct Mismatch {
    /// What the Island speaks.
    pub island: Versions,
    /// What the coordinator speaks.
    pub coordinator: Versions,
}

impl Mismatch {
    /// The side with the older versions.
    pub fn outdated(&self) -> Side {
        if self.island.newest < self.coordinator.oldest { Side::Island } else { Side::Coordinator }
    }
}

/// A side of the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The agent on an Island.
    Island,
    /// The coordinator.
    Coordinator,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Island => "island-agent",
            Self::Coordinator => "the coordinator",
        })
    }
}

/// Returns the newest version that both sides speak.
pub fn negotiate(island: Versions, coordinator: Versions) -> Result<u32, Mismatch> {
    let newest = island.newest.min(coordinator.newest);
    let both = island.contains(newest) && coordinator.contains(newest);
    if both { Ok(newest) } else { Err(Mismatch { island, coordinator }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn versions() -> impl Strategy<Value = Versions> {
        (0_u32..12, 0_u32..6).prop_map(|(oldest, more)| Versions { oldest, newest: oldest + more })
    }

    proptest! {
        #[test]
        fn the_newest_common_version_or_none(island in versions(), coordinator in versions()) {
            let common = (0..32).rev().find(|v| island.contains(*v) && coordinator.contains(*v));
            match negotiate(island, coordinator) {
                Ok(version) => prop_assert_eq!(Some(version), common),
                Err(mismatch) => {
                    prop_assert_eq!(common, None);
                    let (old, new) = match mismatch.outdated() {
                        Side::Island => (island, coordinator),
                        Side::Coordinator => (coordinator, island),
                    };
                    prop_assert!(old.newest < new.oldest, "the upgraded side is the older one");
                    // Both sides come to the same result, whichever finds it.
                    prop_assert_eq!(negotiate(island, coordinator), Err(mismatch));
                }
            }
        }

        #[test]
        fn ranges_survive_the_wire(versions in versions()) {
            let text = serde_json::to_string(&versions).expect("serialize");
            prop_assert_eq!(serde_json::from_str::<Versions>(&text).expect("parse"), versions);
        }
    }

    #[test]
    fn the_error_names_what_to_upgrade() {
        let range = |oldest, newest| Versions::new(oldest, newest).expect("a range");
        let error =
            |island, coordinator| negotiate(island, coordinator).expect_err("nothing in common").to_string();
        assert_eq!(
            error(range(1, 2), range(3, 3)),
            "this Island speaks version 1 to 2 of the fabric protocol and the coordinator version 3; upgrade island-agent"
        );
        assert_eq!(
            error(Versions::only(9), range(1, 2)),
            "this Island speaks version 9 of the fabric protocol and the coordinator version 1 to 2; upgrade the coordinator"
        );
        assert!(Versions::new(2, 1).is_err());
        assert!(serde_json::from_str::<Versions>(r#"{"oldest":2,"newest":1}"#).is_err());
    }

    #[test]
    fn this_build_speaks_the_version_of_its_messages() {
        assert!(VERSIONS.contains(FABRIC_VERSION));
        assert_eq!(negotiate(VERSIONS, VERSIONS), Ok(FABRIC_VERSION));
    }
}
