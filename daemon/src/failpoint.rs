//! Failures that tests inject by name, with the crate `fail`.
//!
//! `fail_point!("name")` marks a place; a test sets in the environment of a program what happens there, such as
//! `FAILPOINTS=name=3*off->return`. The places do nothing in a program that is built without `fail`'s feature `failpoints`, which
//! only dev-dependencies enable: releases contain none of it.

/// Reads the environment, if this program was built for tests. Call it once, at the start of `main`, and keep the result until the end.
pub fn from_environment() -> Option<fail::FailScenario<'static>> {
    fail::has_failpoints().then(fail::FailScenario::setup)
}

/// Ends this process as a crash does: no destructor runs. For `fail_point!("name", crash)`, whose action is `return`.
pub fn crash<T>(_: Option<String>) -> T {
    std::process::abort()
}

/// Ends this process as a crash does if the action of a place is `return(crash)`. For places at which it may also fail.
pub fn crash_if_requested(action: Option<String>) {
    if action.as_deref() == Some("crash") {
        std::process::abort();
    }
}
