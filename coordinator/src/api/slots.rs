//! Streams at once per account: leased rows that every coordinator sees. A slot is given back before the last bytes of
//! its stream leave, or when its reader is gone; the slots of a coordinator that died run out by themselves.

use island_daemon::chain::Chain;
use island_protocol::{
    ids::{AccountId, InstanceId},
    problem::Code,
};
use uuid::Uuid;

use super::ApiError;
use crate::{
    clock::Clock,
    storage::counters::{Counters, SlotRow},
    upkeep::{Note, Notes, SLOT_LEASE_MS},
};

/// The slots of all accounts.
#[derive(Debug)]
pub(crate) struct Slots {
    pub counters: Counters,
    pub instance: InstanceId,
    pub clock: Clock,
    pub notes: Notes,
    /// Per account; 0: no limit.
    pub limit: u32,
}

/// One taken slot.
#[derive(Debug)]
pub(crate) struct Slot {
    /// None: there is no limit, or it is given back.
    row: Option<SlotRow>,
    counters: Counters,
    notes: Notes,
}

impl Slots {
    /// Takes a slot, if one is left.
    pub(crate) async fn take(&self, account: AccountId) -> Result<Slot, ApiError> {
        let mut slot = Slot { row: None, counters: self.counters.clone(), notes: self.notes.clone() };
        if self.limit == 0 {
            return Ok(slot);
        }
        let now = self.clock.now();
        // In the slot before it is in SQL: a caller that goes away meanwhile leaves nothing taken.
        let row = *slot.row.insert(SlotRow { account, holder: Uuid::new_v4(), instance: self.instance });
        let until = now.plus_ms(SLOT_LEASE_MS).unix_ms();
        if self.counters.take_slot(&row, self.limit, now.unix_ms(), until).await? {
            return Ok(slot);
        }
        slot.row = None;
        let message = format!("{} streams are open already", self.limit);
        Err(ApiError::new(Code::ConcurrentStreamsExceeded, message))
    }
}

impl Slot {
    /// Gives the slot back; it is free when this returns.
    pub(crate) async fn free(mut self) {
        let Some(row) = self.row else { return };
        match self.counters.free_slot(&row).await {
            Ok(()) => self.row = None,
            Err(error) => tracing::warn!(error = %Chain(&error), "stream slot not freed yet"),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(row) = self.row.take() {
            // Without the upkeep the coordinator is about to end, and the lease with it.
            let _ = self.notes.send(Note::Freed(row));
        }
    }
}
