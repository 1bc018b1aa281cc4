//! The worker's side: a binary calls [`main`] with its engine.
//!
//! [`main`] reads `launch.json`, locks the model's files against eviction, lets the engine open what it needs, waits for the agent's
//! connection, and applies the sandbox while the process has one thread. Only then it starts the async runtime, loads the model and serves
//! the socket. To derive a file, it applies the same sandbox, writes the file and ends.

mod attempt;
mod check;
mod connection;
mod derive;
mod engine;
mod log;
mod outbox;
mod pins;
mod reap;
mod run;
mod server;
mod state;

use std::{
    fs, io,
    os::{fd::AsFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use island_protocol::{
    host::{SandboxLevel, SandboxReport},
    ids::InstanceId,
    job::{Failure, FailureCode},
};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    time::Timespec,
};

pub use engine::{EngineLoader, LoadProgress, Loaded};

use crate::{
    host::Orphans,
    launch::{EXIT_REFUSED, LAUNCH_FILE, Launch, ProbeReport, SCRATCH_DIR},
    lockdown::{self, Memory},
};

/// Arguments of every worker binary.
#[derive(Debug, Parser)]
#[command(version, about = "Runs one model for an Island's agent; not meant to be started by hand.")]
struct Arguments {
    /// The worker's directory, with launch.json; the listening socket is standard input.
    #[arg(long, required_unless_present_any = ["probe", "reap", "check"])]
    dir: Option<PathBuf>,
    /// Print as JSON what this engine and this kernel support, and exit.
    #[arg(long)]
    probe: bool,
    /// Remove what workers in this folder left behind outside their processes, and exit.
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    reap: Option<PathBuf>,
    /// Only what these workers left; otherwise that of all workers.
    #[arg(long, requires = "reap", value_name = "WORKER")]
    of: Vec<InstanceId>,
    /// Not what these workers use.
    #[arg(long, requires = "reap", value_name = "WORKER", conflicts_with = "of")]
    except: Vec<InstanceId>,
    /// Wait until standard input is closed, and then remove it as often as it takes: the worker holds the other end.
    #[arg(long, requires = "of")]
    when_closed: bool,
    /// Derive the file that jobs read from the Cargo's file, and exit.
    #[arg(long, requires = "dir")]
    derive: bool,
    /// Load the model in this folder, or the model file, print whether it loads, and exit with 0 if it does. `-` reads the Cargo and the
    /// paths of its files from standard input, as `cargo` and `artifacts` of launch.json.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["dir", "reap", "probe", "derive"])]
    check: Option<PathBuf>,
    /// The task of the model in the folder.
    #[arg(long, requires = "check", value_name = "TASK")]
    task: Option<String>,
}

/// An agent that lives connects within milliseconds, and in seconds on a machine without a free processor.
const AGENT_CONNECTS_WITHIN: Duration = Duration::from_secs(20);

/// Why a worker could not serve its socket.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("read {}", .0.display())]
    Launch(PathBuf, #[source] io::Error),
    #[error("parse {}", .0.display())]
    Parse(PathBuf, #[source] serde_json::Error),
    #[error("take the listening socket from standard input")]
    Socket(#[source] io::Error),
    #[error("open the memory counter")]
    Memory(#[source] io::Error),
    #[error("start the async runtime")]
    Runtime(#[source] io::Error),
    #[error("report why a derivation failed")]
    Verdict(#[source] io::Error),
}

/// Runs a worker with this engine to its end.
pub fn main<E: EngineLoader>(mut engine: E) -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(workers) = &arguments.reap {
        log::start();
        if arguments.when_closed {
            return reap::keep(&mut engine, workers, &arguments.of);
        }
        let orphans = if arguments.of.is_empty() {
            Orphans::AllBut(arguments.except)
        } else {
            Orphans::Of(arguments.of)
        };
        return reap::once(&mut engine, workers, &orphans);
    }
    if let Some(folder) = &arguments.check {
        log::start();
        return check::main(engine, folder, arguments.task.as_deref());
    }
    let Some(dir) = arguments.dir else { return probe(engine) };
    log::start();
    let done = if arguments.derive { derive::run(engine, &dir) } else { start(engine, &dir) };
    match done {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the worker cannot start");
            ExitCode::from(EXIT_REFUSED as u8)
        }
    }
}

fn start<E: EngineLoader>(mut engine: E, dir: &Path) -> Result<ExitCode, StartError> {
    let launch = read_launch(dir)?;
    let listener = inherited_listener().map_err(StartError::Socket)?;
    let memory = Memory::open().map_err(StartError::Memory)?;
    let resident_mb = memory.resident_mb();
    volunteer_for_oom();
    let pins = pins::hold(launch.artifacts.values());
    let prepared = engine.prepare(&launch);
    await_agent(&listener).map_err(StartError::Socket)?;
    let sandbox = apply_sandbox(&engine, &launch, dir);
    // From here on there may be other threads, and untrusted bytes may be read.
    memory.watch(launch.memory_limit_mb).map_err(StartError::Memory)?;
    let mut ready = prepared.and_then(|()| strong_enough(&launch, &sandbox));
    let _pins = pins.map_err(|failure| ready = Err(failure));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Runtime)?;
    let world = server::World { launch, scratch: dir.join(SCRATCH_DIR), sandbox, resident_mb };
    runtime
        .block_on(async { server::serve(engine, world, listener, ready).await.map_err(StartError::Socket) })
}

/// Makes the kernel end this process before any other one when memory runs out. A process may always raise its own score.
fn volunteer_for_oom() {
    if cfg!(target_os = "linux")
        && let Err(error) = fs::write("/proc/self/oom_score_adj", "1000")
    {
        tracing::warn!(%error, "this process cannot be marked as the first to end");
    }
}

fn read_launch(dir: &Path) -> Result<Launch, StartError> {
    let path = dir.join(LAUNCH_FILE);
    let text = fs::read(&path).map_err(|error| StartError::Launch(path.clone(), error))?;
    serde_json::from_slice(&text).map_err(|error| StartError::Parse(path, error))
}

/// Adopts the socket that the agent created. Listening again makes this process the owner that the kernel reports to clients.
fn inherited_listener() -> io::Result<UnixListener> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::net::listen(&listener, 16)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Waits for the agent's connection, at most [`AGENT_CONNECTS_WITHIN`]. The agent connects when it has opened what measures this process, which
/// `/proc` may hide from it once the sandbox is applied.
fn await_agent(listener: &UnixListener) -> io::Result<()> {
    let within = Timespec { tv_sec: AGENT_CONNECTS_WITHIN.as_secs() as i64, tv_nsec: 0 };
    match rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&within)) {
        // Without a connection the orphan timeout ends it, as later on.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn apply_sandbox<E: EngineLoader>(engine: &E, launch: &Launch, dir: &Path) -> SandboxReport {
    confine(engine, launch, Some(dir.join(SCRATCH_DIR)))
}

fn confine<E: EngineLoader>(engine: &E, launch: &Launch, scratch: Option<PathBuf>) -> SandboxReport {
    let mut profile = engine.profile(launch);
    profile.read.extend(launch.artifacts.values().chain(&launch.folders).cloned());
    profile.write.extend(scratch);
    profile.write.extend(launch.log_dir.clone());
    profile.cpu_s = launch.cpu_limit_s;
    let report = lockdown::apply(&profile);
    tracing::info!(level = ?report.level, layers = ?report.layers, missing = ?report.missing, "sandbox applied");
    report
}

fn strong_enough(launch: &Launch, sandbox: &SandboxReport) -> Result<(), Failure> {
    if sandbox.level == SandboxLevel::Full || launch.allow_weak_sandbox {
        return Ok(());
    }
    let message = format!(
        "this kernel cannot sandbox the engine completely ({}), and `allow_weak_sandbox` is not set",
        sandbox.missing.join("; ")
    );
    Err(Failure::of_host(FailureCode::InternalError, message))
}

/// Reports what the engine supports, and the sandbox of this kernel after applying it.
fn probe<E: EngineLoader>(mut engine: E) -> ExitCode {
    // First, because drivers that the engine opens start threads.
    let sandbox = lockdown::supported();
    let found = engine.probe();
    let (available, unavailable) = match found {
        Ok(probe) => (probe, None),
        Err(reason) => (island_runtimes_api::Probe::default(), Some(reason.reason)),
    };
    let report = ProbeReport {
        kind: engine.kind(),
        version: available.version,
        devices: available.devices,
        backend: available.backend,
        details: available.details,
        features: available.features,
        unavailable,
        sandbox,
    };
    let text = serde_json::to_string(&report).expect("a report is plain data");
    match io::Write::write_all(&mut io::stdout(), format!("{text}\n").as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
