//! The events of one attempt, in a file until the coordinator has committed the attempt's end.
//!
//! One event per line, appended before it is sent, so that an agent that was killed finds all of them again. A line that a crash cut off is
//! dropped; the worker or the next attempt emits it again. What a failed write left is removed before anything is appended. Not synced to disk: a machine that loses power loses the worker, too, and the
//! attempt is not continued.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use fail::fail_point;
use island_protocol::{
    event::{AttemptEvent, Numbered},
    ids::AttemptKey,
};

/// A spool that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file cannot be opened or read.
    #[error("open spool {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why it cannot be opened.
        #[source]
        source: io::Error,
    },
    /// An event cannot be written.
    #[error("append to spool {path}")]
    Append {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        #[source]
        source: io::Error,
    },
    /// An event does not follow the previous one.
    #[error("event {found} arrived instead of event {expected}")]
    OutOfOrder {
        /// The expected number.
        expected: u64,
        /// The number that arrived.
        found: u64,
    },
    /// An event arrived after the end.
    #[error("the attempt has ended")]
    Ended,
}

impl SpoolError {
    /// Whether the cause is a full disk.
    pub fn is_disk_full(&self) -> bool {
        let (Self::Open { source, .. } | Self::Append { source, .. }) = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// The events of one attempt.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    file: File,
    /// Bytes of complete events in the file.
    len: u64,
    /// Whether more bytes may follow them, of a write that failed.
    is_torn: bool,
    first: u64,
    events: Vec<(Numbered<AttemptEvent>, usize)>,
    has_output: bool,
}

impl Spool {
    /// Opens the spool of an attempt whose first event is `first`, with the events of an earlier run of the agent.
    pub fn open(folder: &Path, key: AttemptKey, first: u64) -> Result<Self, SpoolError> {
        let path = folder.join(file_name(key));
        let failed = |source| SpoolError::Open { path: path.clone(), source };
        fail_point!("spool.open", |_| Err(failed(rustix::io::Errno::NOSPC.into())));
        let left = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(failed(source)),
        };
        let (events, good) = parse(&left, first);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        file.set_len(good as u64).map_err(failed)?;
        let has_output = events.iter().any(|(numbered, _)| is_output(&numbered.event));
        Ok(Self { path, file, len: good as u64, is_torn: false, first, events, has_output })
    }

    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Number of the attempt's first event.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Whether a token or an image was emitted, so that the attempt cannot start again from the beginning.
    pub fn has_output(&self) -> bool {
        self.has_output
    }

    /// The last event, if the attempt has ended.
    pub fn end(&self) -> Option<&AttemptEvent> {
        let (last, _) = self.events.last()?;
        matches!(last.event, AttemptEvent::Ended { .. }).then_some(&last.event)
    }

    /// Appends events of an engine. Known events are skipped, because a worker repeats events that were not acknowledged.
    pub fn append(&mut self, events: Vec<Numbered<AttemptEvent>>) -> Result<(), SpoolError> {
        let next = self.next();
        let fresh: Vec<_> = events.into_iter().filter(|event| event.n >= next).collect();
        for (due, event) in (next..).zip(&fresh) {
            if event.n != due {
                return Err(SpoolError::OutOfOrder { expected: due, found: event.n });
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        if self.end().is_some() {
            return Err(SpoolError::Ended);
        }
        self.write(fresh)
    }

    /// Appends an event of the agent under the next number.
    pub fn push(&mut self, event: AttemptEvent) -> Result<(), SpoolError> {
        let n = self.next();
        self.append(vec![Numbered { n, event }])
    }

    /// Like [`Spool::push`], but only in memory: an end must be reported even if the disk is full.
    pub fn push_unwritten(&mut self, event: AttemptEvent) {
        let numbered = Numbered { n: self.next(), event };
        self.events.push((numbered, 0));
    }

    /// Returns events from number `from` on, as many as fit into `max_bytes`, but at least one if there is one.
    pub fn read(&self, from: u64, max_bytes: usize) -> Vec<Numbered<AttemptEvent>> {
        let start = (from.saturating_sub(self.first) as usize).min(self.events.len());
        let mut left = max_bytes;
        let fitting = self.events[start..].iter().enumerate().take_while(|(index, (_, size))| {
            let fits = *index == 0 || *size <= left;
            left = left.saturating_sub(*size);
            fits
        });
        fitting.map(|(_, (event, _))| event.clone()).collect()
    }

    /// Deletes the spool.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a spool");
        }
    }

    fn write(&mut self, fresh: Vec<Numbered<AttemptEvent>>) -> Result<(), SpoolError> {
        let path = &self.path;
        let failed = |source| SpoolError::Append { path: path.clone(), source };
        let mut lines = Vec::new();
        let mut sized = Vec::with_capacity(fresh.len());
        for event in fresh {
            let before = lines.len();
            serde_json::to_writer(&mut lines, &event).map_err(|error| failed(error.into()))?;
            lines.push(b'\n');
            sized.push((event, lines.len() - before));
        }
        if self.is_torn {
            self.file.set_len(self.len).map_err(failed)?;
        }
        self.is_torn = true;
        write_all(&mut self.file, &lines).map_err(failed)?;
        self.is_torn = false;
        self.len += lines.len() as u64;
        self.has_output |= sized.iter().any(|(numbered, _)| is_output(&numbered.event));
        self.events.extend(sized);
        Ok(())
    }
}

fn write_all(file: &mut File, lines: &[u8]) -> io::Result<()> {
    fail_point!("spool.write", |_| Err(rustix::io::Errno::NOSPC.into()));
    fail_point!("spool.write_half", |_| {
        file.write_all(&lines[..lines.len() / 2]).and(Err(rustix::io::Errno::NOSPC.into()))
    });
    file.write_all(lines)
}

/// Name of an attempt's files.
pub fn file_name(key: AttemptKey) -> String {
    format!("{}-{}-{}.jsonl", key.job_id, key.attempt, key.epoch)
}

/// Returns the complete lines with consecutive numbers from `first` on, and their length in bytes.
fn parse(bytes: &[u8], first: u64) -> (Vec<(Numbered<AttemptEvent>, usize)>, usize) {
    let mut events = Vec::new();
    let mut good = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Ok(event) = serde_json::from_slice::<Numbered<AttemptEvent>>(line) else { break };
        if event.n != first + events.len() as u64 {
            break;
        }
        events.push((event, line.len()));
        good += line.len();
    }
    (events, good)
}

fn is_output(event: &AttemptEvent) -> bool {
    matches!(event, AttemptEvent::Token { .. } | AttemptEvent::Image(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use island_protocol::{
        ids::JobId,
        job::{Outcome, Usage},
    };
    use proptest::prelude::*;

    fn key() -> AttemptKey {
        AttemptKey { job_id: JobId(uuid::Uuid::from_u128(1)), attempt: 1, epoch: 2 }
    }

    fn token(n: u64) -> Numbered<AttemptEvent> {
        Numbered { n, event: AttemptEvent::token(format!("t{n}\n"), 1) }
    }

    fn ended() -> AttemptEvent {
        AttemptEvent::Ended {
            outcome: Outcome::Completed {
                usage: Usage::tokens(1, 1),
                output: None,
                finish_reason: None,
                stop_text: None,
            },
        }
    }

    #[test]
    fn numbers_follow_each_other_and_nothing_follows_the_end() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut spool = Spool::open(folder.path(), key(), 5).expect("open");
        spool.push(AttemptEvent::Status { state: "loading".into() }).expect("push");
        assert!(!spool.has_output());
        spool.append(vec![token(6), token(7)]).expect("append");
        assert!(spool.has_output());
        spool.append(vec![token(6), token(7), token(8)]).expect("a repetition is skipped");
        assert!(matches!(
            spool.append(vec![token(10)]),
            Err(SpoolError::OutOfOrder { expected: 9, found: 10 })
        ));
        spool.push(ended()).expect("end");
        assert!(matches!(spool.append(vec![token(10)]), Err(SpoolError::Ended)));
        assert_eq!(spool.next(), 10);
        assert!(spool.end().is_some());
    }

    #[test]
    fn reads_in_pieces() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut spool = Spool::open(folder.path(), key(), 1).expect("open");
        spool.append((1..=10).map(token).collect()).expect("append");
        let mut next = 1;
        while next < spool.next() {
            let piece = spool.read(next, 120);
            assert!(!piece.is_empty() && piece.len() < 10);
            assert_eq!(piece[0].n, next);
            next += piece.len() as u64;
        }
        assert!(spool.read(next, 120).is_empty());
        assert_eq!(spool.read(0, usize::MAX).len(), 10);
    }

    proptest! {
        /// If a crash cuts the file anywhere, a prefix remains, and appending continues from there.
        #[test]
        fn survives_a_cut(count in 1_u64..20, cut in any::<prop::sample::Index>()) {
            let folder = tempfile::tempdir().expect("temporary folder");
            let mut spool = Spool::open(folder.path(), key(), 3).expect("open");
            spool.append((3..3 + count).map(token).collect()).expect("append");
            let path = folder.path().join(file_name(key()));
            let bytes = fs::read(&path).expect("read");
            fs::write(&path, &bytes[..cut.index(bytes.len() + 1)]).expect("cut");
            let mut again = Spool::open(folder.path(), key(), 3).expect("open again");
            let next = again.next();
            prop_assert!(next <= 3 + count);
            again.append((next..3 + count).map(token).collect()).expect("append again");
            let whole = Spool::open(folder.path(), key(), 3).expect("open the whole");
            prop_assert_eq!(whole.read(3, usize::MAX), (3..3 + count).map(token).collect::<Vec<_>>());
        }
    }
}
