//! Converts how a program ended into the outcome of its job.

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_api::lines::Exit;
use wasmtime::{Error, Result, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::engine::STACK_BYTES;

/// Stops a program from a host function, with the failure of its job.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct Stopped(pub(crate) Failure);

/// The end of a program that was not stopped from outside.
pub(crate) fn exit(ended: Result<()>) -> Exit {
    let Err(error) = ended else { return Exit::Code(0) };
    if let Some(&I32Exit(code)) = error.downcast_ref() {
        return Exit::Code(code);
    }
    if let Some(Stopped(failure)) = error.downcast_ref() {
        return Exit::Failed(failure.clone());
    }
    Exit::Failed(match error.downcast_ref() {
        Some(Trap::StackOverflow) => Failure::of_job(
            FailureCode::OutOfMemory,
            format!("the program used up its stack of {} KB", STACK_BYTES >> 10),
        ),
        Some(trap) => Failure::of_job(FailureCode::CargoFailed, format!("the program was ended by a {trap}")),
        None => of_instance(&error),
    })
}

/// A program that could not be started: the pool of this engine is as large as anywhere.
fn of_instance(error: &Error) -> Failure {
    Failure::of_job(FailureCode::CargoFailed, format!("the program cannot run: {}", chain(error)))
}

/// An error with its causes, without the symbols of the program.
pub(crate) fn chain(error: &Error) -> String {
    let backtrace = error.downcast_ref::<WasmBacktrace>().map(WasmBacktrace::to_string);
    let causes = error.chain().map(ToString::to_string);
    causes
        .filter(|cause| backtrace.as_deref().is_none_or(|backtrace| !cause.contains(backtrace)))
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(error: Error) -> Failure {
        match exit(Err(error)) {
            Exit::Failed(failure) => failure,
            other => panic!("no failure: {other:?}"),
        }
    }

    #[test]
    fn ends_and_their_words() {
        assert_eq!(exit(Ok(())), Exit::Code(0));
        assert_eq!(exit(Err(I32Exit(7).into())), Exit::Code(7));
        assert_eq!(failure(Trap::StackOverflow.into()).code, FailureCode::OutOfMemory);
        let trap = failure(Trap::UnreachableCodeReached.into());
        assert!(trap.code == FailureCode::CargoFailed && trap.message.contains("unreachable"), "{trap:?}");
        let stopped = Failure::of_job(FailureCode::OutputLimit, "too much");
        assert_eq!(failure(Error::from(Stopped(stopped.clone())).context("in `_start`")), stopped);
    }
}
