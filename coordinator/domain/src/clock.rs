//! The wall-clock time as an argument, so that tests can set it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use island_protocol::time::Timestamp;

/// A source of the current time.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// Milliseconds since 1970, set by a test.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The current time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::from_unix_ms(island_daemon::wall_clock::unix_ms()),
            Self::Manual(ms) => Timestamp::from_unix_ms(ms.load(Ordering::Relaxed)),
        }
    }

    /// The time for messages that are signed, which does not follow steps of the machine's clock.
    pub fn steady(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::from_unix_ms(island_daemon::wall_clock::steady_unix_ms()),
            Self::Manual(_) => self.now(),
        }
    }

    /// The earlier of [`Clock::times`]: what is judged by it does not expire early because a clock is ahead.
    pub fn earliest(&self) -> Timestamp {
        let [steady, now] = self.times();
        steady.min(now)
    }

    /// The later of [`Clock::times`]: what is judged by it does not remain valid because a clock is behind.
    pub fn latest(&self) -> Timestamp {
        let [steady, now] = self.times();
        steady.max(now)
    }

    /// The time for a message to a receiver whose clock shows `shown`, if that is known: the one of [`Clock::times`] that it
    /// is more likely to accept. A clock that was wrong at the start of this program makes [`Clock::steady`] wrong until its
    /// end, and a clock that is wrong now [`Clock::now`].
    pub fn for_receiver(&self, shown: Option<Timestamp>) -> Timestamp {
        nearest(self.times(), shown)
    }

    /// The times that a signed message may have: its sender follows steps of its clock or not, and this machine's
    /// clock may have been wrong at the start, or be wrong now.
    pub fn times(&self) -> [Timestamp; 2] {
        [self.steady(), self.now()]
    }
}

/// The time that is nearer to `shown`; the first one if they are equally near, or if it is unknown.
fn nearest([steady, now]: [Timestamp; 2], shown: Option<Timestamp>) -> Timestamp {
    let distance = |time: Timestamp| shown.map_or(0, |shown| time.unix_ms().abs_diff(shown.unix_ms()));
    if distance(now) < distance(steady) { now } else { steady }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_time_that_their_receiver_accepts() {
        let at = |ms: i64| Timestamp::from_unix_ms(ms);
        let hour = 3_600_000;
        let (right, slow) = (at(10 * hour), at(9 * hour));
        // Started while the clock was an hour slow, and set right since.
        assert_eq!(nearest([slow, right], Some(at(10 * hour + 900))), right);
        // The clock is slow now.
        assert_eq!(nearest([right, slow], Some(at(10 * hour - 900))), right);
        assert_eq!((nearest([right, slow], None), nearest([slow, right], None)), (right, slow));
    }
}
