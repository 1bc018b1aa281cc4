//! Command line of the program.

pub mod admin;
mod backup;
mod catalogue;
mod init;
mod migrate;
mod serve;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};
use island_daemon::{config, telemetry};
use serde::Serialize;

use island_coordinator_domain::config::Config;

/// Prefix of environment variables that are settings.
pub const ENV_PREFIX: &str = "ISLAND_COORDINATOR_";

/// The coordinator of an Island network.
#[derive(Debug, Parser)]
#[command(name = "island-coordinator", version)]
pub struct Cli {
    /// Command; `serve` by default.
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

impl Cli {
    /// Whether it serves, and so writes a log; other commands are used by a person.
    pub fn serves(&self) -> bool {
        matches!(self.command, None | Some(Command::Serve))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API (the default).
    Serve,
    /// Check or print the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Set a network up: settings, keys, and nats.conf. Run again, it changes what the options state and keeps the rest.
    Init(Box<init::Init>),
    /// Maintain the catalogue.
    #[command(subcommand)]
    Catalogue(catalogue::CatalogueCommand),
    /// Manage accounts and keys directly in the database.
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Migrate the database to this version and exit, before coordinators of it start. They would do so themselves.
    Migrate,
    /// Write a consistent backup of the database, while coordinators use it.
    Backup {
        /// File to write; it must not exist.
        file: PathBuf,
    },
    /// Create the database from a backup, while no coordinator runs. The file of the embedded database must not exist;
    /// a PostgreSQL database must be empty.
    Restore {
        /// File that `backup` wrote.
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ConfigCommand {
    /// Check the configuration and the catalogue, and list every problem.
    Check,
    /// Print the effective configuration as TOML.
    Show,
}

/// Settings on the command line; they override the environment and the file.
#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// TOML file with settings.
    #[arg(long, global = true, env = "ISLAND_COORDINATOR_CONFIG_FILE", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of the API; port 0 takes a free one.
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// File of the embedded database.
    #[arg(long, global = true, value_name = "FILE")]
    database: Option<PathBuf>,
    /// PostgreSQL instead of a file, `postgres://user@host/name`. Other users of this machine can read a password given
    /// here; use PGPASSWORD, ~/.pgpass, or the URL in ISLAND_COORDINATOR_DATABASE__URL.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "database")]
    database_url: Option<String>,
    /// Address of the NATS server.
    #[arg(long, global = true, value_name = "URL")]
    nats_url: Option<String>,
    /// Folder of the keys that `init` writes.
    #[arg(long, global = true, value_name = "DIR")]
    fabric_dir: Option<PathBuf>,
    /// Folder of the catalogue.
    #[arg(long, global = true, value_name = "DIR")]
    catalogue: Option<PathBuf>,
    /// Serve the catalogue's fixtures as well.
    #[arg(long, global = true)]
    fixtures: bool,
}

/// The given flags in the form of the settings.
fn overlay(settings: &Settings) -> impl Serialize + use<> {
    let mut layer = serde_json::Map::new();
    let mut set = |section: &str, key: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            let section = layer.entry(section).or_insert_with(|| serde_json::json!({}));
            section[key] = value;
        }
    };
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| serde_json::json!(path));
    set("http", "listen", settings.listen.map(|address| serde_json::json!(address)));
    set("database", "path", path(&settings.database));
    set("database", "url", settings.database_url.as_ref().map(|url| serde_json::json!(url)));
    set("fabric", "url", settings.nats_url.as_ref().map(|url| serde_json::json!(url)));
    set("fabric", "dir", path(&settings.fabric_dir));
    set("catalogue", "dir", path(&settings.catalogue));
    set("catalogue", "fixtures", settings.fixtures.then_some(serde_json::Value::Bool(true)));
    layer
}

/// Merges file, environment and flags, and checks the result.
pub fn load(settings: &Settings) -> Result<Config, config::ConfigError> {
    let config: Config = config::load(settings.config.as_deref(), ENV_PREFIX, &overlay(settings))?;
    config.validate()?;
    Ok(config)
}

/// Runs the command.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(Command::Init(options)) = &cli.command {
        telemetry::init(telemetry::LogFormat::Text, "info");
        return init::run(&cli.settings, options);
    }
    let config = match load(&cli.settings) {
        Ok(config) => config,
        Err(error) => {
            telemetry::init(telemetry::LogFormat::Text, "info");
            return Err(error.into());
        }
    };
    telemetry::init(config.log.format, "info,sqlx=warn,async_nats=warn");
    match cli.command.unwrap_or(Command::Serve) {
        Command::Serve => serve::serve(&config).await,
        Command::Config(ConfigCommand::Show) => {
            print(&config::show(&config));
            Ok(ExitCode::SUCCESS)
        }
        Command::Config(ConfigCommand::Check) => check(&config),
        Command::Init(options) => init::run(&cli.settings, &options),
        Command::Catalogue(command) => catalogue::run(&config, command).await,
        Command::Admin(command) => admin::run(&config, &command).await,
        Command::Migrate => migrate::run(&config).await,
        Command::Backup { file } => backup::back_up(&config, &file).await,
        Command::Restore { file } => backup::restore(&config, &file).await,
    }
}

fn check(config: &Config) -> anyhow::Result<ExitCode> {
    let settings = &config.catalogue;
    let catalogue = island_coordinator_domain::catalogue::Catalogue::pinned(settings)?;
    print(&format!("the configuration is valid; the catalogue has {} Cargos\n", catalogue.iter().count()));
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output and ignores errors, as its reader may have gone.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_read_beside_the_global_settings() {
        for arguments in [
            &["init", "--public-url", "https://island.example.org", "--nats-node", "n1=nats-1:6222"][..],
            &["--listen", "127.0.0.1:1", "init", "--nats-listen", "[::]:4222", "--replicas", "3"],
            &["init", "--metrics", "127.0.0.1:9465"],
            &["migrate"],
            &["backup", "backup.db"],
            &["restore", "backup.db"],
            &["admin", "audit"],
            &["config", "show"],
        ] {
            let all = std::iter::once("island-coordinator").chain(arguments.iter().copied());
            let read = Cli::try_parse_from(all);
            assert!(read.is_ok(), "{arguments:?}: {read:?}");
        }
    }
}
