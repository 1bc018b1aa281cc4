//! Orders of the owner's account, kept on disk beside the owner's order on this machine, which overrides them (0123).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use island_daemon::files::write_atomic;
use island_protocol::{host::Order, time::Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::owner::policy::RemoteOrder;

/// Name of the file in the state folder.
const FILE: &str = "remote-order.json";

/// Why a remote order is refused.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRefusal {
    /// The settings do not allow any.
    #[error("the owner does not allow remote orders on this Island")]
    NotAllowed,
    /// It is not an order that a coordinator has just signed for this Island.
    #[error("the order is invalid: {0}")]
    Invalid(&'static str),
    /// A later one was received before.
    #[error("a later order was received before this one")]
    Superseded,
    /// It cannot be stored.
    #[error("the order cannot be stored on the Island")]
    Store(#[source] io::Error),
}

/// The last order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<RemoteOrder>,
    /// When it was signed: no earlier one is accepted, so that a copy of a message has no effect.
    sent_at: Timestamp,
}

/// The remote orders.
#[derive(Debug)]
pub(super) struct RemoteOrders {
    file: PathBuf,
    /// Held while the file is written: file and memory change together.
    last: Mutex<Last>,
}

impl RemoteOrders {
    /// Reads the last order. One that cannot be read is a pause.
    pub(super) fn read(state: &Path) -> Self {
        let file = state.join(FILE);
        let first = |order| Last { order, sent_at: Timestamp::from_unix_ms(0) };
        let read = fs::read(&file).and_then(|text| Ok(serde_json::from_slice::<Last>(&text)?));
        let last = match read {
            Ok(last) => last,
            Err(error) if error.kind() == io::ErrorKind::NotFound => first(None),
            Err(error) => {
                tracing::warn!(path = %file.display(), %error, "the last remote order cannot be read: pausing");
                first(Some(RemoteOrder::Pause))
            }
        };
        Self { file, last: Mutex::new(last) }
    }

    /// The order that applies.
    pub(super) fn get(&self) -> Option<RemoteOrder> {
        self.last.lock().order
    }

    /// Stores an order, unless a later one was received. The same one again changes nothing.
    pub(super) fn set(&self, order: Order, sent_at: Timestamp) -> Result<(), RemoteRefusal> {
        let order = match order {
            Order::Pause => Some(RemoteOrder::Pause),
            Order::Drain => Some(RemoteOrder::Drain),
            Order::Resume => None,
        };
        let mut last = self.last.lock();
        let new = Last { order, sent_at };
        if sent_at < last.sent_at || (sent_at == last.sent_at && new != *last) {
            return Err(RemoteRefusal::Superseded);
        }
        self.write(new).map_err(RemoteRefusal::Store)?;
        *last = new;
        Ok(())
    }

    /// Ends the order because the owner gave one on this machine.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut last = self.last.lock();
        if last.order.is_some() {
            let new = Last { order: None, ..*last };
            self.write(new)?;
            *last = new;
        }
        Ok(())
    }

    fn write(&self, last: Last) -> io::Result<()> {
        let text = serde_json::to_vec(&last).map_err(io::Error::other)?;
        write_atomic(&self.file, &text, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order() -> impl Strategy<Value = Order> {
        prop_oneof![Just(Order::Pause), Just(Order::Drain), Just(Order::Resume)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever arrives in whatever order and how often: the one that was signed last applies, also after a restart.
        #[test]
        fn the_latest_order_applies(orders in prop::collection::vec((order(), 1_i64..8), 1..12)) {
            let state = tempfile::tempdir().expect("a folder");
            let remote = RemoteOrders::read(state.path());
            let mut applied: Option<(Order, i64)> = None;
            for (order, at) in orders {
                let is_stored = remote.set(order, Timestamp::from_unix_ms(at)).is_ok();
                prop_assert_eq!(is_stored, applied.is_none_or(|(last, last_at)| at > last_at || (at, order) == (last_at, last)));
                if is_stored {
                    applied = Some((order, at));
                }
            }
            let expected = match applied.expect("the first is stored").0 {
                Order::Pause => Some(RemoteOrder::Pause),
                Order::Drain => Some(RemoteOrder::Drain),
                Order::Resume => None,
            };
            prop_assert_eq!(remote.get(), expected);
            prop_assert_eq!(RemoteOrders::read(state.path()).get(), expected);
        }
    }

    #[test]
    fn an_order_that_cannot_be_read_is_a_pause() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE), "{").expect("write");
        let remote = RemoteOrders::read(state.path());
        assert_eq!(remote.get(), Some(RemoteOrder::Pause));
        remote.end().expect("stored");
        assert_eq!(
            RemoteOrders::read(state.path()).get(),
            None,
            "a command on this machine ends it for good"
        );
    }

    #[test]
    fn a_command_on_the_machine_ends_an_order_for_good() {
        let state = tempfile::tempdir().expect("a folder");
        let remote = RemoteOrders::read(state.path());
        let at = Timestamp::from_unix_ms(7);
        remote.set(Order::Pause, at).expect("stored");
        remote.end().expect("stored");
        assert_eq!(remote.get(), None);
        assert!(matches!(remote.set(Order::Pause, at), Err(RemoteRefusal::Superseded)), "a copy of it");
    }
}
