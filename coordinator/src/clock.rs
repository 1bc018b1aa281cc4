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
}
