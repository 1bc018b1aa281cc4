//! Reads a watch channel by value.
//!
//! `borrow` of a [`watch`] channel returns a guard on a lock that is not reentrant. A guard that lives across a call deadlocks as
//! soon as that call reads the same channel while a sender waits between the two readers, and a temporary in a statement lives
//! to the statement's end. `clippy.toml` disallows `borrow` everywhere else for this reason.

use tokio::sync::watch;

/// Returns the latest value of a watch channel, with no lock held.
///
/// Values that are expensive to clone belong in an [`Arc`](std::sync::Arc).
pub trait Latest<T> {
    /// Returns a clone of the latest value. A receiver does not mark it as seen.
    fn latest(&self) -> T;
}

#[expect(clippy::disallowed_methods, reason = "the guard ends with the clone")]
impl<T: Clone> Latest<T> for watch::Receiver<T> {
    fn latest(&self) -> T {
        self.borrow().clone()
    }
}

#[expect(clippy::disallowed_methods, reason = "the guard ends with the clone")]
impl<T: Clone> Latest<T> for watch::Sender<T> {
    fn latest(&self) -> T {
        self.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_read_the_latest_value() {
        let (sender, receiver) = watch::channel(1);
        assert_eq!((sender.latest(), receiver.latest()), (1, 1));
        sender.send_replace(2);
        assert_eq!((sender.latest(), receiver.latest()), (2, 2));
        assert!(receiver.has_changed().is_ok_and(|changed| changed), "reading does not mark a value as seen");
    }
}
