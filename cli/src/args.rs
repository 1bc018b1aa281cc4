//! Flags and subcommands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run AI models and tools on an Island network.
#[derive(Debug, Parser)]
#[command(name = "island", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Address of the coordinator [env: SERVICE_API_URL] [default: http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// API key; before SERVICE_API_KEY and ~/.island/config.toml
    #[arg(long, global = true, value_name = "KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Address of the message fabric; replaces the one the coordinator tells [env: SERVICE_NATS_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nats_url: Option<String>,
    /// How to print
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a whole network on this machine: NATS, a coordinator and an Island
    Dev(Dev),
    /// Save, show or remove your API key
    #[command(subcommand)]
    Auth(Auth),
    /// Show your account
    Account,
    /// Ask a language model and stream its reply
    Chat(Chat),
    /// Submit, list, read, follow and cancel jobs
    #[command(subcommand)]
    Jobs(Jobs),
    /// List and read Cargos, the named units of work
    #[command(subcommand)]
    Workloads(Workloads),
    /// List and read Islands, the machines that run jobs
    #[command(subcommand)]
    Hosts(Hosts),
    /// Read the message fabric
    #[command(subcommand)]
    Sail(Sail),
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Port of the HTTP API [default: a free one]
    #[arg(long)]
    pub(crate) api_port: Option<u16>,
    /// Port of NATS [default: a free one]
    #[arg(long)]
    pub(crate) nats_port: Option<u16>,
    /// Folder for everything it keeps [default: ~/.island/dev]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// How many Islands to start
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "no_island")]
    pub(crate) islands: u32,
    /// Start no Island
    #[arg(long)]
    pub(crate) no_island: bool,
    /// Load the fixture Cargos too: small models for tests, and the scripted engine
    #[arg(long)]
    pub(crate) fixtures: bool,
    /// Catalogue folder [default: the one beside this program or in the source tree]
    #[arg(long, value_name = "DIR")]
    pub(crate) cargos: Option<PathBuf>,
    /// nats-server program [default: ISLAND_NATS_SERVER, .tools/bin, then PATH]
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_server: Option<PathBuf>,
    /// Raise the limits per account (requests, jobs and streams at once), for tests and load
    #[arg(long)]
    pub(crate) no_limits: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Auth {
    /// Check a key and save it; asks for it if not given
    Login {
        /// The key
        #[arg(long)]
        key: Option<String>,
    },
    /// Show whose key is in use
    Status,
    /// Remove the saved key
    Logout,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What to say
    pub(crate) prompt: String,
    /// Instructions for the model
    #[arg(long, short)]
    pub(crate) system: Option<String>,
    /// Most tokens to write
    #[arg(long, short, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: u64,
    /// Randomness, 0.0 to 2.0
    #[arg(long, short, value_parser = temperature)]
    pub(crate) temperature: Option<f64>,
    /// Cargo to ask
    #[arg(long, short, default_value = "llm-chat", value_name = "SLUG")]
    pub(crate) workload: String,
    /// Print the reply at the end, whole
    #[arg(long)]
    pub(crate) no_stream: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// Submit a job and print its id
    Submit {
        /// Cargo to run
        #[arg(long, value_name = "SLUG")]
        workload: String,
        /// Its input: JSON, or @FILE with JSON
        #[arg(long, value_name = "JSON")]
        input: String,
        /// 0 to 100; higher is placed first
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
        priority: u8,
        /// Follow its output to the end
        #[arg(long)]
        stream: bool,
    },
    /// List your jobs, newest first
    List {
        /// How many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
        limit: u64,
        /// How many to skip
        #[arg(long, default_value_t = 0)]
        offset: u64,
    },
    /// Read one job
    Get {
        /// Its id
        id: String,
    },
    /// Follow the output of a job, from its beginning
    Stream {
        /// Its id
        id: String,
        /// Start after this event
        #[arg(long, value_name = "N")]
        after: Option<u64>,
    },
    /// Cancel a job
    Cancel {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Workloads {
    /// List Cargos
    List,
    /// Read one Cargo
    Get {
        /// Its slug
        slug: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// List Islands
    List,
    /// Read one Island
    Get {
        /// Its id
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sail {
    /// Print messages as JSON, one a line
    Subscribe {
        /// Such as 'host.*.heartbeat'
        subject: String,
        /// Stop after this many
        #[arg(long, value_name = "N")]
        max: Option<u64>,
    },
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(value),
        _ => Err("must be a number from 0.0 to 2.0".into()),
    }
}
