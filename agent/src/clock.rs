//! The two clocks: the wall's, for what people and other machines read, and one that counts suspend, for leases.

use std::time::{SystemTime, UNIX_EPOCH};

use island_protocol::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The wall clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(since.as_millis() as i64)
}

/// Milliseconds since the machine was switched on, suspend included: a lease goes on while a laptop sleeps.
pub fn boot_ms() -> u64 {
    // macOS counts suspend under the name that elsewhere leaves it out.
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(not(target_os = "macos"))]
    const CLOCK: ClockId = ClockId::Boottime;
    let since = clock_gettime(CLOCK);
    since.tv_sec as u64 * 1000 + since.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs() {
        let before = boot_ms();
        assert!(before > 0);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(boot_ms() > before);
    }
}
