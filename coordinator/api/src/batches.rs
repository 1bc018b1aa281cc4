//! `/batches`: many requests in one file, run in the background.

mod create;
mod request;
mod runner;
mod view;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{Json, extract::State};
use island_daemon::chain::Chain;
use island_protocol::ids::{AccountId, BatchId};
use island_protocol_api::{
    batch::{Batch, BatchList},
    problem::Code,
};
use tokio::{sync::Semaphore, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{
    Api, ApiError,
    http::{auth::Caller, query::Query, segment::Segment},
    openai::openai_form::OpenAiForm,
};
pub(crate) use create::create;
use island_coordinator_domain::batch::{is_cancellable, parse_id};
use island_coordinator_storage::{
    batch::{self, ClaimLimits, StoredBatch},
    commit,
};
use runner::Runner;
use view::view;

/// Maximum and usual number of batches of a page, as in OpenAI's API.
const MAX_PAGE: u64 = 100;
const PAGE: u64 = 20;
/// Time between two reads of which batches nobody runs.
const INTERVAL: Duration = Duration::from_secs(1);

fn unknown() -> ApiError {
    ApiError::new(Code::BatchNotFound, "there is no such batch")
}

/// The batch of an account that a path names.
async fn own(api: &Api, account: AccountId, Segment(id): &Segment) -> Result<StoredBatch, ApiError> {
    let id = parse_id(id).ok_or_else(unknown)?;
    read(api, account, id).await
}

async fn read(api: &Api, account: AccountId, id: BatchId) -> Result<StoredBatch, ApiError> {
    batch::get(api.store.reader(), id, account).await?.ok_or_else(unknown)
}

/// A page of the account's batches, newest first.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    OpenAiForm(query): OpenAiForm<Query>,
) -> Result<Json<BatchList>, ApiError> {
    page(&api, caller.account, &query).await.map(Json).map_err(ApiError::in_openai_form)
}

async fn page(api: &Api, account: AccountId, query: &Query) -> Result<BatchList, ApiError> {
    let limit = query.limit(MAX_PAGE, PAGE)?;
    let after = query.get("after").map(|id| parse_id(id).ok_or_else(unknown)).transpose()?;
    // One more shows whether others follow.
    let mut batches = batch::list(api.store.reader(), account, after, limit + 1).await?;
    let has_more = batches.len() as u64 > limit;
    batches.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let data: Vec<Batch> = batches.into_iter().map(view).collect();
    let (first_id, last_id) =
        (data.first().map(|batch| batch.id.clone()), data.last().map(|batch| batch.id.clone()));
    Ok(BatchList { object: "list".to_owned(), data, first_id, last_id, has_more })
}

/// A batch with its progress.
pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    id: Segment,
) -> Result<Json<Batch>, ApiError> {
    let found = own(&api, caller.account, &id).await;
    found.map(|batch| Json(view(batch))).map_err(ApiError::in_openai_form)
}

/// Cancels a batch: no further request begins, and those that run are cancelled.
pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    OpenAiForm(caller): OpenAiForm<Caller>,
    id: Segment,
) -> Result<Json<Batch>, ApiError> {
    let cancelled = async {
        let StoredBatch { id, .. } = own(&api, caller.account, &id).await?;
        let mut tx = api.store.begin().await?;
        let is_cancelled = batch::cancel(&mut tx, id, api.clock.now()).await?;
        commit(tx).await?;
        let batch = read(&api, caller.account, id).await?;
        // A cancellation that is repeated changes nothing.
        if !is_cancelled && batch.cancelling_at.is_none() && !is_cancellable(batch.status) {
            let message = format!("this batch is {} already", batch.status.as_str());
            return Err(ApiError::new(Code::BatchAlreadyFinal, message));
        }
        Ok(Json(view(batch)))
    };
    cancelled.await.map_err(ApiError::in_openai_form)
}

/// The task that runs batches: some of those that no other coordinator runs.
#[derive(Debug)]
pub struct Batches {
    pub api: Arc<Api>,
    /// An orderly stop: no further requests are made.
    pub stop: CancellationToken,
    /// The end of job execution, for any reason.
    pub end: CancellationToken,
}

impl Batches {
    /// Runs until `stop` or `end` is triggered. Then the next coordinator goes on with the batches: jobs that an Island has accepted run
    /// to their end, and their results are read by the idempotency keys of their requests.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut runners = JoinSet::new();
        let mut running = HashSet::new();
        let mut slots = Slots::default();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = self.end.cancelled() => break,
                Some(ended) = runners.join_next() => {
                    match ended {
                        Ok(batch) => {
                            running.remove(&batch);
                        }
                        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                        Err(_) => {}
                    }
                }
                () = self.api.batches_changed.notified() => {}
                _ = ticks.tick() => {}
            }
            let most = self.api.rules.batches.running as usize;
            if runners.len() >= most {
                continue;
            }
            let limits = claim_limits(runners.len(), most, self.api.rules.batches.concurrent_requests);
            let claimed = batch::claim(&self.api.store, self.api.instance, &running, limits).await;
            let claimed = claimed.unwrap_or_else(|error| {
                tracing::warn!(error = %Chain(&error), "batches not read; will retry");
                Vec::new()
            });
            for StoredBatch { id, account, .. } in claimed {
                running.insert(id);
                let requests = slots.of(account, &self.api);
                runners.spawn(Runner { api: self.api.clone(), id, account, requests }.run());
            }
        }
        runners.shutdown().await;
    }
}

/// How many requests of batches of each account run at one time here. Batches of an account share them, so that it has open
/// jobs left for its other requests.
#[derive(Debug, Default)]
struct Slots(HashMap<AccountId, Weak<Semaphore>>);

impl Slots {
    fn of(&mut self, account: AccountId, api: &Api) -> Arc<Semaphore> {
        self.0.retain(|_, requests| requests.strong_count() > 0);
        if let Some(requests) = self.0.get(&account).and_then(Weak::upgrade) {
            return requests;
        }
        let requests = Arc::new(Semaphore::new(requests_at_once(
            api.rules.batches.concurrent_requests,
            api.rules.concurrent_jobs,
        )));
        self.0.insert(account, Arc::downgrade(&requests));
        requests
    }
}

/// At most half of the jobs that an account may have open; `open_jobs` is 0 if that is not limited.
fn requests_at_once(concurrent_requests: u32, open_jobs: u32) -> usize {
    let half = if open_jobs == 0 { u32::MAX } else { (open_jobs / 2).max(1) };
    concurrent_requests.min(half) as usize
}

/// How many batches may begin while `running` of `most` run. Half of them may be of one account. Beyond that, an account has no more
/// batches than its requests keep busy, so that the batches of others do not wait for days.
fn claim_limits(running: usize, most: usize, concurrent_requests: u32) -> ClaimLimits {
    let half = most.div_ceil(2);
    if running < half {
        ClaimLimits { batches: half - running, of_account: usize::MAX }
    } else {
        ClaimLimits { batches: most.saturating_sub(running), of_account: concurrent_requests as usize }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn half_of_the_batches_are_not_of_one_account(running in 0..200_usize, most in 1..200_usize, requests in 1..9_u32) {
            let ClaimLimits { batches, of_account } = claim_limits(running, most, requests);
            prop_assert!(running.saturating_add(batches) <= most.max(running));
            prop_assert_eq!(batches == 0, running >= most);
            let may_exceed = of_account > requests as usize;
            prop_assert!(!may_exceed || running + batches <= most.div_ceil(2));
        }

        #[test]
        fn open_jobs_are_left_for_other_requests(requests in 1..1_000_u32, open in 2..1_000_u32) {
            let at_once = requests_at_once(requests, open);
            prop_assert!((1..=requests as usize).contains(&at_once));
            prop_assert!(at_once < open as usize);
            prop_assert_eq!(requests_at_once(requests, 0), requests as usize);
        }
    }
}
