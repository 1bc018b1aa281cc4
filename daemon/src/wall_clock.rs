//! The time of day, for what people and other machines read. It may be wrong, and may jump.

use std::time::{SystemTime, UNIX_EPOCH};

use fail::fail_point;

/// Milliseconds since 1970; 0 before that.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(error_ms())
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
