//! Logs: text for people, JSON for collectors, always on standard error.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// How logs look. `ISLAND_LOG` sets the filter, in the syntax of `RUST_LOG`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line per event, for people.
    #[default]
    Text,
    /// One JSON object per event, for collectors.
    Json,
}

/// Starts logging. A second call changes nothing, so tests may call it freely.
pub fn init(format: LogFormat, default_filter: &str) {
    let filter = EnvFilter::try_from_env("ISLAND_LOG").unwrap_or_else(|_| EnvFilter::new(default_filter));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would report a line that cannot be written, on a full disk for example, by `eprintln!`, which panics for the same reason.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
