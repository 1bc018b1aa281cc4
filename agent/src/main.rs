//! `island-agent`: makes this machine an Island.

use std::{
    env,
    error::Error,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use island_agent::{
    agent::Agent,
    clock,
    config::{self, Config, ENV_PREFIX, SERVICE_FILE},
    control::{
        client::{Control, ControlError},
        screen,
        status::InForce,
    },
    disk::job_logs,
    doctor, enrollment,
    inventory::gpu::nvml_process,
    owner::policy::OwnerOrder,
};
use island_daemon::{chain::Chain, config as settings, telemetry};
use serde::Serialize;

/// Exit code of a command that cannot run as it was given (`EX_USAGE` of the shell and of clap).
const EXIT_USAGE: u8 = 2;
/// The longest pause with an end.
const MAX_PAUSE: Duration = Duration::from_hours(365 * 24);

/// Makes this machine an Island: runs jobs of an Island network in sandboxed workers.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Settings file (TOML) [default: /etc/island/agent.toml of the package, unless a state folder is given]
    /// Variables such as `ISLAND_AGENT_STATE_DIR` override the file, options override both.
    #[arg(long, short, global = true, value_name = "FILE", help_heading = SETTINGS)]
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
    /// Check what works on this machine, and report why the rest does not.
    Doctor,
    /// Show what the running agent does and why.
    Status {
        /// Redraw every second, with plots. Needs a terminal.
        #[arg(long)]
        watch: bool,
        /// Print JSON.
        #[arg(long, conflicts_with = "watch")]
        json: bool,
    },
    /// Accept no jobs and free the machine at once: running jobs continue on other Islands.
    Pause {
        /// Duration such as 2h or 30m, at most 365 days; without it the pause lasts until `resume`.
        #[arg(value_name = "DURATION", value_parser = pause_duration)]
        duration: Option<Duration>,
    },
    /// End a pause or drain: the rules in `[policy]` decide again.
    Resume,
    /// Accept no new jobs; running jobs may finish.
    Drain,
    /// Accept no new jobs for this time, for an update; 0 ends that. The owner's order stays as it is.
    #[command(hide = true)]
    Hold { seconds: u64 },
    /// Read NVIDIA's driver for the agent that starts this, which it may not crash.
    #[command(hide = true)]
    GpuDriver,
    /// List the debug logs of jobs, or print those of one job.
    Logs {
        /// Id of a job, or its first characters.
        job: Option<String>,
    },
    /// Check or show the settings.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ConfigCommand {
    /// List every problem of the settings; exit with 0 without problems, with 64 otherwise.
    Check,
    /// Print the settings in force, with their defaults, as TOML.
    Show,
}

/// Heading of the options that every command accepts.
const SETTINGS: &str = "Settings";

/// Settings that override the environment and the file.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = SETTINGS)]
struct Flags {
    /// Folder of identity, spools and workers [default: /var/lib/island-agent, which belongs to the service]
    #[arg(long, global = true, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
    /// Address of the coordinator [default: the one it enrolled with, otherwise http://127.0.0.1:8080]
    #[arg(long = "coordinator", global = true, alias = "api-url", value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    api_url: Option<String>,
    /// File with the owner's API key, for enrolling without a code [default: none]
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_file: Option<PathBuf>,
    /// Name that others see [default: island]
    #[arg(long, global = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Address of the fabric [default: the one that the coordinator sends]
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    nats_url: Option<String>,
    /// Run jobs of other accounts even if this kernel cannot sandbox workers completely [default: false]
    #[arg(long, global = true, value_name = "BOOL", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_weak_sandbox: Option<bool>,
    /// Offer the scripted engine, for tests and demonstrations.
    #[arg(long, global = true, value_name = "BOOL", hide = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<bool>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Before the settings, which it does not have.
    if let Some(Command::GpuDriver) = cli.command {
        return nvml_process::serve();
    }
    let names_state_dir =
        cli.flags.state_dir.is_some() || env::var_os(format!("{ENV_PREFIX}STATE_DIR")).is_some();
    let file = config::file_for(cli.config.as_deref(), names_state_dir, SERVICE_FILE.as_ref());
    let is_named = cli.config.is_some();
    let (read, flags) = (file.clone(), cli.flags);
    let load = move || settings::load::<Config>(read.as_deref(), ENV_PREFIX, &flags);
    let config = match load() {
        Ok(config) => config,
        Err(error) => return complain(&error, ExitCode::from(settings::EXIT_BAD_CONFIG)),
    };
    let command = cli.command.unwrap_or_default();
    if let Command::Config(ConfigCommand::Check) = command {
        return check(&config, file.as_deref());
    }
    if let Err(error) = config.validate() {
        return complain(&error, ExitCode::from(settings::EXIT_BAD_CONFIG));
    }
    match command {
        Command::Run => run(InForce::new(config, load)),
        Command::GpuDriver => nvml_process::serve(),
        Command::Enroll => enroll(config, false),
        Command::Leave => enroll(config, true),
        Command::Doctor => examine(&config, is_named),
        Command::Status { watch: true, .. } if !(io::stdin().is_terminal() && io::stdout().is_terminal()) => {
            complain(
                &"status --watch needs a terminal; without one, use island-agent status",
                ExitCode::from(EXIT_USAGE),
            )
        }
        Command::Status { watch, json } => control(&config, async |agent| show(agent, watch, json).await),
        Command::Pause { duration } => {
            let until = duration
                .map(|span| clock::now().plus_ms(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)));
            order(&config, OwnerOrder::Pause { until })
        }
        Command::Resume => order(&config, OwnerOrder::None),
        Command::Drain => order(&config, OwnerOrder::Drain),
        Command::Hold { seconds } => control(&config, async |agent| {
            agent.hold(seconds).await.map(|verdict| print(&format!("{verdict}\n")))
        }),
        Command::Logs { job } => logs(&config, job.as_deref()),
        Command::Config(_) => {
            let used = if is_named { None } else { runtime().block_on(doctor::in_force(&config)) };
            print(&settings::show(&used.unwrap_or(config).without_secrets()))
        }
    }
}

fn pause_duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration > MAX_PAUSE {
        return Err("a pause lasts at most 365 days; without a duration it lasts until `resume`".to_owned());
    }
    Ok(duration)
}

fn run(settings: InForce) -> ExitCode {
    let config = &settings.config;
    telemetry::init(config.log, "info");
    let _failpoints = island_daemon::failpoint::from_environment();
    let state = config.state_dir.clone();
    let cannot = |error: &(dyn Error + 'static)| {
        let hint = config::permission_hint(error, &state);
        tracing::error!(error = %Chain(error), hint, "the agent cannot start");
        ExitCode::FAILURE
    };
    runtime().block_on(async {
        loop {
            match enrollment::wait_enrolled(config).await {
                Ok(true) => {}
                Ok(false) => return ExitCode::SUCCESS,
                Err(error) => return cannot(&error),
            }
            let done = async { Agent::build(settings.clone()).await?.run().await };
            match done.await {
                Ok(Some(code)) => return code,
                Ok(None) => {}
                Err(error) => return cannot(&error),
            }
        }
    })
}

fn enroll(mut config: Config, leave: bool) -> ExitCode {
    if let Err(error) = enrollment::become_owner(&mut config) {
        return fail(&error, &config);
    }
    let config = &config;
    let done = runtime().block_on(async {
        if leave {
            enrollment::leave(config).await
        } else {
            enrollment::enroll(config, |line| {
                print(line);
            })
            .await
        }
    });
    done.map_or_else(|error| fail(&error, config), |line| print(&line))
}

fn order(config: &Config, order: OwnerOrder) -> ExitCode {
    control(config, async |agent| agent.set_order(order).await.map(|verdict| print(&format!("{verdict}\n"))))
}

async fn show(agent: &Control, watch: bool, json: bool) -> Result<ExitCode, ControlError> {
    if watch {
        return Ok(match screen::watch(agent).await? {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&format!("draw on this terminal: {error}"), ExitCode::from(EXIT_USAGE)),
        });
    }
    let status = agent.status().await?;
    let shown = if json {
        let text = serde_json::to_string_pretty(&status).expect("a status is valid JSON");
        format!("{text}\n")
    } else {
        screen::text(&status, io::stdout().is_terminal().then(screen::width))
    };
    Ok(print(&shown))
}

/// Runs `command` with the running agent.
fn control(
    config: &Config,
    command: impl AsyncFnOnce(&Control) -> Result<ExitCode, ControlError>,
) -> ExitCode {
    let ran = runtime().block_on(async { command(&Control::new(&config.state_dir)?).await });
    ran.unwrap_or_else(|error| match error {
        // An agent that waits for its enrollment does not listen.
        ControlError::Away(..) if enrollment::is_not_enrolled(config) => {
            complain(&enrollment::NOT_ENROLLED, ExitCode::FAILURE)
        }
        error => fail(&error, config),
    })
}

fn examine(config: &Config, is_named: bool) -> ExitCode {
    let findings = runtime().block_on(doctor::examine(config, is_named));
    // Programs that read the output find one line per finding.
    let width = io::stdout().is_terminal().then(screen::width);
    let printed = print(&doctor::text(&findings, width));
    let all_good = findings.iter().all(|finding| finding.good != Some(false));
    if all_good { printed } else { ExitCode::FAILURE }
}

/// Lists every problem of the settings.
fn check(config: &Config, file: Option<&std::path::Path>) -> ExitCode {
    let found = runtime().block_on(doctor::settings::check(config));
    for note in &found.notes {
        let _ = writeln!(io::stderr(), "island-agent: not checked: {note}");
    }
    if found.problems.is_empty() {
        return print(&match file {
            Some(file) => format!("{}: the settings are valid\n", file.display()),
            None => "the settings are valid; no file was read\n".to_owned(),
        });
    }
    for problem in &found.problems {
        complain(problem, ExitCode::FAILURE);
    }
    ExitCode::from(settings::EXIT_BAD_CONFIG)
}

/// Prints the names of all logs, or the logs whose job id starts with `job`, newest first.
fn logs(config: &Config, job: Option<&str>) -> ExitCode {
    let dir = config.state_dir.join("job-logs");
    let found = match job_logs::list(&dir) {
        Ok(found) => found,
        Err(source) => return fail(&job_logs::ListError { dir, source }, config),
    };
    let Some(job) = job else {
        if found.is_empty() {
            return print(&format!(
                "no debug logs in {}: no job's program wrote to standard error\n",
                dir.display()
            ));
        }
        let names: Vec<&str> = found.iter().flat_map(|(name, ..)| [name.as_str(), "\n"]).collect();
        return print(&names.concat());
    };
    let matching: Vec<_> = found.iter().filter(|(name, ..)| name.starts_with(job)).collect();
    if matching.is_empty() {
        return complain(&format!("no debug log of a job {job} in {}", dir.display()), ExitCode::FAILURE);
    }
    let text = |(name, _, path): &&(String, _, PathBuf)| {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| format!("read {name}: {error}\n"));
        format!("== {name}\n{text}\n")
    };
    print(&matching.iter().map(text).collect::<String>())
}

/// Removes control characters: texts of jobs, and of a coordinator that the owner does not know yet, must not control the
/// owner's terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}

/// Two threads suffice: jobs run in the workers.
fn runtime() -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.expect("a runtime needs only threads and an epoll handle")
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(printable(text).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reports an error with its causes, and what helps against missing permissions.
fn fail(error: &(dyn Error + 'static), config: &Config) -> ExitCode {
    complain(&Chain(error), ExitCode::FAILURE);
    if let Some(hint) = config::permission_hint(error, &config.state_dir) {
        let _ = writeln!(io::stderr(), "  try: {hint}");
    }
    ExitCode::FAILURE
}

fn complain(error: &dyn std::fmt::Display, code: ExitCode) -> ExitCode {
    let _ = writeln!(io::stderr(), "island-agent: {}", printable(&error.to_string()));
    code
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Long help of a subcommand, on one line.
    fn help(command: &str) -> String {
        let mut cli = Cli::command();
        cli.build();
        let help = cli.find_subcommand_mut(command).expect("a command").render_long_help().to_string();
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn help_shows_the_documented_options_and_their_defaults() {
        let defaults = Config::default();
        for command in ["run", "enroll", "status"] {
            let help = help(command);
            for default in [
                format!(
                    "--coordinator <URL> Address of the coordinator [default: the one it enrolled with, otherwise {}]",
                    defaults.api_url
                ),
                format!("[default: {}, which belongs to the service]", defaults.state_dir.display()),
                format!("[default: {}]", defaults.name),
                format!("{ENV_PREFIX}STATE_DIR"),
            ] {
                assert!(help.contains(&default), "{command}: {default} in {help}");
            }
            assert!(!help.contains("--simulated"), "for tests only: {help}");
        }
        assert!(!Cli::command().render_help().to_string().contains("--allow-weak-sandbox"));
    }

    #[test]
    fn pauses_are_limited() {
        assert_eq!(pause_duration("2h"), Ok(Duration::from_hours(2)));
        assert!(pause_duration("100000d").expect_err("too long").contains("at most 365 days"));
        assert!(pause_duration("soon").is_err());
    }
}
