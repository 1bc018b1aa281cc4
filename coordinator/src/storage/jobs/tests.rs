use island_protocol::{
    credits::MicroCredits,
    ids::{HostId, InstanceId},
    job::Usage,
};
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    clock::Clock,
    commands::admin::create_account,
    config::Database,
    job::{End, tests::open as open_job},
};

/// A stored job that `coordinator` executes, in its own database.
async fn stored(dir: &std::path::Path, coordinator: InstanceId) -> (Store, Job) {
    let settings = Database { path: dir.join("island.db"), ..Database::default() };
    let store = Store::open(&settings).await.expect("database");
    let now = Clock::System.now();
    let account =
        create_account(&store, "a@example.org", false, MicroCredits::ZERO, now).await.expect("account");
    let only = Some(HostId(Uuid::new_v4()));
    let job = Job { id: JobId(Uuid::now_v7()), account, only, price: MicroCredits::ZERO, ..open_job() };
    assert!(accept_check(&store, &job, coordinator, now).await.expect("stored"));
    (store, job)
}

#[tokio::test]
async fn a_step_whose_reply_was_lost_may_be_repeated() {
    let dir = tempfile::tempdir().expect("folder");
    let (mine, other) = (InstanceId(Uuid::new_v4()), InstanceId(Uuid::new_v4()));
    let (store, job) = stored(dir.path(), mine).await;
    let to = AttemptKey { job_id: job.id, attempt: 1, epoch: 1 };
    let queued = |from, to, coordinator| Step {
        from,
        to,
        status: JobStatus::Queued,
        host: job.only,
        head: &[],
        parts: &[],
        first_event: 1,
        coordinator,
    };
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
