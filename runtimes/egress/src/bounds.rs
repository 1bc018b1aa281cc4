//! Limits of one job's connections.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The limits of one job's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum connections at once; one more is refused.
    pub at_once: usize,
    /// Maximum connections in total; after the last the socket is closed.
    pub in_all: usize,
    /// Maximum bytes of all connections, both directions together.
    pub bytes: u64,
    /// Time to send a request.
    pub head: Duration,
    /// Time to resolve a name and connect.
    pub connect: Duration,
    /// Time without a byte in either direction.
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

/// Remaining bytes.
#[derive(Debug)]
pub(crate) struct Allowance(AtomicU64);

impl Allowance {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes at most this many bytes, fewer if fewer remain. Returns `false` if none remain.
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
        fn at_most_one_piece_more_than_the_limit_is_taken(bytes in 0_u64..10_000, pieces in prop::collection::vec(1_usize..3_000, 0..40)) {
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
