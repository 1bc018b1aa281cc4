//! Notices to systemd. Without systemd they go nowhere, which is fine.

use sd_notify::NotifyState;

/// The program serves.
pub fn ready(status: &str) {
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The program is stopping.
pub fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// The program is alive; systemd restarts it when these stop.
pub fn watchdog() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}
