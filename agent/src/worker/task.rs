//! The task of one worker.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use island_protocol::ids::AttemptKey;
use island_runtimes_worker::{
    frame::{FromWorker, HeldJob, ToWorker},
    host::{Commands, Exit, Frames, Process, Worker},
    launch::Launch,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Command, Sink, WorkerExit, WorkerHandle, WorkerState, WorkerStats, stall::StallDetector};
use crate::attempt::handle::AttemptHandle;

/// Time a worker has to exit before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Time a worker that was found has to report its attempts.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Time a worker may leave commands unread before it counts as stalled.
const WRITE_GRACE: Duration = Duration::from_secs(5);

/// A worker's task before it runs.
#[derive(Debug)]
pub struct WorkerTask {
    handle: Arc<WorkerHandle>,
    process: Process,
    commands: Commands,
    frames: Frames,
    inbox: mpsc::UnboundedReceiver<Command>,
    state: watch::Sender<WorkerState>,
    /// Handles and sinks of attempts, from the command that brought them until [`Command::Release`].
    jobs: BTreeMap<AttemptKey, (Arc<AttemptHandle>, Sink)>,
    watch: StallDetector,
    exit_reason: Option<WorkerExit>,
}

impl WorkerHandle {
    /// Returns a handle on a running worker and the task that must be run for it.
    pub fn new(worker: Worker, launch: Launch, dir: PathBuf) -> (Arc<Self>, WorkerTask) {
        let now = Instant::now();
        let (sender, inbox) = mpsc::unbounded_channel();
        let (progress, state) = watch::channel(WorkerState::Loading { done: 0, total: 0 });
        let measured = WorkerStats {
            jobs: 0,
            held: 0,
            rss_mb: 0,
            vram_mb: 0,
            since: now,
            idle_since: now,
            load: Duration::ZERO,
        };
        let handle = Arc::new(Self {
            instance: launch.instance,
            launch,
            dir,
            pid: worker.process.pid(),
            slots: Arc::new(Semaphore::new(0)),
            commands: sender,
            state,
            stats: measured.into(),
            sandbox: None.into(),
        });
        let (commands, frames) = worker.connection.split();
        let task = WorkerTask {
            handle: Arc::clone(&handle),
            process: worker.process,
            commands,
            frames,
            inbox,
            state: progress,
            jobs: BTreeMap::new(),
            watch: StallDetector::new(now),
            exit_reason: None,
        };
        (handle, task)
    }
}

impl WorkerTask {
    /// Reads the first frame of a worker that was found running: the attempts it holds. `None` if it is not a worker of this agent.
    pub async fn hello(&mut self) -> Option<Vec<HeldJob>> {
        let first = tokio::time::timeout(HELLO_LIMIT, self.frames.next()).await.ok()??;
        let Ok(FromWorker::Hello { instance, jobs, sandbox, ready, .. }) = first else { return None };
        if instance != self.handle.instance {
            return None;
        }
        self.handle.set_sandbox(sandbox);
        if ready {
            // The number of slots follows at once: an engine may offer fewer than it was launched with.
            let second = tokio::time::timeout(HELLO_LIMIT, self.frames.next()).await.ok()??;
            self.take(second.ok()?);
        }
        Some(jobs)
    }

    fn become_ready(&self, slots: u32) {
        let first = self.state.send_if_modified(|state| {
            let first = *state != WorkerState::Ready;
            *state = WorkerState::Ready;
            first
        });
        if first {
            let mut stats = self.handle.stats_mut();
            stats.load = stats.since.elapsed();
            drop(stats);
            self.handle.slots.add_permits(slots.max(1) as usize);
        }
    }

    fn take(&mut self, frame: FromWorker) {
        self.watch.frame_received(Instant::now());
        match frame {
            FromWorker::Hello { sandbox, .. } => self.handle.set_sandbox(sandbox),
            FromWorker::Loading { done, total } => {
                self.state.send_if_modified(|state| {
                    let loading = matches!(state, WorkerState::Loading { .. });
                    if loading {
                        *state = WorkerState::Loading { done, total };
                    }
                    loading
                });
            }
            FromWorker::Ready { slots, vram_mb, .. } => {
                self.handle.stats_mut().vram_mb = vram_mb;
                self.become_ready(slots);
            }
            FromWorker::LoadFailed { failure } => self.exit_reason = Some(WorkerExit::LoadFailed(failure)),
            FromWorker::Events { key, events } => {
                if let Some((_, sink)) = self.jobs.get(&key) {
                    // A closed sink belongs to an attempt whose release is a later command.
                    let _ = sink.send(events);
                }
            }
            FromWorker::Pulse { work, rss_mb } => {
                self.handle.stats_mut().rss_mb = rss_mb;
                self.watch.pulse(Instant::now(), &work);
                for job in work {
                    if let Some((attempt, _)) = self.jobs.get(&job.key) {
                        attempt.note_work(job.phase, job.work);
                    }
                }
            }
        }
    }

    /// Executes a command.
    async fn apply(&mut self, command: Command) -> Next {
        let frame = match command {
            Command::Run { attempt, first_event, request, sink } => {
                let key = attempt.key();
                self.keep(key, attempt, sink);
                ToWorker::Run { key, first_event, request }
            }
            Command::Resume { attempt, from, sink } => {
                let key = attempt.key();
                self.keep(key, attempt, sink);
                ToWorker::Replay { key, from }
            }
            Command::Cancel(key, failure) => ToWorker::Cancel { key, failure },
            Command::Spooled(key, below) => ToWorker::Spooled { key, below },
            Command::Release(key) => {
                self.jobs.remove(&key);
                self.handle.stats_mut().held = self.jobs.len() as u32;
                return Next::Go;
            }
            Command::Stop { now } => {
                self.exit_reason = Some(WorkerExit::Stopped);
                ToWorker::Shutdown { now }
            }
            Command::Kill(death) => {
                self.exit_reason = Some(death);
                return Next::End;
            }
            Command::Detach => return Next::Detach,
        };
        // A closed connection is detected by reading frames, too.
        if tokio::time::timeout(WRITE_GRACE, self.commands.send(frame)).await.is_ok() {
            return Next::Go;
        }
        self.exit_reason = Some(WorkerExit::Stalled);
        Next::End
    }

    fn keep(&mut self, key: AttemptKey, attempt: Arc<AttemptHandle>, sink: Sink) {
        self.jobs.insert(key, (attempt, sink));
        self.handle.stats_mut().held = self.jobs.len() as u32;
    }

    /// Makes sure that the process has ended, and returns how.
    pub async fn end(mut self) {
        let told_to = self.exit_reason.is_some();
        // After a crash the socket closes a moment before the process can be waited for.
        let grace = if told_to { Duration::ZERO } else { TERM_GRACE };
        let exit = match tokio::time::timeout(grace, self.process.wait()).await {
            Ok(exit) => exit,
            Err(_) => self.force().await,
        };
        let exit = exit.unwrap_or(Exit::Gone);
        let death = self.exit_reason.take().unwrap_or(WorkerExit::Exited(exit));
        tracing::info!(instance = %self.handle.instance, pid = self.handle.pid, ?death, ?exit, "a worker has ended");
        self.handle.slots.close();
        self.state.send_replace(WorkerState::Gone(death));
    }

    async fn force(&mut self) -> std::io::Result<Exit> {
        self.process.terminate()?;
        if let Ok(exit) = tokio::time::timeout(TERM_GRACE, self.process.wait()).await {
            return exit;
        }
        self.process.kill()?;
        self.process.wait().await
    }
}

enum Next {
    Go,
    End,
    Detach,
}

/// Runs a worker's task until the worker has ended or is detached.
pub async fn run(mut task: WorkerTask) {
    let mut judged = Instant::now();
    loop {
        let due = task.watch.due(judged);
        let next = tokio::select! {
            biased;
            frame = task.frames.next() => match frame {
                Some(Ok(frame)) => {
                    task.take(frame);
                    Next::Go
                }
                Some(Err(error)) => {
                    tracing::warn!(instance = %task.handle.instance, %error, "a worker's connection failed");
                    Next::End
                }
                None => Next::End,
            },
            command = task.inbox.recv() => match command {
                Some(command) => task.apply(command).await,
                None => Next::Detach,
            },
            () = sleep_until(due) => {
                judged = Instant::now();
                match task.watch.check(judged) {
                    Some(stall) => {
                        tracing::warn!(instance = %task.handle.instance, ?stall, "a worker has stalled");
                        task.exit_reason = Some(WorkerExit::Stalled);
                        Next::End
                    }
                    None => Next::Go,
                }
            }
        };
        match next {
            Next::Go => {}
            Next::Detach => return,
            Next::End => return task.end().await,
        }
    }
}
