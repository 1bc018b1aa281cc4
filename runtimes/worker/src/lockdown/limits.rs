//! Limits of the kernel: core dumps, open files, file sizes, threads, processor time, and tracing by others.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Maximum size of a file that a worker writes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Maximum number of open files and sockets.
const MAX_OPEN_FILES: u64 = 1024;
/// Maximum number of processes and threads of its user; other programs of the user count, too, hence the size.
const MAX_TASKS: u64 = 8192;

pub(super) fn set(cpu_s: u64) -> Result<(), String> {
    // No core dump: it would contain prompts.
    lower(Resource::Core, 0)?;
    lower(Resource::Fsize, MAX_FILE_BYTES)?;
    lower(Resource::Nofile, MAX_OPEN_FILES)?;
    lower(Resource::Nproc, MAX_TASKS)?;
    if cpu_s > 0 {
        lower(Resource::Cpu, cpu_s)?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| format!("forbid tracing: {error}"))
}

fn lower(resource: Resource, most: u64) -> Result<(), String> {
    let now = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Some(now.min(most));
    setrlimit(resource, Rlimit { current: limit, maximum: limit })
        .map_err(|error| format!("lower {resource:?}: {error}"))
}
