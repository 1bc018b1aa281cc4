//! How a container ended, and whose fault it was.

use std::time::Duration;

use bollard::models::ContainerState;
use island_protocol::job::{Failure, FailureCode};
use island_runtimes_api::lines::Exit;

use crate::resource_limits::ResourceLimits;

/// Exit codes above this are numbers of signals.
const SIGNALS: i64 = 128;
/// Number of signals.
const LAST_SIGNAL: i64 = 64;

/// The result of a program that exited.
pub fn verdict(state: &ContainerState, limits: &ResourceLimits) -> Exit {
    let code = state.exit_code.unwrap_or_default();
    if code == 0 {
        return Exit::Code(0);
    }
    if state.oom_killed == Some(true) {
        return Exit::Failed(out_of_memory(limits));
    }
    match code - SIGNALS {
        signal @ 1..=LAST_SIGNAL => Exit::Signal(signal as i32),
        _ => Exit::Code(code as i32),
    }
}

fn out_of_memory(limits: &ResourceLimits) -> Failure {
    let message =
        format!("the program needed more than the {} MB of memory it has", limits.memory_bytes >> 20);
    Failure::of_job(FailureCode::OutOfMemory, message)
}

/// The result of a program that exceeded its deadline.
pub fn too_late(after: Duration) -> Failure {
    let message = format!("the program was still running after {} s", after.as_secs());
    Failure::of_job(FailureCode::DeadlineExceeded, message)
}

/// The result of a run that was stopped.
pub fn cancelled() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was stopped")
}

/// The result of a run whose daemon failed.
pub fn abandoned() -> Failure {
    Failure::of_host(FailureCode::RuntimeCrashed, "the container daemon failed while the program was running")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(exit_code: i64, oom_killed: bool) -> Exit {
        let state = ContainerState {
            exit_code: Some(exit_code),
            oom_killed: Some(oom_killed),
            ..ContainerState::default()
        };
        let limits = ResourceLimits {
            memory_bytes: 256 << 20,
            milli_cpus: 1000,
            pids: 64,
            scratch_bytes: 1,
            time: Duration::from_secs(1),
            gpus: false,
        };
        verdict(&state, &limits)
    }

    #[test]
    fn ends_are_distinguished() {
        assert!(matches!(exit(0, false), Exit::Code(0)));
        assert!(matches!(exit(3, false), Exit::Code(3)));
        assert!(matches!(exit(137, false), Exit::Signal(9)));
        assert!(matches!(exit(139, false), Exit::Signal(11)));
        assert!(matches!(exit(255, false), Exit::Code(255)));
        let Exit::Failed(failure) = exit(137, true) else { panic!("memory ran out") };
        assert_eq!(
            (failure.code, failure.fault),
            (FailureCode::OutOfMemory, island_protocol::job::Fault::Job)
        );
        // A child that was ended for its memory, and a program that continued.
        assert!(matches!(exit(0, true), Exit::Code(0)));
    }
}
