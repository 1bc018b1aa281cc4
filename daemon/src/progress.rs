//! Notices a task that makes no progress and ends the process, so that its supervisor starts it anew.
//!
//! A deadlock cannot be seen from inside the runtime that it blocks, so a thread of its own watches. It counts its own ticks
//! instead of reading a clock: time in which the whole process was stopped or the machine was suspended does not count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two looks of the watchdog. Long, because each one wakes an idle machine.
const TICK: Duration = Duration::from_secs(5);
/// Ticks for a task that expects nothing.
const UNLIMITED: u64 = u64::MAX;

/// A task's end of the watchdog. Dropping it ends the watch over the task.
#[derive(Debug)]
pub struct Progress(Arc<State>);

#[derive(Debug)]
struct State {
    name: &'static str,
    /// Counts the steps of the task.
    steps: Arc<AtomicU64>,
    /// Ticks within which the next step is due.
    ticks: AtomicU64,
}

impl Progress {
    /// A task that is not watched until it calls [`Progress::next_within`].
    pub fn new(name: &'static str) -> Self {
        Self(Arc::new(State { name, steps: Arc::default(), ticks: AtomicU64::new(UNLIMITED) }))
    }

    /// The task made a step and will make the next one within `limit`, rounded up to whole ticks of the watchdog.
    pub fn next_within(&self, limit: Duration) {
        let ticks = limit.as_millis().div_ceil(TICK.as_millis()) as u64;
        self.step(ticks);
    }

    /// The task made a step and waits for something that may never come.
    pub fn idle(&self) {
        self.step(UNLIMITED);
    }

    /// The number of steps so far, as it grows.
    pub fn steps(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.steps)
    }

    fn step(&self, ticks: u64) {
        self.0.ticks.store(ticks, Ordering::Release);
        self.0.steps.fetch_add(1, Ordering::AcqRel);
    }
}

/// The thread that watches. Dropping it ends the thread.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch these tasks. A task that is late ends this process with SIGKILL: a deadlocked process cannot run its exit
    /// handlers, and SIGKILL leaves no core file with the data of jobs in it.
    pub fn start<'a>(tasks: impl IntoIterator<Item = &'a Progress>) -> std::io::Result<Self> {
        Self::with(TICK, tasks, |name| {
            tracing::error!(task = name, "a task makes no progress: ending this process");
            let this = rustix::process::getpid();
            // It cannot fail for the own process, and the thread ends all the same.
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        })
    }

    fn with<'a>(
        tick: Duration,
        tasks: impl IntoIterator<Item = &'a Progress>,
        late: impl FnOnce(&'static str) + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut watched: Vec<_> = tasks.into_iter().map(|task| Watched::new(&task.0)).collect();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("watchdog".into()).spawn(move || {
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                if let Some(name) = watched.iter_mut().find_map(Watched::tick) {
                    return late(name);
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the watchdog knows of one task.
struct Watched {
    state: Arc<State>,
    steps: u64,
    /// Ticks since the last step.
    waited: u64,
}

impl Watched {
    fn new(state: &Arc<State>) -> Self {
        Self { state: Arc::clone(state), steps: 0, waited: 0 }
    }

    /// Takes one look. Returns the task's name if its next step is late.
    fn tick(&mut self) -> Option<&'static str> {
        // A task that has ended dropped its end.
        if Arc::strong_count(&self.state) == 1 {
            return None;
        }
        let steps = self.state.steps.load(Ordering::Acquire);
        if steps != self.steps {
            (self.steps, self.waited) = (steps, 0);
            return None;
        }
        self.waited = self.waited.saturating_add(1);
        // A whole tick more, because the step may have come just after the look before it.
        (self.waited > self.state.ticks.load(Ordering::Acquire)).then_some(self.state.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A task that keeps its promises is never late, however its steps fall between the looks; one that breaks a promise is
        /// late at the look after its limit.
        #[test]
        fn only_a_broken_promise_is_late(promises in prop::collection::vec(1..20_u64, 1..20)) {
            let task = Progress::new("task");
            let mut watched = Watched::new(&task.0);
            for ticks in promises {
                task.step(ticks);
                for _ in 0..=ticks {
                    prop_assert_eq!(watched.tick(), None);
                }
            }
            prop_assert_eq!(watched.tick(), Some("task"));
        }
    }

    #[test]
    fn idle_and_ended_tasks_are_never_late() {
        let task = Progress::new("task");
        let mut watched = Watched::new(&task.0);
        task.next_within(Duration::ZERO);
        task.idle();
        for _ in 0..1000 {
            assert_eq!(watched.tick(), None);
        }
        task.next_within(Duration::ZERO);
        assert_eq!((watched.tick(), watched.tick()), (None, Some("task")));
        drop(task);
        assert_eq!(watched.tick(), None);
    }

    #[test]
    fn the_thread_reports_the_task_that_is_late_and_ends_when_dropped() {
        let (slow, quick) = (Progress::new("slow"), Progress::new("quick"));
        slow.next_within(Duration::ZERO);
        quick.idle();
        let (sender, late) = mpsc::channel();
        let watchdog = Watchdog::with(Duration::from_millis(1), [&quick, &slow], move |name| {
            let _ = sender.send(name);
        });
        let watchdog = watchdog.expect("a thread");
        assert_eq!(late.recv(), Ok("slow"));
        drop(watchdog);
        drop(Watchdog::with(Duration::from_hours(1), [&quick], |_| {}).expect("a thread"));
    }
}
