//! A process's memory as macOS tells it: what it is charged for, which has in it what the Neural Engine and GPUs hold for it.

use std::{io, mem};

use super::Usage;

/// Nothing has to be open to ask.
#[derive(Debug)]
pub(super) struct Counter;

impl Counter {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere a file is opened")]
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self)
    }

    #[expect(clippy::unused_self, reason = "elsewhere an open file is read")]
    #[expect(unsafe_code, reason = "the standard library does not know a process's memory")]
    pub(super) fn read(&self) -> Usage {
        // SAFETY: the record is whole numbers alone, of which zero is one.
        let mut record: libc::rusage_info_v4 = unsafe { mem::zeroed() };
        // SAFETY: the place is a record of the version that is asked for.
        let status =
            unsafe { libc::proc_pid_rusage(libc::getpid(), libc::RUSAGE_INFO_V4, (&raw mut record).cast()) };
        if status != 0 {
            return Usage::default();
        }
        Usage { resident: record.ri_resident_size >> 10, allocated: record.ri_phys_footprint >> 10 }
    }
}
