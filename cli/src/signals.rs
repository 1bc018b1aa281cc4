//! The signals that ask this program to stop.

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGINT, SIGTERM and SIGHUP from its creation on; none is lost between two calls.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if it is ignored on purpose, as under `nohup`.
    hangup: Option<Signal>,
}

/// Which signal asked this program to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Interrupt,
    Terminate,
    Hangup,
}

impl Stop {
    /// What a shell shows for a program that this signal ended.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        })
    }
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = (!is_hangup_ignored(&status)).then(|| signal(SignalKind::hangup()));
        Ok(Self { terminate, interrupt, hangup: hangup.transpose().context("handle SIGHUP")? })
    }

    /// Resolves when one of them comes. Safe to drop.
    pub(crate) async fn asked_to_stop(&mut self) -> Stop {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = hung_up => Stop::Hangup,
        }
    }
}

/// Whether the process with this `/proc/PID/status` ignores SIGHUP, the lowest bit of the mask.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_read_from_the_mask() {
        assert!(is_hangup_ignored("Name:\tisland\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!is_hangup_ignored("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!is_hangup_ignored(""));
    }
}
