//! One job: a program, its store, and the future that runs it, which may start on one thread and continue on another.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::{
    Phase, RunContext, RunRequest,
    lines::{Exit, Lines},
};
use tokio_util::sync::CancellationToken;

use crate::{
    drive::{Bounds, Left, drive, first_slice},
    guest::Means,
    program::Mapped,
    runtime::{MODEL, Shared, is_metered},
    stdio::Stdout,
    ticker::Running,
    verdict,
};

/// Fuel of a metered program: more than it can use before its deadline.
const FULL_TANK: u64 = u64::MAX;

/// A job that has not started.
pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) request: RunRequest,
    pub(crate) context: RunContext,
    pub(crate) cancel: CancellationToken,
}

/// How a program ended, and the fuel that it used if it is metered.
type Ended = (wasmtime::Result<()>, Option<u64>);

/// A job that has started.
pub(crate) struct Playing {
    future: Pin<Box<dyn Future<Output = Ended> + Send>>,
    stdout: Stdout,
    bounds: Bounds,
    timeout_s: u64,
    _running: Running,
}

/// Returns the compiled program of a request.
pub(crate) fn program(request: &RunRequest) -> Result<&Path, Failure> {
    let path = request.artifacts.get(MODEL).or_else(|| request.artifacts.values().next());
    path.map(PathBuf::as_path)
        .ok_or_else(|| Failure::of_job(FailureCode::ModelUnavailable, "the Cargo names no program"))
}

/// A run that was cancelled.
pub(crate) fn cancelled() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was cancelled")
}

impl Job {
    pub(crate) fn is_metered(&self) -> bool {
        is_metered(&self.request.cargo)
    }

    /// Runs it on this thread.
    pub(crate) fn run(self, shared: &Shared) -> Outcome {
        self.context.work.enter(Phase::Load);
        match shared.programs.get(&self.program, self.is_metered()) {
            Ok(program) => self.start(program, shared).run(),
            Err(failure) => Outcome::failed(failure),
        }
    }

    /// Creates everything that the program needs. Its deadline counts from here.
    pub(crate) fn start(self, program: Arc<Mapped>, shared: &Shared) -> Playing {
        let metered = self.is_metered();
        let Self { request, context, cancel, .. } = self;
        let limits = request.cargo.limits;
        let lines = Lines::new(context.events, context.log.clone(), limits.max_output_bytes);
        let stdout = Stdout::new(lines, context.work.clone());
        let means = Means {
            // Not through its text form, which a formatter would write in pieces.
            input: Bytes::from(serde_json::to_vec(&request.input).expect("JSON is JSON")),
            stdout: stdout.clone(),
            log: context.log,
            memory_bytes: memory_bytes(&request.cargo),
            metered,
        };
        let mut store = means.store(shared.engines.get(metered));
        if metered {
            store.set_fuel(FULL_TANK).expect("the engine of metered programs has fuel");
        }
        context.work.enter(Phase::Run);
        let running = shared.ticker.running();
        let start = Instant::now();
        let deadline = start + time_limit(limits.timeout_s);
        let future = Box::pin(async move {
            let ended = program.program.run(&mut store).await;
            program.note(start.elapsed());
            (ended, metered.then(|| FULL_TANK - store.get_fuel().unwrap_or(FULL_TANK)))
        });
        let bounds = Bounds { deadline, cancel, work: context.work };
        Playing { future, stdout, bounds, timeout_s: limits.timeout_s, _running: running }
    }
}

impl Playing {
    /// Runs it for one time slice; returns it if it has not ended.
    pub(crate) fn run_a_little(mut self) -> Result<Outcome, Self> {
        match first_slice(self.future.as_mut()) {
            Poll::Ready(ended) => Ok(self.end(Ok(ended))),
            Poll::Pending => Err(self),
        }
    }

    /// Runs it to its end on this thread.
    pub(crate) fn run(mut self) -> Outcome {
        let ended = drive(self.future.as_mut(), &self.bounds);
        self.end(ended)
    }

    fn end(self, ended: Result<Ended, Left>) -> Outcome {
        let Self { future, stdout, timeout_s, .. } = self;
        let (exit, fuel) = match ended {
            Ok((ended, fuel)) => (verdict::exit(ended), fuel),
            Err(Left::Cancelled) => (Exit::Failed(cancelled()), None),
            Err(Left::Deadline) => (Exit::Failed(late(timeout_s)), None),
        };
        // Its last output is in the lines once it is dropped.
        drop(future);
        let mut outcome = stdout.finish(exit);
        let (Outcome::Completed { usage, .. } | Outcome::Failed { usage, .. }) = &mut outcome;
        usage.fuel = fuel;
        outcome
    }
}

/// The Cargo's time limit, at most a day: a longer one may be beyond what a clock can count.
fn time_limit(timeout_s: u64) -> Duration {
    Duration::from_secs(timeout_s).min(Duration::from_hours(24))
}

fn memory_bytes(cargo: &CargoSpec) -> usize {
    usize::try_from(cargo.ram_mb().saturating_mul(1 << 20)).unwrap_or(usize::MAX)
}

fn late(seconds: u64) -> Failure {
    Failure::of_job(FailureCode::DeadlineExceeded, format!("the program ran for more than {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_limit_is_beyond_the_clock() {
        let now = Instant::now();
        assert_eq!(time_limit(60), Duration::from_mins(1));
        assert!(now.checked_add(time_limit(u64::MAX)).is_some());
    }
}
