//! Notices to systemd. Without systemd they go nowhere, which is fine.

use std::time::Duration;

use sd_notify::NotifyState;

/// The program serves.
pub fn ready(status: &str) {
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The program is stopping.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// The program goes on stopping for this time at least, also beyond the limit of its unit.
pub fn extend(time: Duration) {
    let usec = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let _ = sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(usec)]);
}

/// The program is alive; systemd restarts it when these stop.
pub fn watchdog() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}
