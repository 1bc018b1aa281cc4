//! A probe in a thread of its own, whose result is waited for a limited time: the kernel's drivers may hang while one of their files is
//! read, and a thread in the kernel cannot be ended.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Instant,
};

use island_protocol::time::Timestamp;

use super::{Moment, Probe, ProbeReport};
use crate::clock;

/// A probe whose polls end in time, with a result or without.
#[derive(Debug)]
pub(super) struct Limited {
    /// Name of the polled source, for people.
    name: &'static str,
    polls: Sender<Moment>,
    results: Receiver<ProbeReport>,
    /// Since when a poll runs.
    running: Option<Timestamp>,
    /// Whether the last wait for a result was in vain, so that the next one does not last as long.
    is_late: bool,
}

impl Limited {
    pub(super) fn new(mut probe: Box<dyn Probe>) -> Self {
        let (polls, moments) = channel::<Moment>();
        let (done, results) = channel();
        let name = probe.name();
        // It ends with the sender of `polls`.
        let started = thread::Builder::new().name("gpu-probe".to_owned()).spawn(move || {
            for moment in moments {
                if done.send(probe.poll(&moment)).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, name, "the thread that polls GPUs cannot be started");
        }
        Self { name, polls, results, running: None, is_late: false }
    }

    /// Starts a poll, unless the last one still runs.
    pub(super) fn start(&mut self, moment: &Moment) {
        // Without its thread no result arrives, which is reported.
        if self.running.is_none() && self.polls.send(moment.clone()).is_ok() {
            self.running = Some(clock::now());
        }
    }

    /// Returns the result of the poll. Waits until this time, but not again for a poll that was waited for.
    pub(super) fn result(&mut self, until: Instant) -> ProbeReport {
        let until = if self.is_late { Instant::now() } else { until };
        let result = self.results.recv_timeout(until.saturating_duration_since(Instant::now()));
        self.is_late = result == Err(RecvTimeoutError::Timeout);
        let problem = match result {
            Ok(report) => {
                self.running = None;
                return report;
            }
            Err(RecvTimeoutError::Timeout) => {
                let since = clock::local(self.running.unwrap_or_else(clock::now));
                format!(
                    "the driver of {} has not answered since {since}: if it stays so, restart the machine",
                    self.name
                )
            }
            Err(RecvTimeoutError::Disconnected) => {
                format!("{} cannot be polled: restart the agent", self.name)
            }
        };
        ProbeReport { problems: vec![problem], is_silent: true, ..ProbeReport::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    /// Polls that take until the test sends something.
    #[derive(Debug)]
    struct Held(Receiver<()>);

    impl Probe for Held {
        fn name(&self) -> &'static str {
            "Held GPUs"
        }

        fn poll(&mut self, _: &Moment) -> ProbeReport {
            self.0.recv().expect("the test ends it");
            ProbeReport { none: Some("none".to_owned()), ..ProbeReport::default() }
        }
    }

    #[test]
    fn a_probe_that_hangs_is_reported_until_it_answers() {
        let (end, held) = mpsc::channel();
        let mut probe = Limited::new(Box::new(Held(held)));
        let moment = Moment::new(Instant::now(), "/nowhere".as_ref());
        let far = || Instant::now() + Duration::from_hours(1);
        let mut polled = |until: Instant| {
            probe.start(&moment);
            probe.result(until)
        };
        let late = polled(Instant::now());
        assert!(late.is_silent && late.problems[0].starts_with("the driver of Held GPUs has not answered"));
        assert_eq!(polled(far()), late, "it is not waited for again");
        end.send(()).expect("it polls");
        while polled(Instant::now()).is_silent {
            thread::yield_now();
        }
        end.send(()).expect("it polls");
        assert!(!polled(far()).is_silent, "further polls are waited for");
    }
}
