//! A process's memory on macOS: its footprint, which includes what the Neural Engine and GPUs hold for it.

use std::{io, mem};

use super::Usage;

/// No file has to be open.
#[derive(Debug)]
pub(super) struct Counter;

impl Counter {
    #[expect(clippy::unnecessary_wraps, reason = "on other systems a file is opened")]
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn of(_pid: u32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[expect(clippy::unused_self, reason = "on other systems an open file is read")]
    #[expect(unsafe_code, reason = "the standard library does not know a process's memory")]
    pub(super) fn read(&self) -> Option<Usage> {
        // SAFETY: the record contains only integers, for which zero is valid.
        let mut record: libc::rusage_info_v4 = unsafe { mem::zeroed() };
        // SAFETY: the pointer is to a record of the requested version.
        let status =
            unsafe { libc::proc_pid_rusage(libc::getpid(), libc::RUSAGE_INFO_V4, (&raw mut record).cast()) };
        if status != 0 {
            return None;
        }
        let (resident, allocated) = (record.ri_resident_size >> 10, record.ri_phys_footprint >> 10);
        Some(Usage { resident, allocated, threads: 0 })
    }
}
