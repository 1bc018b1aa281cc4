//! The wall-clock time as an argument, so that tests can set it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
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
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Manual(ms) => Timestamp::from_unix_ms(ms.load(Ordering::Relaxed)),
        }
    }
}
