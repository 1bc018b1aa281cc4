use island_protocol::{
    credits::MicroCredits,
    ids::{HostId, InstanceId},
    job::Usage,
};
use island_protocol_api::admin::AdminAction;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::setup::{create_account, create_key};
use crate::{audit, host, ledger::Audit};
use island_coordinator_domain::{
    clock::Clock,
    config::Database,
    fleet::Enrolled,
    job::{Canceller, End},
    ledger::Earner,
    samples,
};

/// A stored job that `coordinator` executes, in its own database.
async fn stored(dir: &std::path::Path, coordinator: InstanceId) -> (Store, Job) {
    let settings = Database { path: dir.join("island.db"), ..Database::default() };
    let store = Store::open(&settings).await.expect("database");
    let now = Clock::System.now();
    let account =
        create_account(&store, "a@example.org", false, MicroCredits::ZERO, now).await.expect("account");
    let only = Some(HostId(Uuid::new_v4()));
    let job = Job { id: JobId(Uuid::now_v7()), account, only, price: MicroCredits::ZERO, ..samples::job() };
    assert!(accept_check(&store, &job, coordinator, now).await.expect("stored"));
    (store, job)
}

/// A step of this job to the next attempt, which nothing was delivered of.
fn to_attempt(job: &Job, from: AttemptKey, to: AttemptKey, coordinator: InstanceId) -> Step<'_> {
    Step {
        from,
        to,
        status: JobStatus::Queued,
        host: job.only,
        head: &[],
        parts: &[],
        times: Times::default(),
        first_event: 1,
        coordinator,
    }
}

#[tokio::test]
async fn a_step_whose_reply_was_lost_may_be_repeated() {
    let dir = tempfile::tempdir().expect("folder");
    let (mine, other) = (InstanceId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
    let (store, job) = stored(dir.path(), mine).await;
    let to = AttemptKey { job_id: job.id, attempt: 1, epoch: 1 };
    let queued = |from, to, coordinator| to_attempt(&job, from, to, coordinator);
    assert!(step(&store, &queued(job.key(), to, mine)).await.expect("written"));
    assert!(
        step(&store, &queued(job.key(), to, mine)).await.expect("written"),
        "the first try is recognized"
    );
    assert!(!step(&store, &queued(job.key(), to, other)).await.expect("written"), "another coordinator");
    let next = AttemptKey { epoch: 2, ..to };
    assert!(!step(&store, &queued(job.key(), next, mine)).await.expect("written"), "an earlier epoch");
    assert!(step(&store, &queued(to, next, mine)).await.expect("written"));
    assert!(
        !step(&store, &queued(job.key(), to, mine)).await.expect("written"),
        "the job has a later attempt"
    );
    store.close().await;
}

#[tokio::test]
async fn the_times_of_a_job_are_stored_when_it_starts_moves_and_ends() {
    let dir = tempfile::tempdir().expect("folder");
    let mine = InstanceId(Uuid::new_v4());
    let (store, job) = stored(dir.path(), mine).await;
    let at = |ms| Some(job.created_at.plus_ms(ms));
    let stored_times = async || get(store.reader(), job.id).await.expect("read").expect("a job").times;
    let first = AttemptKey { job_id: job.id, attempt: 1, epoch: 1 };
    let moved = |from, to, times| Step { times, ..to_attempt(&job, from, to, mine) };
    assert!(step(&store, &moved(job.key(), first, Times::default())).await.expect("written"));
    assert_eq!(stored_times().await, Times::default());

    let begun = Times { placed_at: at(1), started_at: at(2), first_output_at: None };
    started(&store, mine, &mut [(first, begun)]).await.expect("written");
    assert_eq!(stored_times().await, begun);

    let delivered = Times { first_output_at: at(3), ..begun };
    let second = AttemptKey { attempt: 2, epoch: 2, ..first };
    assert!(step(&store, &moved(first, second, delivered)).await.expect("written"));
    assert_eq!(stored_times().await, delivered);

    let parts =
        End { completed_at: job.created_at.plus_ms(9), output: None, usage: Usage::default(), error: None };
    let times = Times { first_output_at: at(4), ..begun };
    let ended = Job { attempt: 2, epoch: 2, times, ..job.clone() };
    let ending = Ending {
        job: &ended,
        coordinator: mine,
        status: JobStatus::Failed,
        end: &parts,
        earners: &[],
        karma: None,
        canceller: None,
        events: &[],
    };
    assert!(end(&store, &ending).await.expect("written"));
    assert_eq!(stored_times().await, times);
    store.close().await;
}

#[tokio::test]
async fn an_end_whose_reply_was_lost_may_be_repeated() {
    let dir = tempfile::tempdir().expect("folder");
    let mine = InstanceId(Uuid::new_v4());
    let (store, job) = stored(dir.path(), mine).await;
    let parts = End {
        completed_at: Clock::System.now(),
        output: Some(json!("x")),
        usage: Usage::default(),
        error: None,
    };
    let ending = |status, coordinator| Ending {
        job: &job,
        coordinator,
        status,
        end: &parts,
        earners: &[],
        karma: None,
        canceller: None,
        events: &[],
    };
    assert!(end(&store, &ending(JobStatus::Completed, mine)).await.expect("written"));
    assert!(
        end(&store, &ending(JobStatus::Completed, mine)).await.expect("written"),
        "the first try is recognized"
    );
    let other = InstanceId(Uuid::new_v4());
    assert!(
        !end(&store, &ending(JobStatus::Completed, other)).await.expect("written"),
        "another coordinator"
    );
    assert!(!end(&store, &ending(JobStatus::Cancelled, mine)).await.expect("written"), "another end");
    store.close().await;
}

#[tokio::test]
async fn an_operators_cancellation_is_recorded_once_and_only_with_the_end() {
    let dir = tempfile::tempdir().expect("folder");
    let (mine, other) = (InstanceId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
    let (store, job) = stored(dir.path(), mine).await;
    let canceller = Canceller::Operator { account: job.account, reason: "abuse".into() };
    let parts = End {
        completed_at: Clock::System.now(),
        output: None,
        usage: Usage::default(),
        error: Some(canceller.error()),
    };
    let ending = |coordinator| Ending {
        job: &job,
        coordinator,
        status: JobStatus::Cancelled,
        end: &parts,
        earners: &[],
        karma: None,
        canceller: Some(&canceller),
        events: &[],
    };
    let recorded = async || {
        let (entries, _) = audit::page(store.reader(), Some(job.account), 10, 0).await.expect("read");
        let cancelled = entries.into_iter().filter(|entry| entry.action == AdminAction::CancelJob.as_str());
        cancelled.map(|entry| (entry.job, entry.reason)).collect::<Vec<_>>()
    };
    assert!(!end(&store, &ending(other)).await.expect("written"), "another coordinator");
    assert!(recorded().await.is_empty());
    for _ in 0..2 {
        assert!(end(&store, &ending(mine)).await.expect("written"));
    }
    assert_eq!(recorded().await, [(Some(job.id), "abuse".to_owned())]);
    store.close().await;
}

/// An owner with an Island and a consumer with a job that it runs, whose end pays the owner the whole price.
#[tokio::test]
async fn earnings_and_karma_are_counted_later_and_can_be_spent_at_once() {
    let dir = tempfile::tempdir().expect("folder");
    let store = Store::open(&Database { path: dir.path().join("island.db"), ..Database::default() })
        .await
        .expect("database");
    let (mine, now, price) = (InstanceId(Uuid::new_v4()), Clock::System.now(), MicroCredits::from_credits(3));
    let consumer = create_account(&store, "a@example.org", false, price, now).await.expect("account");
    let owner =
        create_account(&store, "b@example.org", false, MicroCredits::ZERO, now).await.expect("account");
    let island = HostId(Uuid::new_v4());
    let mut tx = store.begin().await.expect("begun");
    let enrolled = Enrolled::new(island, owner, "U".into(), "island".into());
    let enrollment = host::enroll(&mut tx, &enrolled, 0, now.plus_ms(-1_000)).await.expect("enrolled");
    assert_eq!(enrollment, host::Enrollment::Enrolled);
    commit(tx).await.expect("committed");
    let accepted = async |account| {
        create_key(&store, account, "key", now).await.expect("key");
        let key = key::list(store.reader(), account, now).await.expect("read")[0].id;
        let job = Job { id: JobId(Uuid::now_v7()), account, only: None, price, ..samples::job() };
        let terms =
            Terms { coordinator: mine, key, has_quotas: false, limit: 0, claim: None, response: None };
        accept(&store, &job, &terms).await.map(|_| job)
    };
    let job = accepted(consumer).await.expect("accepted");
    let parts = End { completed_at: now, output: Some(json!("x")), usage: Usage::default(), error: None };
    let ending = Ending {
        job: &job,
        coordinator: mine,
        status: JobStatus::Completed,
        end: &parts,
        earners: &[Earner { host: island, account: owner, share: price }],
        karma: Some((island, 5_000)),
        canceller: None,
        events: &[],
    };
    assert!(end(&store, &ending).await.expect("ended"));

    let reader = store.reader();
    let audited = async || ledger::audit(reader).await.expect("audited");
    assert_eq!(ledger::uncounted(reader).await.expect("read"), [owner]);
    assert_eq!(ledger::balance(reader, owner).await.expect("read"), price);
    assert_eq!(audited().await, Audit::SOUND);
    assert_eq!(ledger::page(reader, owner, None, 10, 0).await.expect("read").1, 1);
    assert!(
        host::changed(reader, now, now).await.expect("read").is_empty(),
        "peers need not read the Island again"
    );
    let karma = async || host::karma(reader).await.expect("read");
    assert_eq!(karma().await, [(island, 0)]);

    accepted(owner).await.expect("the owner spends what it earned");
    assert!(matches!(accepted(owner).await, Err(AcceptError::InsufficientCredits { .. })));
    assert_eq!(ledger::uncounted(reader).await.expect("read"), []);
    assert_eq!(audited().await, Audit::SOUND);
    ledger::count_all(&store).await.expect("counted");
    assert_eq!(karma().await, [(island, 5_000)]);
    assert_eq!(ledger::page(reader, owner, None, 10, 0).await.expect("read").1, 3);
    // A hold without its job, as a defect would leave it.
    let mut tx = store.begin().await.expect("begun");
    sqlx::query("UPDATE jobs SET price = price + 1 WHERE status = 'submitted'")
        .execute(&mut *tx)
        .await
        .expect("changed");
    commit(tx).await.expect("committed");
    assert_eq!(audited().await, Audit { wrong_holds: 1, ..Audit::SOUND });
    store.close().await;
}

#[tokio::test]
async fn a_request_that_no_island_served_may_be_repeated_with_its_key_and_one_that_was_served_may_not() {
    let dir = tempfile::tempdir().expect("folder");
    let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
    let store = Store::open(&settings).await.expect("database");
    let (mine, now, price) = (InstanceId(Uuid::new_v4()), Clock::System.now(), MicroCredits::from_credits(1));
    let credits = MicroCredits::from_credits(100);
    let consumer = create_account(&store, "a@example.org", false, credits, now).await.expect("account");
    let owner =
        create_account(&store, "b@example.org", false, MicroCredits::ZERO, now).await.expect("account");
    create_key(&store, consumer, "key", now).await.expect("key");
    let key = key::list(store.reader(), consumer, now).await.expect("read")[0].id;
    let earner = Earner { host: HostId(Uuid::now_v7()), account: owner, share: price };
    for route in [idempotency::CHAT, idempotency::IMAGES] {
        for (earners, is_forgotten) in [(&[][..], true), (&[earner][..], false)] {
            let name = format!("{route} {is_forgotten}");
            let claim = Claim { account: consumer, route, key: &name, fingerprint: "f", life_ms: 86_400_000 };
            let submit = async || {
                let job =
                    Job { id: JobId(Uuid::now_v7()), account: consumer, only: None, price, ..samples::job() };
                let terms = Terms {
                    coordinator: mine,
                    key,
                    has_quotas: false,
                    limit: 0,
                    claim: Some(claim),
                    response: None,
                };
                let accepted = accept(&store, &job, &terms).await.expect("accepted");
                (job, accepted)
            };
            let (job, first) = submit().await;
            assert_eq!(first, Accepted::New);
            assert_eq!(submit().await.1, Accepted::Existing(job.id), "{name}: while it runs");
            let parts = End { completed_at: now, output: None, usage: Usage::default(), error: None };
            let (status, end_of) = (JobStatus::Cancelled, &parts);
            let ending = Ending {
                job: &job,
                coordinator: mine,
                status,
                end: end_of,
                earners,
                karma: None,
                canceller: None,
                events: &[],
            };
            assert!(end(&store, &ending).await.expect("ended"));
            let expected = if is_forgotten { Accepted::New } else { Accepted::Existing(job.id) };
            assert_eq!(submit().await.1, expected, "{name}: after its end");
        }
    }
    store.close().await;
}
