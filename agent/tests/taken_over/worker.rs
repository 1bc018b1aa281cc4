//! A worker that was taken over: it keeps to the protocol until its job arrives, and then does what would hurt most. The sandbox of a worker
//! is around it, unless an act shows what the agent does where a fault lets one out.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use island_protocol::{
    event::{AttemptEvent, Image, Numbered},
    host::SandboxReport,
    ids::{AttemptKey, JobId},
    job::{Failure, FailureCode, Outcome, Usage},
};
use island_runtimes_api::Phase;
use island_runtimes_worker::{
    frame::{FromWorker, HeldJob, JobWork, ToWorker},
    launch::{LAUNCH_FILE, Launch, SCRATCH_DIR, log_file},
    lockdown::{self, Profile},
};
use rustix::{
    fs::{FallocateFlags, Mode, OFlags},
    process::{Pid, Signal, kill_current_process_group, kill_process},
};

/// More than the memory limit of the smallest Cargo, and what the agent allows beyond it, megabytes.
const HOARD_MB: usize = 900;

/// Serves its socket until it is killed.
pub(crate) fn main(dir: &Path) -> io::Result<()> {
    let launch: Launch = serde_json::from_slice(&fs::read(dir.join(LAUNCH_FILE))?)?;
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The kernel reports the process that listened last as the owner of the socket.
    rustix::net::listen(&listener, 16)?;
    let is_sandboxed = launch.cargo.engine["sandbox"] != false;
    let profile = Profile { write: vec![dir.join(SCRATCH_DIR)], ..Profile::default() };
    let sandbox = if is_sandboxed { lockdown::apply(&profile) } else { SandboxReport::default() };
    let mut worker = Worker { launch, scratch: dir.join(SCRATCH_DIR), sandbox, held: Vec::new() };
    loop {
        let (stream, _) = listener.accept()?;
        // An agent that was killed, or that broke off the connection.
        let _ = worker.serve(&stream);
    }
}

struct Worker {
    launch: Launch,
    scratch: PathBuf,
    sandbox: SandboxReport,
    /// Its attempts, with the number of the next event of each.
    held: Vec<(AttemptKey, u64)>,
}

/// The agent's end of the socket.
#[derive(Clone)]
struct Agent(Arc<Mutex<UnixStream>>);

impl Agent {
    fn send(&self, frame: &FromWorker) -> io::Result<()> {
        self.write(&serde_json::to_vec(frame)?)
    }

    fn write(&self, body: &[u8]) -> io::Result<()> {
        let mut stream = self.0.lock().expect("no panic under this lock");
        stream.write_all(&(body.len() as u32).to_be_bytes())?;
        stream.write_all(body)
    }

    fn events(&self, key: AttemptKey, n: u64, events: Vec<AttemptEvent>) -> io::Result<()> {
        let events = (n..).zip(events).map(|(n, event)| Numbered { n, event }).collect();
        self.send(&FromWorker::Events { key, events })
    }

    fn end(&self, key: AttemptKey, n: u64) -> io::Result<()> {
        self.events(key, n, vec![completed(None)])
    }
}

fn token(content: String) -> AttemptEvent {
    AttemptEvent::token(content, 1)
}

fn completed(output: Option<String>) -> AttemptEvent {
    let outcome = Outcome::Completed {
        usage: Usage::default(),
        output: output.map(serde_json::Value::String),
        finish_reason: None,
        stop_text: None,
    };
    AttemptEvent::Ended { outcome }
}

impl Worker {
    fn act(&self) -> &str {
        self.launch.cargo.engine["act"].as_str().unwrap_or_default()
    }

    fn hello(&self) -> FromWorker {
        let jobs =
            self.held.iter().map(|&(key, next_event)| HeldJob { key, oldest_event: next_event, next_event });
        let mut sandbox = self.sandbox.clone();
        if self.act() == "false figures" {
            sandbox.layers = vec!["x".repeat(1 << 20); 8];
        }
        let (instance, pid) = (self.launch.instance, std::process::id());
        FromWorker::Hello { instance, pid, jobs: jobs.collect(), sandbox, ready: true }
    }

    fn ready(&self) -> FromWorker {
        let (slots, vram_mb) = match self.act() {
            "false figures" => (u32::MAX, u64::MAX),
            "one slot" => (1, 0),
            _ => (self.launch.slots, 0),
        };
        FromWorker::Ready { version: String::new(), slots, vram_mb }
    }

    fn serve(&mut self, stream: &UnixStream) -> io::Result<()> {
        let agent = Agent(Arc::new(Mutex::new(stream.try_clone()?)));
        agent.send(&self.hello())?;
        if self.act() == "endless frame" {
            return announce(stream);
        }
        agent.send(&self.ready())?;
        pulse(&agent, if self.act() == "false figures" { u64::MAX } else { 50 });
        let mut stream = stream;
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let mut body = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut body)?;
            match serde_json::from_slice(&body)? {
                ToWorker::Run { key, first_event, request, .. } => {
                    let agent_pid = request.input["agent"].as_i64().unwrap_or_default();
                    self.run(&agent, key, first_event, agent_pid as i32)?;
                }
                ToWorker::Cancel { key, failure } => self.cancel(&agent, key, failure)?,
                ToWorker::Shutdown { now: true } => std::process::exit(0),
                _ => {}
            }
        }
    }

    fn cancel(&mut self, agent: &Agent, key: AttemptKey, failure: Failure) -> io::Result<()> {
        let Some(at) = self.held.iter().position(|(held, _)| *held == key) else { return Ok(()) };
        let (_, n) = self.held.remove(at);
        agent.events(key, n, vec![AttemptEvent::Ended { outcome: Outcome::failed(failure) }])
    }

    fn run(&mut self, agent: &Agent, key: AttemptKey, n: u64, agent_pid: i32) -> io::Result<()> {
        let other = AttemptKey { job_id: JobId(uuid::Uuid::from_u128(1)), ..key };
        let tokens = |count: usize| (0..count).map(|_| token("x".to_owned())).collect::<Vec<_>>();
        match self.act() {
            "one slot" => {
                let text = if self.held.is_empty() { "alone" } else { "beside another" };
                self.held.push((key, n + 1));
                return agent.events(key, n, vec![token(text.to_owned())]);
            }
            "large batch" => agent.events(key, n, tokens(513))?,
            "large token" => agent.events(key, n, vec![token("x".repeat((64 << 10) + 1))])?,
            "long name" => agent.events(key, n, vec![AttemptEvent::Status { state: "x".repeat(101) }])?,
            "long format" => {
                let image = Image { format: "x".repeat(1 << 20), ..Image::default() };
                agent.events(key, n, vec![AttemptEvent::Image(image)])?;
            }
            "large end" => agent.events(key, n, vec![completed(Some("x".repeat(3 << 20)))])?,
            "end larger than a message" => {
                agent.events(key, n, vec![token("x".to_owned()), completed(Some("x".repeat(1_500_000)))])?;
            }
            "event larger than a message" => {
                let image = Image { data: "x".repeat(1_500_000), ..Image::default() };
                agent.events(key, n, vec![token("x".to_owned()), AttemptEvent::Image(image)])?;
                // The agent cancels it.
                self.held.push((key, n + 2));
                return Ok(());
            }
            "endless output" => {
                for n in (n..).step_by(500) {
                    agent.events(key, n, tokens(500))?;
                }
            }
            "another job" => {
                agent.events(other, 1, tokens(3))?;
                agent.end(other, 4)?;
            }
            "another job without end" => loop {
                agent.events(other, 1, vec![token("x".repeat(64 << 10)); 100])?;
            },
            "empty frames without end" => loop {
                agent.events(key, n, Vec::new())?;
            },
            "progress without end" => loop {
                agent.send(&FromWorker::Loading { done: 1, total: 2 })?;
            },
            "out of order" => agent.events(key, n + 5, tokens(1))?,
            "second hello" => agent.send(&self.hello())?,
            "late load failure" => {
                let failure = Failure::of_job(FailureCode::ModelRejected, "x".repeat(1 << 20));
                agent.send(&FromWorker::LoadFailed { failure })?;
            }
            "no frame" => agent.write(b"{{{{")?,
            "pulse of many jobs" => {
                let work = vec![JobWork { key, phase: Phase::Run, work: 1 }; 5_000];
                agent.send(&FromWorker::Pulse { work, rss_mb: 1 })?;
            }
            "many files" => {
                for number in 0..=20_000 {
                    fs::File::create(self.scratch.join(number.to_string()))?;
                }
                wait();
            }
            "large files" => fill(&self.scratch)?,
            "deep folders" => nest(&self.scratch)?,
            "many threads" => multiply(1_100 + 16 * self.launch.threads)?,
            "much memory" => {
                let hoard: Vec<_> =
                    (0..HOARD_MB).map(|_| std::hint::black_box(vec![1_u8; 1 << 20])).collect();
                wait();
                drop(hoard);
            }
            "long standard error" => {
                // Without the blocks of a disk, up to the limit of a file.
                let log = io::stderr().as_fd().try_clone_to_owned()?;
                rustix::fs::ftruncate(&log, (1 << 30) - 10)?;
                io::stderr().write_all(&[b'x'; 4096])?;
            }
            "log is a link" => {
                std::os::unix::fs::symlink("/etc/passwd", log_file(&self.scratch, key))?;
                agent.end(key, n)?;
            }
            "log is a pipe" => {
                let log = log_file(&self.scratch, key);
                nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU)?;
                agent.end(key, n)?;
            }
            "signals" => {
                let pid = Pid::from_raw(agent_pid).expect("the agent's process id");
                let sent = [kill_current_process_group(Signal::KILL), kill_process(pid, Signal::KILL)];
                let refused = sent.iter().all(Result::is_err);
                agent.events(key, n, vec![token(if refused { "refused" } else { "sent" }.to_owned())])?;
                agent.end(key, n + 1)?;
            }
            _ => agent.end(key, n)?,
        }
        if self.act() == "another job" {
            agent.end(key, n)?;
        }
        Ok(())
    }
}

/// Announces a frame of 4 GiB, and sends it.
fn announce(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(&u32::MAX.to_be_bytes())?;
    loop {
        stream.write_all(&[b'x'; 1 << 12])?;
    }
}

/// Sends signs of life, in a thread of its own.
fn pulse(agent: &Agent, rss_mb: u64) {
    let agent = agent.clone();
    thread::spawn(move || {
        while agent.send(&FromWorker::Pulse { work: Vec::new(), rss_mb }).is_ok() {
            thread::sleep(Duration::from_millis(500));
        }
    });
}

/// Allocates more than a worker may have, in three files since one has a limit of its own, and lives on.
fn fill(scratch: &Path) -> io::Result<()> {
    for number in 0..3 {
        let file = fs::File::create(scratch.join(number.to_string()))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 900 << 20)?;
    }
    wait();
    Ok(())
}

/// Makes folders in folders, until no path can name the last one, and lives on.
fn nest(scratch: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(scratch, flags, Mode::empty())?;
    for _ in 0..5_000 {
        rustix::fs::mkdirat(&folder, "f", Mode::RWXU)?;
        folder = rustix::fs::openat(&folder, "f", flags, Mode::empty())?;
    }
    wait();
    Ok(())
}

/// Starts this number of threads, and lives on.
fn multiply(threads: u32) -> io::Result<()> {
    for _ in 0..threads {
        thread::Builder::new().stack_size(64 << 10).spawn(wait)?;
    }
    wait();
    Ok(())
}

/// Lives on, until it is killed.
fn wait() {
    loop {
        thread::sleep(Duration::from_mins(1));
    }
}
