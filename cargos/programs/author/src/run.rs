//! From the first byte of input to the exit code.

use std::{
    io::{self, Read, Write},
    panic,
    process::{self, ExitCode},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Error, OrInvalid, Output};

/// Exit code of a Cargo that reported an error.
const FAILED: u8 = 1;
/// Exit code of a Cargo that panicked, as Rust programs have it.
const PANICKED: i32 = 101;

/// Runs a Cargo: reads the input, calls `cargo`, writes what it returns as the result.
///
/// A panic on any thread ends the program, with an `error` line.
pub fn run<I, R>(cargo: impl FnOnce(I, &mut Output<'_>) -> Result<R, Error>) -> ExitCode
where
    I: DeserializeOwned,
    R: Serialize,
{
    panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        // Before the abort that follows a panic in modules, which would give the consumer no message.
        Output::new(io::stdout()).error(&Error::failed(format!("the Cargo panicked: {}", words(panic))));
        process::exit(PANICKED)
    }));
    if run_between(io::stdin().lock(), io::stdout(), cargo) { ExitCode::SUCCESS } else { FAILED.into() }
}

/// What [`run`] does, between a reader and a writer of your choice, for tests. True if the Cargo did its work.
pub fn run_between<I, R>(
    mut from: impl Read,
    to: impl Write,
    cargo: impl FnOnce(I, &mut Output<'_>) -> Result<R, Error>,
) -> bool
where
    I: DeserializeOwned,
    R: Serialize,
{
    let mut out = Output::new(to);
    match read(&mut from).and_then(|input| cargo(input, &mut out)).and_then(|answer| value(&answer)) {
        // A Cargo that only streams returns `()`.
        Ok(Value::Null) => {}
        Ok(answer) => out.result(&answer),
        Err(error) => {
            out.error(&error);
            return false;
        }
    }
    out.done();
    !out.is_closed()
}

fn read<I: DeserializeOwned>(from: &mut impl Read) -> Result<I, Error> {
    let mut text = Vec::new();
    from.read_to_end(&mut text)?;
    serde_json::from_slice(&text).or_invalid("input")
}

fn value(answer: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(answer).map_err(|error| Error::failed(format!("writing the result: {error}")))
}

/// The words of a panic, without the place, which means nothing to a consumer.
fn words<'a>(panic: &'a panic::PanicHookInfo<'_>) -> &'a str {
    panic.payload_as_str().unwrap_or("no reason given")
}

#[cfg(test)]
mod tests;
