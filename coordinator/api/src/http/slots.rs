//! Limit on concurrent streams of an account: leased rows that all coordinators share. A slot is released before the
//! last bytes of its stream are sent, or when its reader has gone; slots of a coordinator that was killed expire.

use island_daemon::chain::Chain;
use island_protocol::ids::{AccountId, InstanceId};
use island_protocol_api::problem::Code;
use uuid::Uuid;

use crate::ApiError;
use island_coordinator_domain::{
    clock::Clock,
    metrics::{OpenStream, Requests},
};
use island_coordinator_execution::deferred_writes::{self, DeferredWrite, SLOT_LEASE_MS};
use island_coordinator_storage::counters::{Counters, SlotRow};

/// The slots of all accounts.
#[derive(Debug)]
pub struct Slots {
    pub counters: Counters,
    pub instance: InstanceId,
    pub clock: Clock,
    pub deferred: deferred_writes::Sender,
    /// Slots of each account; 0 means unlimited.
    pub limit: u32,
    pub requests: Requests,
}

/// A stream's slot, released on drop.
#[derive(Debug)]
pub struct Slot {
    /// `None` if there is no limit, or the slot is released.
    row: Option<SlotRow>,
    /// Whether the row is written; before that, a statement that writes it may be executed later.
    is_taken: bool,
    counters: Counters,
    deferred: deferred_writes::Sender,
    _open: OpenStream,
}

impl Slots {
    /// Takes a slot, or returns an error if none is free.
    pub async fn take(&self, account: AccountId) -> Result<Slot, ApiError> {
        let mut slot = Slot {
            row: None,
            is_taken: false,
            counters: self.counters.clone(),
            deferred: self.deferred.clone(),
            _open: self.requests.open_stream(),
        };
        if self.limit == 0 {
            return Ok(slot);
        }
        let now = self.clock.steady();
        // Set before the row is written, so that a caller that is dropped meanwhile releases it.
        let row = *slot.row.insert(SlotRow { account, holder: Uuid::new_v4(), instance: self.instance });
        let until = now.plus_ms(SLOT_LEASE_MS).unix_ms();
        if self.counters.take_slot(&row, self.limit, now.unix_ms(), until).await? {
            slot.is_taken = true;
            return Ok(slot);
        }
        slot.row = None;
        let message = format!("{} streams are open already", self.limit);
        Err(ApiError::new(Code::ConcurrentStreamsExceeded, message))
    }
}

impl Slot {
    /// Releases the slot before it returns.
    pub(crate) async fn release(mut self) {
        let Some(row) = self.row else { return };
        match self.counters.release_slot(&row).await {
            Ok(()) => self.row = None,
            Err(error) => tracing::warn!(error = %Chain(&error), "stream slot not released; will retry"),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(row) = self.row.take() {
            // If the task has ended, the coordinator is stopping, and the slot's lease will expire.
            let write = if self.is_taken {
                DeferredWrite::SlotReleased(row)
            } else {
                DeferredWrite::SlotAbandoned(row)
            };
            let _ = self.deferred.send(write);
        }
    }
}
