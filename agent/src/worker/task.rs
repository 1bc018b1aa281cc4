//! The task of one worker.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use island_daemon::chain::Chain;
use island_protocol::ids::AttemptKey;
use island_runtimes_worker::{
    codec::FrameError,
    event_limits::OutputBudget,
    frame::{FromWorker, HeldJob, ToWorker},
    host::{Commands, Exit, Frames, Process, Worker},
    launch::Launch,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Command, KILL_GRACE, Sink, WorkerExit, WorkerHandle, WorkerState, WorkerStats,
    reports::{self, FrameRate, MAX_NAMED_JOBS},
    stall::{RunTime, StallDetector},
    turns::{Turn, Turns},
};
use crate::attempt::handle::AttemptHandle;

/// Time a worker has to exit before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Time a worker that was found has to report its attempts.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Time a worker may leave commands unread before it counts as stalled.
const WRITE_GRACE: Duration = Duration::from_secs(5);

/// Where the events of an attempt go.
#[derive(Debug)]
struct FollowedJob {
    attempt: Arc<AttemptHandle>,
    sink: Sink,
    /// Output that is still accepted. The worker has the same limit and keeps to it unless it was taken over.
    budget: OutputBudget,
}

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
    jobs: BTreeMap<AttemptKey, FollowedJob>,
    watch: StallDetector,
    /// Frames that no limit of a job counts.
    rate: FrameRate,
    /// Whether its first frame has arrived.
    was_greeted: bool,
    exit_reason: Option<WorkerExit>,
}

impl WorkerHandle {
    /// Returns a handle on a running worker and the task that must be run for it.
    pub fn new(worker: Worker, launch: Launch, dir: PathBuf) -> (Arc<Self>, WorkerTask) {
        let now = Instant::now();
        let (sender, inbox) = mpsc::unbounded_channel();
        let (progress, state) = watch::channel(WorkerState::Loading { done: 0, total: 0 });
        let handle = Arc::new(Self {
            instance: launch.instance,
            launch,
            dir,
            memory: worker.memory,
            pid: worker.process.pid(),
            slots: Arc::new(Semaphore::new(0)),
            commands: sender,
            state,
            stats: WorkerStats::new(now).into(),
            sandbox: None.into(),
            hung: CancellationToken::new(),
            end_reason: OnceLock::new(),
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
            rate: FrameRate::new(now),
            was_greeted: false,
            exit_reason: None,
        };
        (handle, task)
    }
}

impl WorkerTask {
    /// Reads the first frame of a worker that was found running: the attempts it holds. `None` if it is not a worker of this agent.
    pub async fn hello(&mut self) -> Option<Vec<HeldJob>> {
        let first = tokio::time::timeout(HELLO_LIMIT, self.frames.next()).await.ok()??;
        let Ok(FromWorker::Hello { instance, jobs, ready, .. }) = first else { return None };
        if instance != self.handle.instance || jobs.len() > MAX_NAMED_JOBS {
            return None;
        }
        // Its sandbox is not recorded: by now it has read untrusted bytes.
        self.was_greeted = true;
        if ready {
            // The number of slots follows at once: an engine may offer fewer than it was launched with.
            let second = tokio::time::timeout(HELLO_LIMIT, self.frames.next()).await.ok()??;
            // Only the number of slots and the state of loading.
            let _ = self.take(second.ok()?);
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
            self.handle.slots.add_permits(slots as usize);
        }
    }

    /// Handles a frame.
    fn take(&mut self, frame: FromWorker) -> Next {
        let now = Instant::now();
        self.watch.frame_received(now);
        if matches!(self.exit_reason, Some(WorkerExit::LoadFailed(_))) {
            // It was the last frame of a worker that keeps to the protocol.
            return Next::End;
        }
        let is_sound = match &frame {
            FromWorker::Hello { .. } => !self.was_greeted,
            _ if !self.was_greeted => false,
            FromWorker::Events { key, events } if events.is_empty() || !self.jobs.contains_key(key) => {
                self.rate.count_stray(now, events)
            }
            FromWorker::Events { .. } => true,
            FromWorker::Pulse { work, .. } => self.rate.count_pulse(now, work),
            // A model that was loaded cannot fail to load.
            FromWorker::LoadFailed { .. } => !self.handle.is_ready(),
            FromWorker::Loading { .. } | FromWorker::Ready { .. } | FromWorker::Steps { .. } => {
                self.rate.count(now)
            }
        };
        if !is_sound {
            return self.break_off(&frame);
        }
        match frame {
            FromWorker::Hello { sandbox, .. } => {
                self.was_greeted = true;
                self.handle.set_sandbox(reports::sandbox(sandbox));
            }
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
                self.handle.stats_mut().vram_mb = reports::vram_mb(&self.handle.launch, vram_mb);
                self.become_ready(reports::slots(&self.handle.launch, slots));
            }
            FromWorker::LoadFailed { failure } => {
                self.exit_reason = Some(WorkerExit::LoadFailed(reports::failure(failure)));
            }
            // Empty ones would each be acknowledged.
            FromWorker::Events { key, events } if !events.is_empty() => {
                if let Some(job) = self.jobs.get_mut(&key) {
                    if let Err(exceeded) = job.budget.count(&events) {
                        tracing::warn!(instance = %self.handle.instance, %key, %exceeded, "a worker exceeds the limits of its job");
                        self.exit_reason = Some(WorkerExit::OutputExceeded);
                        return Next::End;
                    }
                    // A closed sink belongs to an attempt whose release is a later command.
                    let _ = job.sink.send(events);
                }
            }
            FromWorker::Events { .. } => {}
            FromWorker::Steps { key, steps } => {
                if let Some(job) = self.jobs.get(&key) {
                    job.attempt.note_steps(steps);
                }
            }
            FromWorker::Pulse { work, rss_mb } => {
                self.handle.stats_mut().rss_mb = reports::resident_mb(rss_mb);
                self.watch.pulse(now, &work);
                for job in work {
                    if let Some(followed) = self.jobs.get(&job.key) {
                        followed.attempt.note_work(job.phase, job.work);
                    }
                }
            }
        }
        Next::Go
    }

    /// Ends a worker that sends what no engine's process sends.
    fn break_off(&mut self, frame: &FromWorker) -> Next {
        tracing::warn!(instance = %self.handle.instance, frame = frame.name(), "a worker sends frames out of order, or too many");
        self.exit_reason = Some(WorkerExit::ProtocolViolated);
        Next::End
    }

    /// Executes a command.
    async fn apply(&mut self, command: Command) -> Next {
        let frame = match command {
            Command::Run { attempt, first_event, request, reports_steps, sink } => {
                let key = attempt.key();
                self.keep(key, attempt, sink);
                ToWorker::Run { key, first_event, request, reports_steps }
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
        let most = attempt.assignment().cargo.limits.max_output_bytes;
        self.jobs.insert(key, FollowedJob { attempt, sink, budget: OutputBudget::new(most) });
        self.handle.stats_mut().held = self.jobs.len() as u32;
    }

    /// Makes sure that the process has ended, and returns how.
    pub async fn end(mut self) {
        let told_to = self.exit_reason.is_some();
        if let Some(reason) = &self.exit_reason {
            // Its jobs end with this one also if it hangs: some reasons are final.
            let _ = self.handle.end_reason.set(reason.clone());
        }
        // After a crash the socket closes a moment before the process can be waited for.
        let grace = if told_to { Duration::ZERO } else { TERM_GRACE };
        let exit = match tokio::time::timeout(grace, self.process.wait()).await {
            Ok(exit) => exit,
            // A process that does not run handles no signal.
            Err(_) if self.exit_reason == Some(WorkerExit::Stalled) => self.kill().await,
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
        self.kill().await
    }

    async fn kill(&mut self) -> std::io::Result<Exit> {
        self.process.kill()?;
        after_kill(&self.handle, self.process.wait()).await
    }
}

/// Waits for the end of a process that was killed, and notes meanwhile if it hangs: its jobs do not wait for that.
async fn after_kill<T>(handle: &WorkerHandle, end: impl Future<Output = T>) -> T {
    tokio::pin!(end);
    if let Ok(ended) = tokio::time::timeout(KILL_GRACE, end.as_mut()).await {
        return ended;
    }
    handle.note_hang();
    end.await
}

enum Next {
    Go,
    End,
    Detach,
}

/// Runs a worker's task until the worker has ended or is detached.
pub async fn run(mut task: WorkerTask) {
    let mut judged = Instant::now();
    let mut turns = Turns::default();
    loop {
        let due = task.watch.due(judged, !task.jobs.is_empty());
        let turn = turns.next(task.frames.next(), task.inbox.recv(), sleep_until(due)).await;
        let next = match turn {
            Turn::Frame(Some(Ok(frame))) => task.take(frame),
            Turn::Frame(Some(Err(error))) => {
                tracing::warn!(instance = %task.handle.instance, error = %Chain(&error), "a worker's connection failed");
                if !matches!(error, FrameError::Socket(_)) {
                    task.exit_reason = Some(WorkerExit::ProtocolViolated);
                }
                Next::End
            }
            Turn::Frame(None) => Next::End,
            Turn::Command(Some(command)) => task.apply(command).await,
            Turn::Command(None) => Next::Detach,
            Turn::Due => {
                judged = Instant::now();
                let process = &task.process;
                let run_time = || process.run_time().map(|(ns, turns)| RunTime { ns, turns });
                match task.watch.check(judged, !task.jobs.is_empty(), run_time) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_end_when_it_is_killed_hangs() {
        let (worker, _commands) = WorkerHandle::without_process(testing::assignment(1, 1).cargo);
        assert_eq!(after_kill(&worker, std::future::ready(7)).await, 7);
        assert!(!worker.hangs());
        // As a process in a driver that hangs.
        let end = after_kill(&worker, std::future::pending::<()>());
        tokio::time::timeout(2 * KILL_GRACE, end).await.expect_err("its task waits for it");
        assert!(worker.hangs());
        assert!(worker.slots.is_closed(), "no job waits for a slot in it");
    }

    #[tokio::test]
    async fn jobs_in_a_worker_that_hangs_fail_with_the_reason_of_its_end() {
        let cargo = testing::assignment(1, 1).cargo;
        let (_lives, state) = watch::channel(WorkerState::Ready);
        let (worker, _commands) = WorkerHandle::in_state(cargo, Vec::new(), state);
        worker.note_hang();
        assert_eq!(worker.loss().await, WorkerExit::Stalled, "nothing else is known");
        worker.end_reason.set(WorkerExit::OutputExceeded).expect("the first one");
        assert!(!worker.loss().await.is_worth_a_retry(), "it would do the same again");
    }
}
