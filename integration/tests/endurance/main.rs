//! Stories that need the machine to themselves, so that one runs at a time: thousands of jobs, a thousand Islands, hundreds of faults.
//!
//! `make chaos` and `make soak` run some of them longer.

mod chaos;
mod database_fails_over;
mod many_islands;
mod soak;

use tokio::sync::{Mutex, MutexGuard};

/// Waits until no other story runs, and keeps them waiting until the guard is dropped.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
