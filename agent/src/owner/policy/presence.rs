//! Whether a person uses the machine, from its login manager: the only part that is informed of input on X and Wayland.
//!
//! Desktops report to it when they become idle; it watches consoles and remote sessions itself, and knows of programs that keep the machine
//! from being idle, such as video players. What it does not answer is unknown, which the policy treats like a person who is there.

use std::{path::PathBuf, process::Stdio, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tokio::{process::Command, time::Instant};

/// Time that the answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two questions while the machine is idle, so that a person who returns is noticed.
const WHILE_IDLE: Duration = Duration::from_secs(1);
/// The same otherwise: the rules count minutes.
const WHILE_USED: Duration = Duration::from_secs(10);

/// systemd's login manager, asked through the program that comes with it.
#[derive(Debug, Clone)]
pub struct LoginManager {
    program: PathBuf,
}

impl Default for LoginManager {
    fn default() -> Self {
        Self { program: PathBuf::from("busctl") }
    }
}

/// The state of all sessions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sessions {
    /// The login manager does not answer.
    #[default]
    Unknown,
    /// Somebody is there, or a program inhibits idleness.
    InUse,
    /// Idle since this time, on the monotonic clock.
    IdleSince(Duration),
}

/// The latest answer of the login manager.
#[derive(Debug, Clone, Default)]
pub struct Presence {
    sessions: Sessions,
    asked: Option<Instant>,
}

impl LoginManager {
    /// Asks whether the sessions are idle, and since when.
    pub async fn sessions(&self) -> Sessions {
        let mut command = Command::new(&self.program);
        command
            .args(["--system", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"])
            .args(["org.freedesktop.login1.Manager", "IdleHint", "IdleSinceHintMonotonic"])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        match tokio::time::timeout(TIMEOUT, command.output()).await {
            Ok(Ok(output)) if output.status.success() => parse(&String::from_utf8_lossy(&output.stdout)),
            _ => Sessions::Unknown,
        }
    }
}

impl Presence {
    /// Returns a newer answer if this one is too old.
    pub async fn refreshed(self, manager: &LoginManager) -> Self {
        let age = if matches!(self.sessions, Sessions::IdleSince(_)) { WHILE_IDLE } else { WHILE_USED };
        if self.asked.is_some_and(|asked| asked.elapsed() < age) {
            return self;
        }
        Self { sessions: manager.sessions().await, asked: Some(Instant::now()) }
    }

    /// Whether the login manager was asked.
    #[cfg(test)]
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Time without input, given the time since the last input on any terminal; `None` if it is unknown.
    pub fn idle(&self, terminals: Option<Duration>) -> Option<Duration> {
        idle(self.sessions, terminals, monotonic())
    }
}

/// Both must be idle. Terminals notice within a moment what the login manager notices late.
fn idle(sessions: Sessions, terminals: Option<Duration>, now: Duration) -> Option<Duration> {
    let sessions = match sessions {
        Sessions::Unknown => return None,
        Sessions::InUse => Duration::ZERO,
        Sessions::IdleSince(since) => now.saturating_sub(since),
    };
    Some(terminals.map_or(sessions, |terminals| terminals.min(sessions)))
}

/// Parses two lines, such as `b true` and `t 1234`: microseconds, 0 where nobody has logged in since the start.
fn parse(text: &str) -> Sessions {
    let mut lines = text.lines().map(str::trim);
    match (lines.next(), lines.next().and_then(|line| line.strip_prefix("t ")?.parse().ok())) {
        (Some("b false"), Some(_)) => Sessions::InUse,
        (Some("b true"), Some(since_us)) => Sessions::IdleSince(Duration::from_micros(since_us)),
        _ => Sessions::Unknown,
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_login_manager_does_not_report_is_unknown() {
        assert_eq!(parse("b true\nt 5000000\n"), Sessions::IdleSince(Duration::from_secs(5)));
        assert_eq!(parse("b false\nt 0\n"), Sessions::InUse);
        for text in ["", "b true", "b true\nt", "b true\nt -1", "t 5\nb true", "s \"true\"\nt 5", "Failed"] {
            assert_eq!(parse(text), Sessions::Unknown, "{text:?}");
        }
    }

    proptest! {
        /// The machine counts as idle no longer than both the sessions and the terminals are.
        #[test]
        fn idle_is_the_shorter_time(since in 0_u64..1000, now in 0_u64..1000, typed in prop::option::of(0_u64..1000)) {
            let (since, now) = (Duration::from_secs(since), Duration::from_secs(now));
            let typed = typed.map(Duration::from_secs);
            prop_assert_eq!(idle(Sessions::Unknown, typed, now), None);
            prop_assert_eq!(idle(Sessions::InUse, typed, now), Some(Duration::ZERO));
            let found = idle(Sessions::IdleSince(since), typed, now).expect("known");
            prop_assert!(found <= now.saturating_sub(since) && typed.is_none_or(|typed| found <= typed));
        }
    }

    fn program(folder: &std::path::Path, text: &str) -> LoginManager {
        let program = folder.join("busctl");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("write");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("make it a program");
        LoginManager { program }
    }

    #[tokio::test]
    async fn the_program_of_the_login_manager_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let idle = program(folder.path(), r#"[ "$6" = IdleHint ] && echo "b true" && echo "t 7000000""#);
        assert_eq!(idle.sessions().await, Sessions::IdleSince(Duration::from_secs(7)));
        let fails = program(folder.path(), "echo 'b true'; echo 't 1'; exit 1");
        assert_eq!(fails.sessions().await, Sessions::Unknown);
        let absent = LoginManager { program: folder.path().join("absent") };
        assert_eq!(absent.sessions().await, Sessions::Unknown);
        let presence = Presence::default().refreshed(&absent).await;
        assert_eq!(presence.idle(Some(Duration::from_hours(9))), None, "not idle: nobody knows");
    }
}
