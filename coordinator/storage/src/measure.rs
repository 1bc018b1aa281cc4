//! What `island-bench` measures of the database, without the rest of a coordinator.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, HostId, InstanceId, JobId},
    job::{JobStatus, Usage},
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Store, StoreError,
    account::{self, Account},
    commit,
    jobs::{self, Ending},
    ledger::{self, Details},
};
use island_coordinator_domain::{
    clock::Clock,
    job::{End, Job},
    ledger::{Earner, Posting},
};

/// Consumers: each has at most one job that ends, so that they do not wait for each other.
const CONSUMERS: usize = 64;

/// Ends `count` jobs, `at_once` at a time, whose payments go to this number of accounts in turn. Returns the time that it
/// took. The jobs and accounts are created before, and stay.
pub async fn ends(store: &Store, count: usize, at_once: usize, earners: usize) -> anyhow::Result<Duration> {
    let (clock, coordinator, price) =
        (Clock::System, InstanceId(Uuid::new_v4()), MicroCredits::from_credits(1));
    let mut owners = Vec::with_capacity(earners);
    for _ in 0..earners {
        owners.push(open_account(store, 0).await?);
    }
    let mut consumers = Vec::with_capacity(CONSUMERS);
    for _ in 0..CONSUMERS {
        consumers.push(open_account(store, count as i64).await?);
    }
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        open.push(open_job(store, consumers[number % CONSUMERS], coordinator, price).await?);
    }
    let begun = Instant::now();
    stream::iter(open.into_iter().zip(owners.iter().cycle()))
        .map(|(job, owner)| {
            let now = clock.now();
            async move {
                let parts = End {
                    completed_at: now,
                    output: Some(json!("output")),
                    usage: Usage::default(),
                    error: None,
                };
                let ending = Ending {
                    job: &job,
                    coordinator,
                    status: JobStatus::Completed,
                    end: &parts,
                    earners: &[Earner { host: HostId(owner.0), account: *owner, share: price }],
                    karma: None,
                    canceller: None,
                    events: &[],
                };
                anyhow::ensure!(jobs::end(store, &ending).await?, "a job was not open");
                Ok(())
            }
        })
        .buffer_unordered(at_once)
        .try_collect::<()>()
        .await?;
    Ok(begun.elapsed())
}

async fn open_account(store: &Store, credits: i64) -> Result<AccountId, StoreError> {
    let (id, now) = (AccountId(Uuid::now_v7()), Clock::System.now());
    let account = Account { id, email: format!("{id}@example.org"), operator: false, created_at: now };
    let mut tx = store.begin().await?;
    account::insert_with_credits(&mut tx, &account, MicroCredits::from_credits(credits)).await?;
    commit(tx).await?;
    Ok(id)
}

async fn open_job(
    store: &Store,
    account: AccountId,
    coordinator: InstanceId,
    price: MicroCredits,
) -> anyhow::Result<Job> {
    let now = Clock::System.now();
    let new = Job::new(JobId(Uuid::now_v7()), account, (1, "measured".parse()?), price, now);
    let deadline = now.plus_ms(3_600_000);
    let job = Job {
        status: JobStatus::Running,
        attempt: 1,
        epoch: 1,
        head: Vec::new(),
        first_event: 1,
        deadline,
        ..new
    };
    let mut tx = store.begin_locked([account]).await?;
    jobs::insert(&mut tx, &job, coordinator, None, 0).await?;
    ledger::post(&mut tx, &Posting::hold(account, price), &Details::of_job(job.id), now).await?;
    commit(tx).await?;
    Ok(job)
}
