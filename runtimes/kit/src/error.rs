//! The error of engines, and how it appears on the wire.

use std::{
    error::Error,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use island_protocol::job::{Failure, FailureCode};

/// A cause of an [`EngineError`].
type Cause = Arc<dyn Error + Send + Sync>;

/// Loading a model or running a job failed.
///
/// Its text is what was attempted; the cause is its source. On the wire, where a [`Failure`] has one message, both are joined:
/// `config.json is not JSON: expected value at line 1 column 1`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{context}")]
pub struct EngineError {
    kind: ErrorKind,
    context: String,
    #[source]
    source: Option<Cause>,
}

/// What kind of error it is: whose fault, and the code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input breaks a rule of its task.
    InvalidInput,
    /// The input is longer than the model's context.
    ContextLength,
    /// The model does not match its Cargo, or is damaged.
    InvalidModel,
    /// The chat template took too long or grew too large.
    TemplateLimit,
    /// The model computed an output that its task cannot return.
    InvalidOutput,
    /// This engine has no implementation of the task.
    UnsupportedTask,
    /// A file of the model cannot be read on this host.
    ModelUnavailable,
    /// The host has too little memory.
    OutOfMemory,
    /// A library or a device of the host failed.
    Host,
    /// The engine panicked, or is shut down.
    Crashed,
    /// The run was cancelled.
    Interrupted,
}

impl EngineError {
    /// An error without a cause.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// A failure of the host, caused by a library or a device.
    pub fn host(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Host, context)
    }

    /// The run was cancelled.
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "the run was stopped")
    }

    /// The same error with its cause.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(Arc::from(cause.into())), ..self }
    }

    /// The same error with a context in front, such as the name of the file.
    #[must_use]
    pub fn within(self, context: impl Display) -> Self {
        Self { context: format!("{context}: {}", self.context), ..self }
    }

    /// The same error with a second message behind its own.
    #[must_use]
    pub fn followed_by(self, text: impl Display) -> Self {
        Self { context: format!("{}; {text}", self.message()), source: None, ..self }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message on the wire: the text of the error and of its cause.
    pub fn message(&self) -> String {
        match &self.source {
            Some(cause) => format!("{}: {cause}", self.context),
            None => self.context.clone(),
        }
    }
}

/// An error of the job: the input breaks a rule of its task.
pub fn invalid_input(context: impl Into<String>) -> EngineError {
    EngineError::new(ErrorKind::InvalidInput, context)
}

/// An error of the Cargo: its model does not match it, or is damaged.
pub fn invalid_model(context: impl Into<String>) -> EngineError {
    EngineError::new(ErrorKind::InvalidModel, context)
}

/// Calls a library with a part of a model. If it panics, the model is at fault: another Island would run into the same.
pub fn guarded<T>(context: &str, call: impl FnOnce() -> T) -> Result<T, EngineError> {
    // What the call was changing is dropped with it.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| invalid_model(format!("{context}: the library panicked")))
}

/// Calls a library with a file of a job's input. If it panics, the input is at fault, as with one that it refuses.
pub fn guarded_input<T>(context: &str, call: impl FnOnce() -> T) -> Result<T, EngineError> {
    // What the call was changing is dropped with it.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| invalid_input(format!("{context}: the library panicked")))
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = error.message();
        match error.kind {
            ErrorKind::InvalidInput => Self::of_job(FailureCode::InvalidInput, message),
            ErrorKind::ContextLength => Self::of_job(FailureCode::ContextLengthExceeded, message),
            ErrorKind::InvalidModel => Self::of_job(FailureCode::ModelRejected, message),
            ErrorKind::TemplateLimit => Self::of_job(FailureCode::TemplateLimit, message),
            ErrorKind::InvalidOutput => Self::of_job(FailureCode::InvalidOutput, message),
            // Another Island may have a newer engine.
            ErrorKind::UnsupportedTask => Self::of_host(FailureCode::ModelRejected, message),
            ErrorKind::ModelUnavailable => Self::of_host(FailureCode::ModelUnavailable, message),
            ErrorKind::OutOfMemory => Self::of_host(FailureCode::OutOfMemory, message),
            ErrorKind::Host => Self::of_host(FailureCode::InternalError, message),
            ErrorKind::Crashed => Self::of_host(FailureCode::RuntimeCrashed, message),
            ErrorKind::Interrupted => Self::interrupted(FailureCode::CancelledByUser, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::job::Fault;

    use super::*;

    #[test]
    fn a_panic_of_a_library_is_an_error_of_the_model() {
        assert_eq!(guarded("tokenizer.json", || 3).ok(), Some(3));
        let failed: Result<(), _> = guarded("tokenizer.json", || panic!("index out of bounds"));
        let failure = Failure::from(failed.expect_err("a panic"));
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::ModelRejected));
    }

    #[test]
    fn failure_joins_context_and_cause() {
        let cause = std::io::Error::other("disk");
        let error =
            EngineError::new(ErrorKind::ModelUnavailable, "read a.json").because(cause).within("model");
        assert_eq!(error.to_string(), "model: read a.json");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("disk"));
        let expected = Failure::of_host(FailureCode::ModelUnavailable, "model: read a.json: disk");
        assert_eq!(Failure::from(error), expected);
    }

    #[test]
    fn kinds_name_who_is_at_fault() {
        let fault = |kind| Failure::from(EngineError::new(kind, "")).fault;
        for kind in [
            ErrorKind::InvalidInput,
            ErrorKind::ContextLength,
            ErrorKind::InvalidModel,
            ErrorKind::TemplateLimit,
            ErrorKind::InvalidOutput,
        ] {
            assert_eq!(fault(kind), Fault::Job, "{kind:?}");
        }
        for kind in [
            ErrorKind::UnsupportedTask,
            ErrorKind::ModelUnavailable,
            ErrorKind::OutOfMemory,
            ErrorKind::Host,
            ErrorKind::Crashed,
        ] {
            assert_eq!(fault(kind), Fault::Host, "{kind:?}");
        }
        assert_eq!(fault(ErrorKind::Interrupted), Fault::Interrupted);
    }
}
