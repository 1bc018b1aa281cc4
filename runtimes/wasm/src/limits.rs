//! Limits of a program's memory and tables. Beyond a limit it ends with that reason: a failed allocation would make it trap later for an
//! unclear reason.

use island_protocol::job::{Failure, FailureCode};
use wasmtime::{ResourceLimiter, Result};

use crate::{engine::TABLE_ENTRIES, verdict::Stopped};

/// The limits of one program; its memories are counted together.
#[derive(Debug)]
pub(crate) struct Limits {
    memory_bytes: usize,
    used_bytes: usize,
}

impl Limits {
    pub(crate) fn new(memory_bytes: usize) -> Self {
        Self { memory_bytes, used_bytes: 0 }
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let used = self.used_bytes.saturating_add(desired.saturating_sub(current));
        if used > self.memory_bytes {
            let message = format!(
                "the program needs {} MB of memory, its Cargo allows {} MB",
                used.div_ceil(1 << 20),
                self.memory_bytes >> 20
            );
            return Err(Stopped(Failure::of_job(FailureCode::OutOfMemory, message)).into());
        }
        self.used_bytes = used;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        if desired > TABLE_ENTRIES {
            let message =
                format!("the program needs a table of {desired} entries, {TABLE_ENTRIES} are allowed");
            return Err(Stopped(Failure::of_job(FailureCode::OutOfMemory, message)).into());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_counted_together() {
        let mut limits = Limits::new(10 << 20);
        assert!(limits.memory_growing(0, 6 << 20, None).is_ok());
        assert!(limits.memory_growing(0, 4 << 20, None).is_ok());
        assert!(limits.memory_growing(4 << 20, (4 << 20) + 1, None).is_err());
    }
}
