//! Streams at once per account. A slot is given back when its stream ends or its reader is gone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use island_protocol::{ids::AccountId, problem::Code};

use super::ApiError;

type Counts = Arc<Mutex<HashMap<AccountId, u32>>>;

/// The slots of all accounts.
#[derive(Debug)]
pub(crate) struct Slots {
    counts: Counts,
    limit: u32,
}

/// One taken slot.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Counts,
    account: AccountId,
}

impl Slots {
    pub(crate) fn new(limit: u32) -> Self {
        Self { counts: Counts::default(), limit }
    }

    /// Takes a slot, if one is left.
    pub(crate) fn take(&self, account: AccountId) -> Result<Slot, ApiError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(account).or_default();
        if *count >= self.limit {
            let message = format!("{} streams are open already", self.limit);
            return Err(ApiError::new(Code::ConcurrentStreamsExceeded, message));
        }
        *count += 1;
        Ok(Slot { counts: self.counts.clone(), account })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_slot_is_free_again() {
        let slots = Slots::new(2);
        let (one, other) = (AccountId(uuid::Uuid::from_u128(1)), AccountId(uuid::Uuid::from_u128(2)));
        let first = slots.take(one).expect("free");
        let _second = slots.take(one).expect("free");
        assert!(slots.take(one).is_err());
        assert!(slots.take(other).is_ok());
        drop(first);
        assert!(slots.take(one).is_ok());
    }
}
