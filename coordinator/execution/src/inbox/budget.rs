//! The memory that received messages may take until they are handled: of all senders together, and of each.

use std::{collections::HashMap, sync::Arc};

use island_protocol::{MAX_MESSAGE_BYTES, ids::HostId};
use parking_lot::Mutex;

/// Of all senders.
const MAX_BYTES: usize = 256 << 20;
/// Of one sender: two of the largest messages.
const MAX_OF_SENDER: usize = 2 * MAX_MESSAGE_BYTES;
/// What each sender may take where others have used up the rest: heartbeats, renewals, a stream of tokens.
const RESERVED: usize = 64 << 10;
/// What a message takes besides its payload.
const OVERHEAD: usize = 512;

/// Who sent a message, as far as the fabric guarantees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    /// The Island that the subject names.
    Island(HostId),
    /// Anybody who may publish on this subject.
    Subject(&'static str),
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    senders: HashMap<Sender, usize>,
}

/// The memory for messages.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<Used>);

/// The memory of one message, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    sender: Sender,
    bytes: usize,
}

impl Budget {
    /// Takes the memory of a message. Returns `None` if it is not available: the message is to be dropped.
    pub(super) fn take(self: &Arc<Self>, sender: Sender, payload: usize) -> Option<Held> {
        let bytes = payload + OVERHEAD;
        let mut used = self.0.lock();
        let total = used.total + bytes;
        let own = used.senders.get(&sender).copied().unwrap_or(0) + bytes;
        if own > MAX_OF_SENDER || (total > MAX_BYTES && own > RESERVED) {
            return None;
        }
        used.total = total;
        used.senders.insert(sender, own);
        Some(Held { budget: self.clone(), sender, bytes })
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.budget.0.lock();
        used.total -= self.bytes;
        if let Some(own) = used.senders.get_mut(&self.sender) {
            *own -= self.bytes;
            if *own == 0 {
                used.senders.remove(&self.sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn island(n: u128) -> Sender {
        Sender::Island(HostId(Uuid::from_u128(n)))
    }

    #[test]
    fn a_sender_gets_its_share_and_nobody_is_shut_out_by_others() {
        let budget = Arc::new(Budget::default());
        let largest = MAX_MESSAGE_BYTES - OVERHEAD;
        let mut held: Vec<Held> =
            (0..2).map(|_| budget.take(island(0), largest).expect("its share")).collect();
        assert!(budget.take(island(0), 1).is_none(), "more than its share");
        for n in 1..8 {
            held.extend((0..2).map(|_| budget.take(island(n), largest).expect("its share")));
        }
        assert!(budget.take(island(8), largest).is_none(), "nothing is left");
        held.push(budget.take(island(8), 1_000).expect("what is reserved for each"));
        assert!(budget.take(island(8), RESERVED).is_none());
        held.clear();
        assert!(budget.take(island(8), largest).is_some());
        assert_eq!(budget.0.lock().senders.len(), 0, "nothing is kept of senders");
    }
}
