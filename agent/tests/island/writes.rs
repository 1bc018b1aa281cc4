//! The n-th write of the spool and of the journal fails, for every n: what was acknowledged is read back. The failpoints are those of this
//! process: the other stories have agents in processes of their own.

use std::{fs, path::Path};

use fail::FailScenario;
use island_agent::disk::{
    derived::Derived,
    journal::{Journal, Record},
    spool::{Spool, SpoolError},
};
use island_protocol::{
    credits::MicroCredits,
    event::{AttemptEvent, Numbered},
    fabric::Assignment,
    ids::{AttemptKey, JobId},
    job::FailureCode,
    time::Timestamp,
};

/// Events in a spool, appended two at a time.
const EVENTS: u64 = 12;

fn key(job: u128) -> AttemptKey {
    AttemptKey { job_id: JobId(uuid::Uuid::from_u128(job)), attempt: 1, epoch: 1 }
}

fn token(n: u64) -> Numbered<AttemptEvent> {
    Numbered { n, event: AttemptEvent::token(format!("token {n}"), 1) }
}

fn nth(n: u64, then: &str) -> String {
    if n == 0 { then.to_owned() } else { format!("{n}*off->{then}") }
}

fn read_back(folder: &Path) -> Vec<Numbered<AttemptEvent>> {
    Spool::open(folder, key(1), 1).expect("open again").read(1, usize::MAX)
}

#[test]
fn a_write_of_the_spool_that_fails_takes_nothing_else_with_it() {
    for place in ["spool.write", "spool.write_half"] {
        for n in 0..EVENTS / 2 {
            let scenario = FailScenario::setup();
            let folder = tempfile::tempdir().expect("temporary folder");
            let mut spool = Spool::open(folder.path(), key(1), 1).expect("open");
            fail::cfg(place, &nth(n, "1*return->off")).expect("an action");
            let mut failed = 0;
            for first in (1..=EVENTS).step_by(2) {
                let batch = vec![token(first), token(first + 1)];
                if let Err(error) = spool.append(batch.clone()) {
                    assert!(error.is_disk_full(), "{error:?}");
                    assert_eq!(spool.next(), first, "nothing of the batch is acknowledged");
                    failed += 1;
                    // The worker repeats what was not acknowledged.
                    spool.append(batch).expect("there is space again");
                }
            }
            assert_eq!(failed, 1, "{place} {n}");
            assert_eq!(read_back(folder.path()), (1..=EVENTS).map(token).collect::<Vec<_>>(), "{place} {n}");
            scenario.teardown();
        }
    }
}

#[tokio::test]
async fn a_copy_that_is_not_on_the_disk_gets_no_name_in_the_store() {
    let scenario = FailScenario::setup();
    let folder = tempfile::tempdir().expect("temporary folder");
    let (adopted, source) = (folder.path().join("adopted"), folder.path().join("module.wasm"));
    fs::create_dir(&adopted).expect("a folder");
    fs::write(&source, "module").expect("write");
    let store = Derived::new(adopted.clone(), adopted.clone(), false);
    let digest = island_cache::digest_of(b"module");
    fail::cfg("derived.sync", "return").expect("an action");
    let failed = store.adopt(&source, digest).await.expect_err("it is not on the disk");
    assert_eq!(failed.code, FailureCode::DiskFull);
    assert_eq!(fs::read_dir(&adopted).expect("list").count(), 0, "nothing is left of it");
    fail::remove("derived.sync");
    let path = store.adopt(&source, digest).await.expect("there is space again");
    assert_eq!(fs::read(path).expect("read"), b"module");
    scenario.teardown();
}

#[test]
fn a_spool_that_can_be_written_no_more_keeps_what_it_acknowledged() {
    for place in ["spool.write", "spool.write_half"] {
        for n in 0..EVENTS {
            let scenario = FailScenario::setup();
            let folder = tempfile::tempdir().expect("temporary folder");
            let mut spool = Spool::open(folder.path(), key(1), 1).expect("open");
            fail::cfg(place, &nth(n, "return")).expect("an action");
            let acknowledged = (1..=EVENTS).take_while(|n| spool.append(vec![token(*n)]).is_ok()).count();
            assert_eq!(acknowledged as u64, n);
            assert!(matches!(spool.append(vec![token(n + 1)]), Err(SpoolError::Append { .. })));
            assert_eq!(read_back(folder.path()), (1..=n).map(token).collect::<Vec<_>>(), "{place} {n}");
            scenario.teardown();
        }
    }
}

#[test]
fn a_record_is_written_whole_or_not_at_all() {
    for place in ["journal.write", "journal.write_half", "journal.rename"] {
        for n in 0..4 {
            let scenario = FailScenario::setup();
            let folder = tempfile::tempdir().expect("temporary folder");
            let journal = Journal::new(folder.path().to_owned());
            fail::cfg(place, &nth(n, "1*return->off")).expect("an action");
            let written: Vec<_> =
                (0..4).filter(|job| journal.write(&record(u128::from(*job))).is_ok()).collect();
            assert_eq!(written, (0..4).filter(|job| *job != n).collect::<Vec<_>>(), "{place} {n}");
            assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 3, "nothing is left behind");
            let mut read: Vec<_> = journal.read_all().expect("read").into_iter().collect();
            read.sort_by_key(|record| record.assignment.key);
            assert_eq!(read, written.iter().map(|job| record(u128::from(*job))).collect::<Vec<_>>());
            scenario.teardown();
        }
    }
}

fn record(job: u128) -> Record {
    let assignment = Assignment {
        v: 1,
        key: key(job),
        instance: None,
        first_event: 1,
        cargo: island_protocol::cargo::CargoSpec {
            price_per_job: MicroCredits::ZERO,
            token_prices: island_protocol::cargo::TokenPrices::default(),
            slug: "sim-chat".parse().expect("a slug"),
            runtime_type: island_protocol::cargo::RuntimeType::Llmcpp,
            onnx_task_type: None,
            artifacts: Vec::new(),
            required_vram_mb: 0,
            required_ram_mb: 16,
            limits: island_protocol::cargo::Limits::default(),
            sandbox_tier: None,
            engine: serde_json::Value::Null,
        },
        input: serde_json::Value::Null,
        continues: None,
        continues_reasoning: None,
        scope: "a".into(),
        isolated: false,
        deadline: Timestamp::from_unix_ms(1),
        sent_at: Timestamp::from_unix_ms(0),
    };
    Record { assignment, accepted_ms: 5, boot_id: "boot".into() }
}
