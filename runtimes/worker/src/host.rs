//! The agent's side: starts a worker, attaches to a running one, transfers frames.
//!
//! [`spawn`] and [`attach`] both return a [`Worker`]: its [`Process`], to signal and await, and its [`Connection`]. Dropping them ends
//! neither the process nor its jobs. The first frame of a connection is always `Hello`. [`mod@derive`] runs the same program once to derive
//! a file.

mod connection;
mod derive;
pub mod folder;
mod keeper;
mod process;
mod reap;
mod socket;

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process::Stdio,
};

use island_protocol::cargo::RuntimeType;

pub use connection::{Closed, Commands, Connection, Frames};
pub use derive::derive;
pub use process::{Exit, Process};
pub use reap::{Orphans, ReapError, reap};

use crate::{
    launch::{LAUNCH_FILE, Launch, SCRATCH_DIR, SOCKET_FILE, STDERR_FILE},
    lockdown::WorkerMemory,
};

/// Exit code of a worker whose memory watchdog ended it.
pub use crate::launch::EXIT_OUT_OF_MEMORY;

/// Number of spins of an engine's threads before they sleep. They wait for each other hundreds of times per token: on a busy machine
/// spinning on costs five sixths of the speed, on an idle one sleeping at once costs two fifths.
const ENGINE_SPIN: &str = "10000";

/// Environment variables that a worker gets; all others of the agent, including secrets, it does not get.
const KEPT_VARIABLES: [&str; 14] = [
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "GGML_VK_VISIBLE_DEVICES",
    "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER",
    "ISLAND_WEBGPU_PLUGIN",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "ISLAND_BACKENDS_DIR",
    "ISLAND_SIMULATED_GPU",
    "ISLAND_WORKER_LOG",
];

/// A worker that could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The worker's directory or a file in it cannot be created.
    #[error("prepare {}", .0.display())]
    Prepare(PathBuf, #[source] io::Error),
    /// The binary cannot be started.
    #[error("start {}", .0.display())]
    Start(PathBuf, #[source] io::Error),
    /// The socket cannot be connected: the worker has ended or never existed.
    #[error("connect to the worker in {}", .0.display())]
    Connect(PathBuf, #[source] io::Error),
    /// The memory of its process cannot be measured.
    #[error("measure the memory of the worker in {}", .0.display())]
    Measure(PathBuf, #[source] io::Error),
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    /// To signal it and to await its end.
    pub process: Process,
    /// To send commands and receive frames.
    pub connection: Connection,
    /// Its memory as the kernel reports it. `None` on systems that report it only to the process itself, and for a worker that was found
    /// running and that the system hides.
    pub memory: Option<WorkerMemory>,
}

/// Starts `binary` in `dir`, which is created if it does not exist, and connects to it. The model is not loaded yet: wait for `Ready` or
/// `LoadFailed`.
///
/// The worker leads its own process group, so neither the agent's end nor Ctrl-C at a terminal ends it. One that runs containers gets a keeper,
/// which removes them when it has ended, whatever becomes of the agent.
pub async fn spawn(binary: &Path, dir: &Path, launch: &Launch) -> Result<Worker, HostError> {
    let stderr = prepare(dir, launch)?;
    let listener = socket::listen(dir).map_err(|error| HostError::Prepare(dir.join(SOCKET_FILE), error))?;
    let mut command = command(binary, dir, stderr);
    if launch.cargo.runtime_type == RuntimeType::Container {
        // The worker holds the other end of the keeper's standard input, and closes it when it ends.
        let held =
            keeper::start(binary, dir, launch).map_err(|error| HostError::Start(binary.to_owned(), error))?;
        command.stdout(Stdio::from(held));
    }
    let child = command
        .envs(&launch.environment)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .spawn()
        .map_err(|error| HostError::Start(binary.to_owned(), error))?;
    // At once: later it may have applied its sandbox, and be hidden.
    let counter = child.id().ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(WorkerMemory::open);
    // With the worker's ends of its socket and of the keeper's input.
    drop(command);
    let process = Process::of_child(child).map_err(|error| HostError::Start(binary.to_owned(), error))?;
    let memory = measured(&process, dir, counter)?;
    follow(process, dir, memory).await
}

/// Returns what measures the memory of a worker that was started in `dir`, and ends one that cannot be measured where the system can: what it
/// reports of itself it can also make up.
fn measured(
    process: &Process,
    dir: &Path,
    counter: io::Result<WorkerMemory>,
) -> Result<Option<WorkerMemory>, HostError> {
    match counter {
        Ok(counter) => Ok(Some(counter)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(error) => {
            let _ = process.kill();
            Err(HostError::Measure(dir.to_owned(), error))
        }
    }
}

/// Connects to the worker that was started in `dir`. One that cannot be connected to is ended, as is one whose start is given up meanwhile:
/// nobody would supervise it.
async fn follow(process: Process, dir: &Path, memory: Option<WorkerMemory>) -> Result<Worker, HostError> {
    let mut unsupervised = KillOnDrop(Some(process));
    let stream = socket::connect(dir).await.map_err(|error| HostError::Connect(dir.to_owned(), error))?;
    let process = unsupervised.0.take().expect("it is taken once");
    Ok(Worker { process, connection: Connection::new(stream), memory })
}

/// A process that is ended on drop, unless it was taken out.
struct KillOnDrop(Option<Process>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(process) = &self.0
            && let Err(error) = process.kill()
        {
            tracing::error!(pid = process.pid(), %error, "a worker that nobody supervises cannot be ended");
        }
    }
}

/// Connects to the worker that runs in `dir`, started by this agent or an earlier one.
///
/// The process is the one that the kernel reports as the socket's owner, not one that the worker claims to be.
pub async fn attach(dir: &Path) -> Result<Worker, HostError> {
    let error = |error| HostError::Connect(dir.to_owned(), error);
    let stream = socket::connect(dir).await.map_err(error)?;
    let owner = stream.peer_cred().map_err(error)?.pid().and_then(rustix::process::Pid::from_raw);
    let owner =
        owner.ok_or_else(|| error(io::Error::other("the kernel does not report the socket's owner")))?;
    let process = Process::of_pid(owner).map_err(error)?;
    let memory = WorkerMemory::open(process.pid()).ok();
    Ok(Worker { process, connection: Connection::new(stream), memory })
}

/// Returns the last lines of a worker's log, at most `bytes`; empty without a log.
pub fn stderr_tail(dir: &Path, bytes: usize) -> String {
    let tail = || -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(dir.join(STDERR_FILE))?;
        let start = file.metadata()?.len().saturating_sub(bytes as u64);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        // It may grow meanwhile, up to the limit of a worker's files.
        file.take(bytes as u64).read_to_end(&mut tail)?;
        Ok(tail)
    };
    String::from_utf8_lossy(&tail().unwrap_or_default()).into_owned()
}

/// Returns the content of a file that a worker wrote in its scratch folder; an error if it is not an ordinary file, or is longer than `most` bytes.
/// Links are not followed: a worker must not choose what the agent reads.
pub fn read_scratch(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.len() > most {
        return Err(io::Error::other("not an ordinary file of the permitted length"));
    }
    let mut content = Vec::new();
    file.take(most).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns a worker's command without its standard input.
fn command(binary: &Path, dir: &Path, stderr: fs::File) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(binary);
    command
        .arg("--dir")
        .arg(dir)
        .current_dir(dir)
        .env_clear()
        .envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .env("TMPDIR", dir.join(SCRATCH_DIR))
        .env("GOMP_SPINCOUNT", ENGINE_SPIN)
        .stdout(Stdio::null())
        .stderr(Stdio::from(stderr))
        .process_group(0);
    command
}

/// Creates a worker's folder with its launch file, and opens its log.
fn prepare(dir: &Path, launch: &Launch) -> Result<fs::File, HostError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| HostError::Prepare(path, error)
    };
    let scratch = dir.join(SCRATCH_DIR);
    fs::create_dir_all(&scratch).map_err(at(&scratch))?;
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).map_err(at(dir))?;
    let file = dir.join(LAUNCH_FILE);
    let text = serde_json::to_vec_pretty(launch).map_err(|error| at(&file)(error.into()))?;
    fs::write(&file, text).map_err(at(&file))?;
    let log = dir.join(STDERR_FILE);
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log).map_err(at(&log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_cannot_be_connected_to_is_ended() {
        let dir = tempfile::tempdir().expect("a folder without a socket");
        let (process, same) = sleeping();
        let refused = follow(process, dir.path(), None).await.expect_err("nobody listens");
        assert!(matches!(refused, HostError::Connect(..)), "{refused}");
        await_end(same).await;
    }

    #[tokio::test]
    async fn a_worker_whose_start_is_given_up_is_ended() {
        let dir = tempfile::tempdir().expect("a folder");
        let _listener = socket::listen(dir.path()).expect("a socket");
        let (process, same) = sleeping();
        let mut following = Box::pin(follow(process, dir.path(), None));
        assert!(futures::poll!(&mut following).is_pending(), "it waits for the connection");
        // As when the job for which it was started is cancelled.
        drop(following);
        await_end(same).await;
    }

    #[tokio::test]
    async fn a_worker_that_cannot_be_measured_is_ended() {
        let dir = Path::new("/dir");
        let (process, same) = sleeping();
        let counter = WorkerMemory::open(process.pid());
        let is_measured = measured(&process, dir, counter).expect("it is visible").is_some();
        assert_eq!(is_measured, cfg!(target_os = "linux"));
        let unsupported = Err(io::ErrorKind::Unsupported.into());
        assert!(measured(&process, dir, unsupported).expect("not on this system").is_none());
        let hidden = Err(io::ErrorKind::NotFound.into());
        let refused = measured(&process, dir, hidden).expect_err("it is hidden");
        assert!(matches!(refused, HostError::Measure(..)), "{refused}");
        await_end(same).await;
    }

    /// A process, twice.
    fn sleeping() -> (Process, Process) {
        let child = tokio::process::Command::new("sleep").arg("600").spawn().expect("a process");
        let process = Process::of_child(child).expect("a child");
        let pid = rustix::process::Pid::from_raw(process.pid() as i32).expect("a process id");
        (process, Process::of_pid(pid).expect("it runs"))
    }

    async fn await_end(mut process: Process) {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), process.wait()).await;
        ended.expect("it was ended").expect("wait");
    }

    #[test]
    fn only_the_end_of_a_log_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(stderr_tail(dir.path(), 10), "");
        let file = fs::File::create(dir.path().join(STDERR_FILE)).expect("a log");
        // Longer than this machine's memory.
        file.set_len(1 << 40).expect("a sparse file");
        std::os::unix::fs::FileExt::write_all_at(&file, b"the end", (1 << 40) - 7).expect("write");
        assert_eq!(stderr_tail(dir.path(), 7), "the end");
    }

    #[test]
    fn of_a_scratch_folder_only_short_ordinary_files_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "abc").expect("write");
        assert_eq!(read_scratch(&path("file"), 3).expect("read"), b"abc");
        assert!(read_scratch(&path("file"), 2).is_err(), "too long");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("a link");
        assert!(read_scratch(&path("link"), 3).is_err());
        fs::create_dir(path("folder.log")).expect("a folder");
        assert!(read_scratch(&path("folder.log"), 3).is_err());
        let fifo = path("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        assert!(read_scratch(&fifo, 3).is_err(), "and it does not wait for a writer");
    }
}
