//! The wall-clock time as an argument, so that tests can set it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use island_protocol::time::Timestamp;

/// A source of the current time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// Milliseconds since 1970, set by a test.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The current time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::from_unix_ms(island_daemon::wall_clock::unix_ms()),
            Self::Manual(ms) => Timestamp::from_unix_ms(ms.load(Ordering::Relaxed)),
        }
    }

    /// The time for messages that are signed, which does not follow steps of the machine's clock.
    pub(crate) fn steady(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::from_unix_ms(island_daemon::wall_clock::steady_unix_ms()),
            Self::Manual(_) => self.now(),
        }
    }

    /// The times that a signed message may have: its sender follows steps of its clock or not, and this machine's
    /// clock may have been wrong at the start, or be wrong now.
    pub(crate) fn times(&self) -> [Timestamp; 2] {
        [self.steady(), self.now()]
    }
}
