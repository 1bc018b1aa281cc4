//! The time of day, for what people and other machines read. It may be wrong, and may jump.
//!
//! Signed messages need a time that two machines agree on and that does not jump: [`steady_unix_ms`].

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use fail::fail_point;
use rustix::time::{ClockId, clock_gettime};

/// Difference between the steady time and the time since boot; [`UNSET`] before its first use.
static ANCHOR: AtomicI64 = AtomicI64::new(UNSET);
/// Its first value.
static FIRST: AtomicI64 = AtomicI64::new(UNSET);
const UNSET: i64 = i64::MIN;

/// Milliseconds since 1970; 0 before that.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(error_ms())
}

/// Milliseconds since 1970 by a clock that does not jump: the time of day at its first use, or at the last
/// [`resynchronize`], and the time that has passed since. A step of the system clock does not change it.
pub fn steady_unix_ms() -> i64 {
    let anchor = match ANCHOR.load(Ordering::Relaxed) {
        UNSET => {
            let now = unix_ms() - boot_ms();
            let set = FIRST.compare_exchange(UNSET, now, Ordering::Relaxed, Ordering::Relaxed);
            let first = set.err().unwrap_or(now);
            ANCHOR.store(first, Ordering::Relaxed);
            first
        }
        anchor => anchor,
    };
    anchor + boot_ms()
}

/// Sets [`steady_unix_ms`] to the time of day, because the clock may have been wrong at its first use; the next call sets
/// it back, because the clock may be wrong now.
pub fn resynchronize() {
    let first = FIRST.load(Ordering::Relaxed);
    let is_first = ANCHOR.load(Ordering::Relaxed) == first;
    let next = if is_first || first == UNSET { unix_ms() - boot_ms() } else { first };
    ANCHOR.store(next, Ordering::Relaxed);
}

/// Milliseconds since boot, suspended time included.
pub fn boot_ms() -> i64 {
    // On macOS the monotonic clock counts suspended time, elsewhere it does not.
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(not(target_os = "macos"))]
    const CLOCK: ClockId = ClockId::Boottime;
    let since = clock_gettime(CLOCK);
    since.tv_sec * 1000 + since.tv_nsec / 1_000_000
}

/// By how much a test has set the clock of this process wrong: the number in the file that `FAILPOINTS=wall_clock=return(FILE)` names. It is
/// read each time, so that the clock can jump while the program runs.
fn error_ms() -> i64 {
    fail_point!("wall_clock", |file: Option<String>| {
        let number = file.and_then(|file| std::fs::read_to_string(file).ok());
        number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    });
    0
}
