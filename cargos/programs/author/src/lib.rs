//! Writing a Cargo: a program that reads one JSON text from standard input and writes JSON lines to standard output.
//!
//! [`run`] does the reading and the writing. The Cargo is a function from its input to its result:
//!
//! ```no_run
//! use island_cargo::{Error, Output, run};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Input {
//!     text: String,
//!     times: u32,
//! }
//!
//! #[derive(Serialize)]
//! struct Answer {
//!     text: String,
//! }
//!
//! fn repeat(input: Input, out: &mut Output) -> Result<Answer, Error> {
//!     if input.times > 100 {
//!         return Err(Error::invalid("times is at most 100"));
//!     }
//!     let mut text = String::new();
//!     for time in 0..input.times {
//!         text.push_str(&input.text);
//!         out.token(&input.text); // seen by the consumer at once
//!         out.progress(u64::from(time) + 1, u64::from(input.times));
//!     }
//!     Ok(Answer { text })
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     run(repeat)
//! }
//! ```
//!
//! What the function returns is the job's output and has to fit the Cargo's `output_schema`. A Cargo that only streams
//! returns `()`. Every line is flushed when written, and the last one marks the end. An [`Error`] or a panic becomes an `error` line and an exit code
//! other than 0; only errors created by [`Error::invalid`] or [`OrInvalid`] mark the job's input as the cause.
//!
//! [`Blob`] is a field of bytes, which JSON carries in base64.
//!
//! Standard error is the Cargo's debug log; `eprintln!` at will. `docs/cargo-authors.md` has the whole contract.

mod blob;
mod error;
mod image;
mod output;
mod run;

pub use blob::Blob;
pub use error::{Error, OrInvalid};
pub use image::Image;
pub use output::{Output, Usage};
pub use run::{run, run_between};
