//! How much one job may connect and carry.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The bounds of one job's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once; one more is refused.
    pub at_once: usize,
    /// Connections in all; after the last nobody listens any more.
    pub in_all: usize,
    /// Bytes, of all connections and both directions together.
    pub bytes: u64,
    /// For a request to be said.
    pub head: Duration,
    /// For a name to be resolved and a connection to be made.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            at_once: 16,
            in_all: 1000,
            bytes: 512 << 20,
            head: Duration::from_secs(10),
            connect: Duration::from_secs(15),
            idle: Duration::from_mins(1),
        }
    }
}

/// Bytes that are left.
#[derive(Debug)]
pub(crate) struct Allowance(AtomicU64);

impl Allowance {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes some; of the last there may be fewer. False once there are none.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(bytes as u64));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_is_taken_than_there_is_and_one_piece(bytes in 0_u64..10_000, pieces in prop::collection::vec(1_usize..3_000, 0..40)) {
            let (allowance, mut taken) = (Allowance::new(bytes), 0);
            for piece in pieces {
                let was_used_up = allowance.is_used_up();
                prop_assert_eq!(allowance.take(piece), !was_used_up);
                if !was_used_up {
                    taken += piece as u64;
                }
                prop_assert!(taken < bytes + 3_000 && allowance.is_used_up() == (taken >= bytes));
            }
        }
    }
}
