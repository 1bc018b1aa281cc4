//! `migrate`.

use std::process::ExitCode;

use island_coordinator_domain::config::Config;
use island_coordinator_storage::Store;

/// Migrates the database.
pub(super) async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    // Opening migrates.
    Store::open(&config.database).await?.close().await;
    Ok(ExitCode::SUCCESS)
}
