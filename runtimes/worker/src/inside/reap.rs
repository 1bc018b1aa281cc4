//! Removes what workers left outside their processes: at once, or as the keeper of one worker.

use std::{
    io::{self, Read as _},
    os::fd::AsFd as _,
    path::Path,
    process::ExitCode,
    thread,
    time::Duration,
};

use island_protocol::ids::InstanceId;
use island_runtimes_api::Unavailable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::EngineLoader;
use crate::host::Orphans;

/// Time between two searches for what has existed for too long.
const SEARCH_INTERVAL: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// First and longest time between two tries, after the worker has ended.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Number of tries, about an hour's. The next agent removes what is left.
const TRIES: u32 = 65;

/// Removes what these workers left.
pub(super) fn once<E: EngineLoader>(engine: &mut E, workers: &Path, orphans: &Orphans) -> ExitCode {
    match engine.reap(workers, orphans) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => left_behind(&problem),
    }
}

fn left_behind(problem: &Unavailable) -> ExitCode {
    tracing::error!(problem = problem.reason, "something is left behind");
    ExitCode::FAILURE
}

/// Waits until a worker has ended, which closes standard input, and removes what it left, as often as it takes. Meanwhile removes what has
/// existed for longer than any job: a worker that is stopped or was taken over ends nothing.
pub(super) fn keep<E: EngineLoader>(engine: &mut E, workers: &Path, of: &[InstanceId]) -> ExitCode {
    while !is_closed() {
        for worker in of {
            if let Err(problem) = engine.reap_expired(workers, *worker) {
                // Tried again in a minute.
                left_behind(&problem);
            }
        }
    }
    let (mut wait, longest) = RETRY;
    for _ in 0..TRIES {
        if once(engine, workers, &Orphans::Of(of.to_vec())) == ExitCode::SUCCESS {
            return ExitCode::SUCCESS;
        }
        thread::sleep(wait);
        wait = (wait * 2).min(longest);
    }
    ExitCode::FAILURE
}

/// Waits for the end of standard input; returns `false` after a minute without it. What the worker writes there is dropped.
fn is_closed() -> bool {
    let input = io::stdin();
    loop {
        let mut ready = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        match poll(&mut ready, Some(&SEARCH_INTERVAL)) {
            Ok(0) => return false,
            Ok(_) => match input.lock().read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It cannot be waited for: what is removed too early was the worker's own.
                Err(_) => return true,
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}
