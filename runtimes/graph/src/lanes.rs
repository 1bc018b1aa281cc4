//! Sessions of one graph: one with all threads for a single run, and lanes of few threads for concurrent runs.
//!
//! Two concurrent runs of one thread each are faster than two runs of two threads: no thread waits at the end of every node. A single run is
//! faster with all threads. So either the wide session runs, or the lanes do, never both.

use ort::session::Session;
use parking_lot::{Condvar, Mutex};

/// Maximum number of concurrent runs.
const MAX_LANES: usize = 4;

/// The number of lanes for this number of threads.
pub fn count(threads: usize) -> usize {
    if threads < 2 { 0 } else { threads.min(MAX_LANES) }
}

/// The sessions of a graph.
#[derive(Debug)]
pub struct Lanes {
    free: Mutex<Free<Session>>,
    freed: Condvar,
}

/// Idle sessions.
#[derive(Debug)]
struct Free<S> {
    wide: Option<S>,
    narrow: Vec<S>,
    /// Number of running sessions.
    running: usize,
    /// Wakes threads that wait for a session.
    waiting: usize,
}

/// A session for one run, returned on drop.
#[derive(Debug)]
pub struct Lane<'l> {
    lanes: &'l Lanes,
    /// `None` only during drop.
    session: Option<Session>,
    is_wide: bool,
    free_beside: usize,
}

impl<S> Free<S> {
    /// A session that may start now, and whether it is the wide one.
    fn take(&mut self, has_company: bool) -> Option<(S, bool)> {
        let is_alone = self.running == 0 && (!has_company || self.narrow.is_empty());
        let taken = if is_alone {
            self.wide.take().map(|session| (session, true))
        } else if self.wide.is_some() {
            self.narrow.pop().map(|session| (session, false))
        } else {
            None
        };
        self.running += usize::from(taken.is_some());
        taken
    }

    fn give_back(&mut self, session: S, is_wide: bool) {
        self.running -= 1;
        if is_wide {
            self.wide = Some(session);
        } else {
            self.narrow.push(session);
        }
    }
}

impl Lanes {
    /// One session with all threads, and those of the lanes, if any.
    pub fn new(wide: Session, narrow: Vec<Session>) -> Self {
        let free = Free { wide: Some(wide), narrow, running: 0, waiting: 0 };
        Self { free: Mutex::new(free), freed: Condvar::new() }
    }

    /// Waits for a session.
    pub fn enter(&self) -> Lane<'_> {
        let mut free = self.free.lock();
        free.waiting += 1;
        loop {
            let has_company = free.waiting > 1;
            if let Some(taken) = free.take(has_company) {
                free.waiting -= 1;
                return self.lane(&free, taken);
            }
            self.freed.wait(&mut free);
        }
    }

    /// A session, if one may start now. `has_company`: another run is about to start.
    pub fn try_enter(&self, has_company: bool) -> Option<Lane<'_>> {
        let mut free = self.free.lock();
        let taken = free.take(has_company)?;
        Some(self.lane(&free, taken))
    }

    fn lane(&self, free: &Free<Session>, (session, is_wide): (Session, bool)) -> Lane<'_> {
        let free_beside = if is_wide { 0 } else { free.narrow.len() };
        Lane { lanes: self, session: Some(session), is_wide, free_beside }
    }
}

impl Lane<'_> {
    /// The session.
    pub fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("present until it is returned")
    }

    /// Whether it has all threads.
    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// How many more lanes could run concurrently when it was taken.
    pub fn free_beside(&self) -> usize {
        self.free_beside
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.lanes.free.lock().give_back(session, self.is_wide);
            self.lanes.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Free<&'static str> {
        Free { wide: Some("wide"), narrow: vec!["b", "a"], running: 0, waiting: 0 }
    }

    #[test]
    fn single_run_gets_all_threads() {
        let mut free = free();
        assert_eq!(free.take(false), Some(("wide", true)));
        assert_eq!((free.take(false), free.take(true)), (None, None));
        free.give_back("wide", true);
        assert_eq!(free.take(false), Some(("wide", true)));
    }

    #[test]
    fn concurrent_runs_get_lanes() {
        let mut free = free();
        assert_eq!(free.take(true), Some(("a", false)));
        // The wide session would take the thread of the running lane.
        assert_eq!(free.take(false), Some(("b", false)));
        assert_eq!((free.take(false), free.take(true)), (None, None));
        free.give_back("a", false);
        assert_eq!(free.take(false), Some(("a", false)));
        free.give_back("a", false);
        free.give_back("b", false);
        assert_eq!(free.take(false), Some(("wide", true)));
    }

    #[test]
    fn without_lanes_runs_take_turns() {
        let mut free = Free { wide: Some("wide"), narrow: Vec::new(), running: 0, waiting: 0 };
        assert_eq!(free.take(true), Some(("wide", true)));
        assert_eq!(free.take(true), None);
    }
}
