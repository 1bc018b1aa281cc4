//! The environment of a metered program: random numbers derived from the input, and clocks that advance by one nanosecond per read. Its
//! fuel then depends only on program and input, and is the same on every Island.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// Secure and insecure random numbers and the insecure seed, all derived from `input`.
pub(crate) fn chance(input: &[u8]) -> (StdRng, StdRng, u128) {
    let digest = |purpose: &[u8]| -> [u8; 32] {
        Sha256::new().chain_update(purpose).chain_update(input).finalize().into()
    };
    let seed = digest(b"seed").first_chunk().copied().unwrap_or_default();
    (StdRng::from_seed(digest(b"secure")), StdRng::from_seed(digest(b"insecure")), u128::from_le_bytes(seed))
}

/// A clock that starts at zero and counts reads.
#[derive(Debug, Default)]
pub(crate) struct Still(AtomicU64);

impl Still {
    fn read(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.read())
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        self.read()
    }
}
