//! Steps of the system clock. The time is the process's, so this test has a process of its own.

use std::fs;

use island_daemon::wall_clock::{resynchronize, steady_unix_ms, unix_ms};

const HOUR_MS: i64 = 3_600_000;

/// Whether two times differ by less than any step in this test.
fn are_near(one: i64, other: i64) -> bool {
    (one - other).abs() < HOUR_MS / 2
}

#[test]
fn a_step_changes_the_time_of_day_and_not_the_steady_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = folder.path().join("error");
    let steps_to = |ms: i64| fs::write(&error, ms.to_string()).expect("the error of the clock");
    steps_to(0);
    fail::cfg("wall_clock", &format!("return({})", error.display())).expect("a failpoint");
    let begin = steady_unix_ms();
    assert!(are_near(begin, unix_ms()));
    steps_to(HOUR_MS);
    assert!(are_near(unix_ms(), begin + HOUR_MS) && are_near(steady_unix_ms(), begin));
    // One of the two is wrong, and it is not known which.
    resynchronize();
    assert!(are_near(steady_unix_ms(), begin + HOUR_MS));
    resynchronize();
    assert!(are_near(steady_unix_ms(), begin));
}
