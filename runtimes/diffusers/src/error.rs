//! Errors of candle.

use island_runtimes_kit::error::EngineError;

/// Converts an error of a computation. Shapes are checked before, so it is a fault of the host or of this engine.
pub fn compute_error(context: &'static str) -> impl Fn(candle_core::Error) -> EngineError {
    move |error| EngineError::host(context).because(error)
}
