//! Evaluation of what accounts publish: on threads beside those that answer requests, and one at a time for each account, so that none
//! takes the turns of others.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    thread::available_parallelism,
};

use island_protocol::ids::AccountId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::ApiError;

/// The threads, and the turns of accounts that have an evaluation now.
#[derive(Debug)]
pub struct Evaluations {
    threads: Arc<Semaphore>,
    turns: Mutex<HashMap<AccountId, Weak<Semaphore>>>,
}

impl Default for Evaluations {
    /// Half of the processors.
    fn default() -> Self {
        Self::new(available_parallelism().map_or(1, |processors| processors.get().div_ceil(2)))
    }
}

impl Evaluations {
    fn new(threads: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads)), turns: Mutex::default() }
    }

    /// Runs an evaluation when it is the account's turn. One that has begun runs to its end, also if its caller has gone.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        account: AccountId,
        evaluation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turn(account).acquire_owned().await.map_err(ApiError::internal)?;
        let thread = self.threads.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let task = tokio::task::spawn_blocking(move || {
            let _held = (turn, thread);
            evaluation()
        });
        task.await.map_err(ApiError::internal)
    }

    fn turn(&self, account: AccountId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(&account).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let turn = Arc::new(Semaphore::new(1));
            turns.insert(account, Arc::downgrade(&turn));
            turn
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn an_account_evaluates_one_value_at_a_time() {
        let evaluations = Evaluations::new(2);
        let (one, other) = (AccountId(Uuid::from_u128(1)), AccountId(Uuid::from_u128(2)));
        let (release, released) = mpsc::channel::<()>();
        let mut first = Box::pin(evaluations.run(one, move || released.recv().is_ok()));
        assert!(first.as_mut().now_or_never().is_none(), "it waits on its thread");
        let mut second = Box::pin(evaluations.run(one, || "second"));
        assert!(second.as_mut().now_or_never().is_none(), "it is not its turn");
        assert_eq!(evaluations.run(other, || "other").await.expect("a thread is free"), "other");
        assert!(second.as_mut().now_or_never().is_none(), "the first one has not ended");
        release.send(()).expect("the first one runs");
        assert!(first.await.expect("an end"));
        assert_eq!(second.await.expect("its turn"), "second");
        drop(evaluations.turn(other));
        assert_eq!(evaluations.turns.lock().len(), 1, "nothing is kept of accounts without one");
    }
}
