//! A queue for each account inside this process. A transaction that locks an account's row waits in it without a
//! connection, so that one busy account, or one whose row another coordinator has locked, occupies one connection and
//! not all of them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use island_protocol::ids::AccountId;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Queues above which those that are not used are removed.
const MAX_UNUSED: usize = 1024;

/// The queues. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct AccountQueues(Arc<Mutex<HashMap<AccountId, Arc<tokio::sync::Mutex<()>>>>>);

/// The first place in the queues of some accounts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held for its drop")] Vec<OwnedMutexGuard<()>>);

impl AccountQueues {
    /// Waits for the first place in all of these queues. All callers wait in the order of the ids, so none waits for
    /// another that waits for it.
    pub(super) async fn wait(&self, accounts: &BTreeSet<AccountId>) -> Turn {
        let mut turns = Vec::with_capacity(accounts.len());
        for account in accounts {
            let queue = self.queue(*account);
            turns.push(queue.lock_owned().await);
        }
        Turn(turns)
    }

    fn queue(&self, account: AccountId) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.0.lock();
        if queues.len() >= MAX_UNUSED && !queues.contains_key(&account) {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        queues.entry(account).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    fn accounts(numbers: &[u128]) -> BTreeSet<AccountId> {
        numbers.iter().map(|number| AccountId(Uuid::from_u128(*number))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn only_transactions_of_the_same_account_wait() {
        let queues = AccountQueues::default();
        let first = queues.wait(&accounts(&[1, 2])).await;
        let _other = queues.wait(&accounts(&[3])).await;
        let (same, more) = (accounts(&[2]), accounts(&[0, 1]));
        for waiting in [&same, &more] {
            let early = tokio::time::timeout(Duration::from_secs(1), queues.wait(waiting)).await;
            assert!(early.is_err(), "{waiting:?}");
        }
        drop(first);
        let _turns = (queues.wait(&same).await, queues.wait(&more).await);
    }

    #[tokio::test]
    async fn unused_queues_are_removed() {
        let queues = AccountQueues::default();
        let _held = queues.wait(&accounts(&[0])).await;
        for number in 1..3 * MAX_UNUSED as u128 {
            drop(queues.wait(&accounts(&[number])).await);
        }
        assert!(queues.0.lock().len() <= MAX_UNUSED);
        assert!(queues.0.lock().contains_key(&AccountId(Uuid::from_u128(0))), "it is in use");
    }
}
