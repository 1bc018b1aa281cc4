//! Messages and files in JSON.

use std::{fmt::Write as _, fs};

use bytes::BytesMut;
use ed25519_dalek::SigningKey;
use island_agent::disk::{
    journal::Journal,
    spool::{self, Spool},
};
use island_protocol::{
    event::AttemptEvent,
    ids::{AttemptKey, JobId},
    job::Outcome,
};
use island_runtimes_api::{
    EventSink, JobLog,
    lines::{Exit, Lines},
};
use island_runtimes_worker::{
    codec::FrameCodec,
    frame::{FromWorker, ToWorker},
};
use island_update::{
    judge::{Trust, judge},
    manifest::{Manifest, PublicKey, Release},
    record::Record,
};
use semver::Version;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::codec::{Decoder as _, Encoder as _};

use super::empty_folder;

/// Frames of a worker, whose engine an untrusted model or program may have taken over. An input is the content of a frame. A frame that is
/// read can be written, and read again.
pub(super) fn frames(input: &[u8]) -> bool {
    // Without its header first: lengths are as arbitrary as the rest.
    let mut raw = BytesMut::from(input);
    while let Ok(Some(_)) = FrameCodec::<FromWorker>::default().decode(&mut raw) {}
    frame::<ToWorker>(input) | frame::<FromWorker>(input)
}

fn frame<F: Serialize + DeserializeOwned>(content: &[u8]) -> bool {
    let mut codec = FrameCodec::<F>::default();
    let header = (content.len() as u32).to_be_bytes();
    let mut whole = BytesMut::from(&[&header, content].concat()[..]);
    let Ok(Some(frame)) = codec.decode(&mut whole) else { return false };
    assert!(whole.is_empty(), "a frame leaves bytes");
    let mut again = BytesMut::new();
    codec.encode(&frame, &mut again).expect("a frame that was read can be written");
    assert!(codec.decode(&mut again).expect("what was written is a frame").is_some());
    true
}

/// Standard output of a program: lines of JSON. The result does not depend on how the output is split.
pub(super) fn lines(input: &[u8]) -> bool {
    let whole = outcome_of(input, input.len().max(1));
    for size in [1, 7, 4096] {
        assert_eq!(outcome_of(input, size), whole, "in pieces of {size} bytes");
    }
    whole.1
}

fn outcome_of(input: &[u8], size: usize) -> (String, bool) {
    let (events, mut sent) = EventSink::channel();
    let log = JobLog::default();
    let mut lines = Lines::new(events, log.clone(), 1 << 20);
    let taken = input.chunks(size).try_for_each(|piece| lines.take(piece));
    let outcome = lines.finish(match taken {
        Ok(()) => Exit::Code(0),
        Err(failure) => Exit::Failed(failure),
    });
    let mut seen = String::new();
    while let Ok(event) = sent.try_recv() {
        let _ = writeln!(seen, "{event:?}");
    }
    (format!("{seen}{outcome:?}{}", log.text()), matches!(outcome, Outcome::Completed { .. }))
}

/// The spool of an attempt, with events of an untrusted program. What is read is followed by further events.
pub(super) fn spool(input: &[u8]) -> bool {
    let folder = empty_folder("spool");
    let key = AttemptKey { job_id: JobId(uuid::Uuid::from_u128(1)), attempt: 1, epoch: 2 };
    fs::write(folder.join(spool::file_name(key)), input).expect("write a spool");
    let mut spool = Spool::open(&folder, key, 1).expect("a spool with any content opens");
    let next = spool.next();
    assert_eq!(spool.read(1, usize::MAX).len() as u64, next - 1);
    if spool.end().is_none() {
        spool.push(AttemptEvent::Status { state: "loading".to_owned() }).expect("append");
        let again = Spool::open(&folder, key, 1).expect("open again");
        assert_eq!(again.next(), next + 1, "the event follows those before");
        assert_eq!(again.read(1, usize::MAX).len() as u64, next);
    }
    next > 1
}

/// A record of the journal, with an untrusted Cargo and input. A record that is read can be written, and read again.
pub(super) fn journal(input: &[u8]) -> bool {
    let folder = empty_folder("journal");
    fs::write(folder.join("record.json"), input).expect("write a record");
    let journal = Journal::new(folder);
    let records = journal.read_all().expect("list the records");
    let Some(record) = records.first() else { return false };
    journal.write(record).expect("write the record");
    let again = journal.read_all().expect("list the records");
    assert!(
        again.iter().all(|again| again.assignment.key == record.assignment.key),
        "the record is not its own"
    );
    true
}

/// The manifest of a release, from any server. A release that nobody trusted has signed is refused; of one that is signed, the fields
/// are arbitrary.
pub(super) fn update(input: &[u8]) -> bool {
    let key = SigningKey::from_bytes(&[7; 32]);
    let trust = Trust {
        keys: [PublicKey::of(&key)].into(),
        threshold: 1,
        product: "island-agent".to_owned(),
        channel: "stable".to_owned(),
        target: "x86_64-deb".to_owned(),
    };
    let (record, installed) = (Record::default(), Version::new(0, 1, 0));
    let judged = |bytes: &[u8]| judge(bytes, &trust, &record, &installed, 1_700_000_000);
    // Signatures cannot be found by changing bytes.
    assert!(judged(input).is_err(), "a manifest without a signature is accepted");
    let Ok(release) = serde_json::from_slice::<Release>(input) else {
        return serde_json::from_slice::<Manifest>(input).is_ok();
    };
    let signed = serde_json::to_vec(&Manifest::sign(&release, std::slice::from_ref(&key)))
        .expect("a manifest is valid JSON");
    let Ok((_, record)) = judged(&signed) else { return false };
    // The record is kept in a file between two updates.
    let folder = empty_folder("update");
    fs::write(folder.join("record.json"), serde_json::to_vec(&record).expect("a record is valid JSON"))
        .expect("write the record");
    assert_eq!(Record::read(&folder).expect("read the record"), record);
    true
}
