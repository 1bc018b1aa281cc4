//! NVIDIA's driver in a process of its own: its library may hang or crash, which neither stops nor ends the agent.
//!
//! The agent runs its own program with [`COMMAND`]. That process opens the driver at the first request and answers each request, a line,
//! with a line of JSON. One that does not answer in time is killed.

use std::{
    env, fmt,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};

use super::{
    nvidia::{Closed, Driver, Open, Report},
    nvml,
};

/// The command of the agent that runs [`serve`].
pub const COMMAND: &str = "gpu-driver";

/// Time that the driver has to be opened and answer once: one that nothing keeps loaded starts each of several GPUs for seconds.
pub(super) const OPENING_LIMIT: Duration = Duration::from_secs(30);
/// Time that it has to answer later.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Time that a killed process has to end, and one whose answers have ended.
const ENDING_LIMIT: Duration = Duration::from_secs(1);

/// How every reason of this module begins.
const SILENT: &str = "the NVIDIA driver does not answer: its library libnvidia-ml.so.1";

type Answer = Result<Report, Closed>;

/// Answers requests on standard input with what the driver reports, until that is closed.
pub fn serve() -> ExitCode {
    let (arrived, requests) = channel();
    // In a thread of its own, because the library may hang: this process ends with the agent in any case.
    let reading = thread::Builder::new().spawn(move || {
        for line in io::stdin().lines() {
            if line.is_err() || arrived.send(()).is_err() {
                break;
            }
        }
        // Nothing is to be cleaned up, and exit handlers of the library may hang.
        let _ = kill_process(getpid(), Signal::KILL);
    });
    if reading.is_err() {
        return ExitCode::FAILURE;
    }
    let mut driver = None;
    for () in requests {
        let answer = answer(&mut driver);
        let text = serde_json::to_string(&answer).expect("an answer is valid JSON");
        if writeln!(io::stdout(), "{text}").is_err() || answer.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn answer(driver: &mut Option<Box<dyn Driver>>) -> Answer {
    let open = match driver {
        Some(open) => open,
        None => driver.insert(nvml::open()?),
    };
    open.gpus()
}

/// Returns what opens the driver in a process of its own, and waits this long for it. A process that needs longer is given until
/// [`OPENING_LIMIT`]; opening the driver again then continues to wait for it.
pub(super) fn opener(patience: Duration) -> Open {
    open_by(own_program(), patience)
}

/// This program, also if its file was replaced meanwhile.
fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { env::current_exe().unwrap_or_default() }
}

fn open_by(program: PathBuf, patience: Duration) -> Open {
    let slot = Slot::default();
    Box::new(move || {
        let mut process = slot.0.lock();
        if let Some(former) = process.as_mut().filter(|former| former.is_over) {
            if !former.has_ended(ENDING_LIMIT) {
                let pid = former.child.id();
                return Err(silent(&format!(
                    "hangs in the kernel, and its process {pid} cannot be ended: restart the machine"
                )));
            }
            *process = None;
        }
        let current = match process.as_mut() {
            Some(current) => current,
            None => process.insert(Process::start(&program)?),
        };
        let first = current.answer(patience.min(OPENING_LIMIT))?;
        drop(process);
        Ok(Box::new(Opened { slot: slot.clone(), first: Mutex::new(Some(first)) }) as Box<dyn Driver>)
    })
}

fn silent(what: &str) -> Closed {
    Closed { reason: format!("{SILENT} {what}"), installed: true, is_silent: true }
}

/// The one process of this agent, because the library is one per process and a process that cannot be ended is not multiplied.
#[derive(Clone, Default)]
struct Slot(Arc<Mutex<Option<Process>>>);

/// The driver, open in its process, which ends with this.
struct Opened {
    slot: Slot,
    /// The answer with which it was opened.
    first: Mutex<Option<Report>>,
}

impl Driver for Opened {
    fn gpus(&self) -> Answer {
        if let Some(first) = self.first.lock().take() {
            return Ok(first);
        }
        match self.slot.0.lock().as_mut() {
            Some(process) => {
                process.request();
                process.answer(ANSWER_LIMIT)
            }
            None => Err(silent("has no process")),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(process) = self.slot.0.lock().as_mut() {
            process.kill();
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// When it was requested to answer.
    requested: Instant,
    is_opening: bool,
    /// Whether it was killed or has ended.
    is_over: bool,
}

impl Process {
    /// Starts one, and requests the first answer.
    fn start(program: &PathBuf) -> Result<Self, Closed> {
        let unstartable = |error: io::Error| {
            silent(&format!("is not loaded, because its process cannot be started: {error}"))
        };
        let mut child = Command::new(program)
            .arg0("island-agent")
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(unstartable)?;
        let requests = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (arrived, answers) = channel();
        let reading = thread::Builder::new().name("gpu-driver".to_owned()).spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if arrived.send(line).is_err() {
                    return;
                }
            }
        });
        let (requested, is_opening, is_over) = (Instant::now(), true, false);
        let mut process = Self { child, requests, answers, requested, is_opening, is_over };
        if let Err(error) = reading {
            process.kill();
            return Err(unstartable(error));
        }
        process.request();
        Ok(process)
    }

    fn request(&mut self) {
        self.requested = Instant::now();
        // Of one that has ended, the missing answer is reported with the reason.
        let _ = self.requests.write_all(b"\n");
    }

    /// Waits for the requested answer. A process without one in time is killed, unless it still opens the driver.
    fn answer(&mut self, patience: Duration) -> Answer {
        match self.answers.recv_timeout(patience) {
            Ok(line) => {
                self.is_opening = false;
                let unreadable = |_| Err(silent("wrote to the output of its process"));
                let answer: Answer = serde_json::from_str(&line).unwrap_or_else(unreadable);
                if answer.is_err() {
                    self.kill();
                }
                answer
            }
            Err(RecvTimeoutError::Timeout) if self.is_opening && self.requested.elapsed() < OPENING_LIMIT => {
                Err(silent(&format!("was not opened within {} s, and may still be", patience.as_secs())))
            }
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                Err(silent("hangs"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.is_over = true;
                let status =
                    if self.has_ended(ENDING_LIMIT) { self.child.try_wait().ok().flatten() } else { None };
                let how =
                    status.map_or_else(|| "in an unknown way".to_owned(), |status| format!("with {status}"));
                Err(silent(&format!("ended its process {how}")))
            }
        }
    }

    fn kill(&mut self) {
        self.is_over = true;
        let _ = self.child.kill();
    }

    /// Whether it ends within this time.
    fn has_ended(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            // An error means that it is no longer a child.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if start.elapsed() >= limit {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.has_ended(ENDING_LIMIT);
    }
}
