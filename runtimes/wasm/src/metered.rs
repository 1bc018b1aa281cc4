//! The world of a metered program: chance that follows from the input, and clocks that advance by one nanosecond a look. Its fuel is
//! then a function of program and input, the same on every Island.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// Secure chance, insecure chance and the insecure seed, all from `input`.
pub(crate) fn chance(input: &[u8]) -> (StdRng, StdRng, u128) {
    let digest = |purpose: &[u8]| -> [u8; 32] {
        Sha256::new().chain_update(purpose).chain_update(input).finalize().into()
    };
    let seed = digest(b"seed").first_chunk().copied().unwrap_or_default();
    (StdRng::from_seed(digest(b"secure")), StdRng::from_seed(digest(b"insecure")), u128::from_le_bytes(seed))
}

/// A clock that begins at zero and counts the looks at it.
#[derive(Debug, Default)]
pub(crate) struct Still(AtomicU64);

impl Still {
    fn look(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.look())
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        self.look()
    }
}
