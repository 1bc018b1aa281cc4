//! `backup` and `restore`.

use std::{path::Path, process::ExitCode};

use super::print;
use island_coordinator_domain::config::Config;
use island_coordinator_storage::backup;

/// Backs up the database while coordinators use it.
pub(super) async fn back_up(config: &Config, file: &Path) -> anyhow::Result<ExitCode> {
    backup::backup(&config.database, file).await?;
    print(&format!("{}\n", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Creates the database from a backup.
pub(super) async fn restore(config: &Config, file: &Path) -> anyhow::Result<ExitCode> {
    backup::restore(&config.database, file).await?;
    print("restored; revoke again what was revoked since the backup, then start the coordinators\n");
    Ok(ExitCode::SUCCESS)
}
