//! The thread that ends time slices. It sleeps while no program runs.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};

/// Length of a time slice.
const TICK: Duration = Duration::from_millis(2);
/// Number of ticks without a running program after which it sleeps, so that starting a program under load needs no wake-up.
const IDLE_TICKS: u32 = 500;

/// Ticks while programs run.
#[derive(Debug)]
pub(crate) struct Ticker {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    running: AtomicUsize,
    asleep: AtomicBool,
    stop: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Keeps the ticker awake.
#[derive(Debug)]
pub(crate) struct Running(Arc<State>);

impl Ticker {
    /// Starts the thread, which calls `tick`.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let state = Arc::<State>::default();
        let seen = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("ticker".into())
            .stack_size(64 << 10)
            .spawn(move || run(&seen, tick))?;
        state.thread.get_or_init(|| thread.thread().clone());
        Ok(Self { state, thread: Some(thread) })
    }

    /// Marks that a program runs, until the guard is dropped.
    pub(crate) fn running(&self) -> Running {
        self.state.running.fetch_add(1, Ordering::SeqCst);
        if self.state.asleep.swap(false, Ordering::SeqCst) {
            self.state.wake();
        }
        Running(Arc::clone(&self.state))
    }
}

impl State {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.state.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}

fn run(state: &State, tick: impl Fn()) {
    let mut idle = 0;
    while !state.stop.load(Ordering::SeqCst) {
        thread::park_timeout(TICK);
        tick();
        idle = if state.running.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        if idle >= IDLE_TICKS {
            sleep(state);
            idle = 0;
        }
    }
}

fn sleep(state: &State) {
    state.asleep.store(true, Ordering::SeqCst);
    while state.asleep.load(Ordering::SeqCst)
        && state.running.load(Ordering::SeqCst) == 0
        && !state.stop.load(Ordering::SeqCst)
    {
        thread::park();
    }
    state.asleep.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_sleeps_when_idle_and_wakes_for_a_program() {
        let (sent, received) = mpsc::channel();
        let ticker = Ticker::start(move || sent.send(()).unwrap_or_default()).expect("a thread");
        while !ticker.state.asleep.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        while received.try_recv().is_ok() {}
        let running = ticker.running();
        for _ in 0..3 {
            received.recv_timeout(Duration::from_secs(20)).expect("it ticks while a program runs");
        }
        drop(running);
        drop(ticker);
    }
}
