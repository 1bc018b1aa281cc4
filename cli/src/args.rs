//! Flags and subcommands.

mod admin;
mod batches;
mod catalogue;
mod dev;
mod jobs;
mod keys;
mod publications;
mod quotas;
mod values;

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ErrorKind},
};
use island_protocol::{ids::Slug, time::Timestamp};

pub(crate) use self::{
    admin::{
        AccountKeys, AccountQuotas, Accounts, Admin, AnnotateIsland, AuditLog, Cargos, ChangeCredits,
        CreateAccount, CreateInvitation, CreatePayout, GrantCredits, Invitations, Islands, ListIslands,
        Maintenance, Notices, OnAccount, OnCargo, OnIsland, OnJob, OnPayout, Payouts, QueueOptions, Review,
        Why,
    },
    batches::{Batches, RunBatch},
    catalogue::{CargoFilter, Hosts, Workloads},
    dev::Dev,
    jobs::{Jobs, ListJobs, Submit},
    keys::{ApiKeys, CreateKey},
    publications::{OnPublication, Publications},
    quotas::{ChangeQuotas, quotas},
    values::FileField,
};

/// What scripts may rely on.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the job failed, timed out or was cancelled; or something on this machine went wrong
  2    usage: a flag, an argument or an input makes no sense
  3    authentication: no key, or one that is not accepted
  4    not found
  5    refused: input that does not fit, credits, limits, a job that has ended
  6    the coordinator or the fabric cannot be reached, or fails
  130  interrupted; 143 and 129: ended by SIGTERM or SIGHUP

Where settings come from, the first wins:
  --api-key  SERVICE_API_KEY   api_key in ~/.island/config.toml
  --api-url  SERVICE_API_URL   api_url in ~/.island/config.toml   http://127.0.0.1:8080
  --nats-url SERVICE_NATS_URL  nats_url in ~/.island/config.toml  what the coordinator states
  --allow-plaintext  SERVICE_ALLOW_PLAINTEXT  allow_plaintext in ~/.island/config.toml  false

Results go to standard output, everything else to standard error. NO_COLOR turns colours off.";

/// Heading of the options that every command has.
const GENERAL: &str = "General options";
/// Their place in the synopsis of a manual page, which has no headings.
const LAST: usize = 900;

/// Run AI models and tools on an Island network.
#[derive(Debug, Parser)]
#[command(name = "island", version, max_term_width = 100, after_long_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A misspelt flag is hardly ever a value: without the tip to write it as one.
pub(crate) fn without_misleading_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::SuggestedArg).is_none() {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Address of the coordinator
    // The alias is the flag of `island-agent`.
    #[arg(long, alias = "coordinator", global = true, value_name = "URL", help_heading = GENERAL, display_order = LAST)]
    pub(crate) api_url: Option<String>,
    /// API key
    #[arg(long, global = true, value_name = "KEY", help_heading = GENERAL, display_order = LAST + 1)]
    pub(crate) api_key: Option<String>,
    /// Address of the message fabric; overrides the one from the coordinator
    #[arg(long, global = true, value_name = "URL", help_heading = GENERAL, display_order = LAST + 2)]
    pub(crate) nats_url: Option<String>,
    /// Send keys without encryption to other machines as well
    #[arg(long, global = true, help_heading = GENERAL, display_order = LAST + 3)]
    pub(crate) allow_plaintext: bool,
    /// For people (text), or what the API answered (json)
    #[arg(
        long,
        global = true,
        help_heading = GENERAL,
        display_order = LAST + 4,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json"
    )]
    pub(crate) format: Format,
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
    /// Create an account with the code of an invitation, and save its key
    #[command(after_help = "island signup --coordinator https://islands.example.org you@example.org CODE")]
    Signup(SignUp),
    /// Show your account, what it spent and earned, or its quotas
    #[command(args_conflicts_with_subcommands = true)]
    Account {
        #[command(subcommand)]
        command: Option<Account>,
    },
    /// Print a link that opens the web console, signed in, once
    Console,
    /// Ask a language model and stream its reply
    Chat(Chat),
    /// Submit, list, read, follow and cancel jobs
    #[command(subcommand)]
    Jobs(Jobs),
    /// Run many requests from a file, within hours instead of at once
    #[command(subcommand)]
    Batches(Batches),
    /// List and read Cargos, the named units of work
    #[command(subcommand)]
    Workloads(Workloads),
    /// Publish Cargos of your own
    #[command(subcommand)]
    Cargos(Publications),
    /// List and read Islands, the machines that run jobs
    #[command(subcommand)]
    Hosts(Hosts),
    /// List, create and delete API keys
    #[command(subcommand)]
    ApiKeys(ApiKeys),
    /// Show the size of the network, or what its operators announce
    #[command(subcommand)]
    Network(Network),
    /// Show what Cargos cost
    #[command(subcommand)]
    Market(Market),
    /// Read the message fabric
    #[command(subcommand)]
    Sail(Sail),
    /// Manage the whole network with an operator's key: accounts, credits, Islands, Cargos
    #[command(subcommand)]
    Admin(Admin),
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = "bash: source <(island completion bash)\n\
        zsh:  island completion zsh > \"${fpath[1]}/_island\"\n\
        fish: island completion fish > ~/.config/fish/completions/island.fish")]
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Folder to write one page per command to
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Auth {
    /// Check a key and save it; prompts for it if not given
    Login {
        /// The key; if absent, it is read from a prompt, or from standard input without a terminal
        #[arg(long)]
        key: Option<String>,
        /// Sign in at the network's provider in a browser of this machine, and save the key that this gives
        #[arg(long, conflicts_with = "key")]
        browser: bool,
    },
    /// Show the account of the key in use, and the source of the key
    Status,
    /// Remove the saved key
    Logout,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Account {
    /// What changed your balance, newest first
    Ledger(Ledger),
    /// What you spent and earned in a month
    Statement(StatementOptions),
    /// Ended jobs, tokens and credits by day, Cargo and key
    Usage(UsageOptions),
    /// Quotas of your account and of the key in use, and how much of them is used
    Quotas,
}

#[derive(Debug, Args)]
pub(crate) struct StatementOptions {
    /// The calendar month, UTC, such as 2026-11 [default: this month]
    #[arg(long, value_parser = values::month)]
    pub(crate) month: Option<Timestamp>,
    /// Print every entry as CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UsageOptions {
    /// The calendar month, UTC, such as 2026-11 [default: the last two weeks]
    #[arg(long, value_parser = values::month)]
    pub(crate) month: Option<Timestamp>,
    /// Print the rows as CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SignUp {
    /// E-mail address that no other account has
    pub(crate) email: String,
    /// Code of an invitation
    pub(crate) code: String,
}

#[derive(Debug, Args)]
pub(crate) struct Ledger {
    /// Every movement, those of the credits that are set aside for running jobs too
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) page: Paging,
}

/// Which page of a list.
#[derive(Debug, Args)]
pub(crate) struct Paging {
    /// How many
    #[arg(
        long,
        default_value_t = 20,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(1..=100),
    )]
    pub(crate) limit: u64,
    /// How many to skip
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    pub(crate) offset: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The message; - reads it from standard input
    pub(crate) prompt: String,
    /// Instructions for the model
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Most tokens to write
    #[arg(
        long,
        short,
        default_value_t = 512,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    pub(crate) max_tokens: u64,
    /// Randomness, 0.0 to 2.0
    #[arg(long, short, allow_negative_numbers = true, value_parser = values::temperature)]
    pub(crate) temperature: Option<f64>,
    /// Cargo to ask
    #[arg(long, short, default_value = "llm-chat", value_name = "SLUG")]
    pub(crate) workload: Slug,
    /// Print the reply at the end, whole
    #[arg(long)]
    pub(crate) no_stream: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    /// How many Islands are online, in how many regions, and how many jobs were completed
    Stats,
    /// Whether new jobs are accepted, and what the operators announce
    Notices,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Market {
    /// Prices over the last day: average, minimum, maximum, and how many Islands can serve
    Rates {
        /// Only this Cargo
        slug: Option<Slug>,
    },
    /// Prices of one Cargo, hour by hour
    History {
        /// The Cargo
        slug: Slug,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sail {
    /// Print messages as JSON, one a line
    Subscribe {
        /// Such as 'host.*.heartbeat'
        #[arg(value_parser = values::subject)]
        subject: String,
        /// Stop after this many
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        max: Option<u64>,
    },
}

/// Shells we can complete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
