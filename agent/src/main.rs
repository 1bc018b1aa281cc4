//! `island-agent`: makes this machine an Island.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use island_agent::{
    agent::Agent,
    clock,
    config::{Config, ENV_PREFIX},
    control::{
        client::{Control, ControlError},
        screen,
    },
    doctor, enrollment, job_logs,
    policy::OwnerOrder,
};
use island_daemon::{chain::Chain, config as settings, telemetry};
use serde::Serialize;

/// Makes this machine an Island: runs jobs of an Island network in walled-in workers.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Settings file (TOML).
    #[arg(long, short, global = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Default, Subcommand)]
enum Command {
    /// Run the agent (the default).
    #[default]
    Run,
    /// Enroll this Island to an account: shows a code for `island hosts pair`, or uses the API key if one is set.
    #[command(alias = "enrol")]
    Enroll,
    /// Take this Island out of the network.
    Leave,
    /// Say what works here, and why the rest does not.
    Doctor,
    /// Show what the running agent does and why.
    Status {
        /// Draw it anew every second, with plots.
        #[arg(long)]
        watch: bool,
        /// As JSON.
        #[arg(long, conflicts_with = "watch")]
        json: bool,
    },
    /// Take no work, and give the machine back at once: running jobs go on elsewhere.
    Pause {
        /// For how long, such as 2h or 30m; without it until `resume`.
        #[arg(value_parser = humantime::parse_duration)]
        how_long: Option<Duration>,
    },
    /// Work again as the rules of `[policy]` say.
    Resume,
    /// Take no new work; what runs may finish.
    Drain,
    /// List the debug logs of jobs, or print those of one.
    Logs {
        /// Id of a job, or the beginning of one.
        job: Option<String>,
    },
    /// Check or show the settings.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ConfigCommand {
    /// Exit 0 if the settings can be used, 64 if not.
    Check,
    /// Print the settings in force, as TOML.
    Show,
}

/// Settings that win over the environment and the file.
#[derive(Debug, Args, Serialize)]
struct Flags {
    /// Folder of identity, spools and workers.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
    /// Address of the coordinator.
    #[arg(long = "coordinator", global = true, alias = "api-url", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    api_url: Option<String>,
    /// File with the owner's API key, needed once.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_file: Option<PathBuf>,
    /// Address of the fabric, instead of the one the coordinator tells.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    nats_url: Option<String>,
    /// Name that others see.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Run strangers' jobs even where walls are missing.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_weak_sandbox: Option<bool>,
    /// Offer the scripted stand-in engine.
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<bool>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let loaded = settings::load::<Config>(cli.config.as_deref(), ENV_PREFIX, &cli.flags);
    let config = match loaded.and_then(|config| config.validate().map(|()| config)) {
        Ok(config) => config,
        Err(error) => return complain(&error, ExitCode::from(settings::EXIT_BAD_CONFIG)),
    };
    match cli.command.unwrap_or_default() {
        Command::Run => run(config),
        Command::Enroll => enroll(&config, false),
        Command::Leave => enroll(&config, true),
        Command::Doctor => examine(&config),
        Command::Status { watch, json } => control(&config, async |agent| show(agent, watch, json).await),
        Command::Pause { how_long } => {
            let until = how_long
                .map(|span| clock::now().plus_ms(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)));
            order(&config, OwnerOrder::Pause { until })
        }
        Command::Resume => order(&config, OwnerOrder::None),
        Command::Drain => order(&config, OwnerOrder::Drain),
        Command::Logs { job } => logs(&config, job.as_deref()),
        Command::Config(ConfigCommand::Check) => ExitCode::SUCCESS,
        Command::Config(ConfigCommand::Show) => say(&settings::show(&config.without_secrets())),
    }
}

fn run(config: Config) -> ExitCode {
    telemetry::init(config.log, "info");
    let cannot = |error: &(dyn std::error::Error + 'static)| {
        tracing::error!(error = %Chain(error), "the agent cannot start");
        ExitCode::FAILURE
    };
    runtime().block_on(async {
        match enrollment::awaited(&config).await {
            Ok(true) => {}
            Ok(false) => return ExitCode::SUCCESS,
            Err(error) => return cannot(&error),
        }
        let done = async { Agent::build(config).await?.run().await };
        done.await.unwrap_or_else(|error| cannot(&error))
    })
}

fn enroll(config: &Config, leave: bool) -> ExitCode {
    let done = runtime().block_on(async {
        if leave {
            enrollment::leave(config).await
        } else {
            enrollment::enroll(config, |line| {
                say(line);
            })
            .await
        }
    });
    done.map_or_else(|error| complain(&Chain(&error), ExitCode::FAILURE), |line| say(&line))
}

fn order(config: &Config, order: OwnerOrder) -> ExitCode {
    control(config, async |agent| agent.set_order(order).await.map(|verdict| say(&format!("{verdict}\n"))))
}

async fn show(agent: &Control, watch: bool, json: bool) -> Result<ExitCode, ControlError> {
    if watch {
        return screen::watch(agent).await.map(|()| ExitCode::SUCCESS);
    }
    let status = agent.status().await?;
    let shown = if json {
        let text = serde_json::to_string_pretty(&status).expect("a status serialises");
        format!("{text}\n")
    } else {
        screen::text(&status)
    };
    Ok(say(&shown))
}

/// Speaks with the running agent.
fn control(config: &Config, speak: impl AsyncFnOnce(&Control) -> Result<ExitCode, ControlError>) -> ExitCode {
    let spoken = runtime().block_on(async { speak(&Control::new(&config.state_dir)?).await });
    spoken.unwrap_or_else(|error| match error {
        // Such an agent has nothing to tell, and does not listen.
        ControlError::Away(..) if enrollment::is_not_enrolled(config) => {
            complain(&enrollment::NOT_ENROLLED, ExitCode::FAILURE)
        }
        error => complain(&Chain(&error), ExitCode::FAILURE),
    })
}

fn examine(config: &Config) -> ExitCode {
    let findings = runtime().block_on(doctor::examine(config));
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let printed = say(&format!("{}\n", lines.join("\n")));
    let all_good = findings.iter().all(|finding| finding.good != Some(false));
    if all_good { printed } else { ExitCode::FAILURE }
}

/// Names of all logs, or the text of those whose job's id begins with `job`, newest first.
fn logs(config: &Config, job: Option<&str>) -> ExitCode {
    let dir = config.state_dir.join("job-logs");
    let found = match job_logs::list(&dir) {
        Ok(found) => found,
        Err(error) => return complain(&format!("list {}: {error}", dir.display()), ExitCode::FAILURE),
    };
    let Some(job) = job else {
        let names: Vec<&str> = found.iter().flat_map(|(name, ..)| [name.as_str(), "\n"]).collect();
        return say(&names.concat());
    };
    let matching: Vec<_> = found.iter().filter(|(name, ..)| name.starts_with(job)).collect();
    if matching.is_empty() {
        return complain(&format!("no job {job} left a debug log here"), ExitCode::FAILURE);
    }
    let text = |(name, _, path): &&(String, _, PathBuf)| {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| format!("read {name}: {error}\n"));
        format!("== {name}\n{}\n", printable(&text))
    };
    say(&matching.iter().map(text).collect::<String>())
}

/// A stranger's text must not drive the owner's terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// Two threads are plenty: the work is done in the workers.
fn runtime() -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.expect("a runtime needs only threads and an epoll handle")
}

fn say(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(error: &dyn std::fmt::Display, code: ExitCode) -> ExitCode {
    let _ = writeln!(io::stderr(), "island-agent: {error}");
    code
}
