//! Why a Cargo gave up.

use std::fmt::{self, Display};

/// The failure of a job, as its consumer reads it.
///
/// `?` turns any error of a library into one; [`OrInvalid`] does so and blames the input.
#[derive(Debug)]
pub struct Error {
    message: String,
    invalid: bool,
}

impl Error {
    /// The Cargo could not do it, whatever the input.
    pub fn failed(message: impl Display) -> Self {
        Self { message: message.to_string(), invalid: false }
    }

    /// The input requests something impossible.
    pub fn invalid(message: impl Display) -> Self {
        Self { message: message.to_string(), invalid: true }
    }

    /// What failed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the input is at fault.
    pub fn is_invalid(&self) -> bool {
        self.invalid
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// `Error` does not implement `std::error::Error`: that would conflict with this conversion, which `?` needs.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Self::failed(chain(&error))
    }
}

/// Blames the input for an error: `let date = text.parse::<Date>().or_invalid("date")?;`
pub trait OrInvalid<T> {
    /// The value, or an error that names `what` was being read from the input.
    fn or_invalid(self, what: &str) -> Result<T, Error>;
}

impl<T, E: std::error::Error> OrInvalid<T> for Result<T, E> {
    fn or_invalid(self, what: &str) -> Result<T, Error> {
        self.map_err(|error| Error::invalid(format!("{what}: {}", chain(&error))))
    }
}

impl<T> OrInvalid<T> for Option<T> {
    fn or_invalid(self, what: &str) -> Result<T, Error> {
        self.ok_or_else(|| Error::invalid(what))
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some libraries repeat the cause in the message.
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
