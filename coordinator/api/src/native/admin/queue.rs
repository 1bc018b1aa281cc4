//! `GET /admin/queue`: jobs that wait for an Island, and why.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use island_protocol_api::{
    PageMeta,
    admin::{Queue, WaitingJob},
    problem::Code,
};

use super::account_of_query;
use crate::{
    Api, ApiError,
    http::{auth::Operator, query::Query},
};
use island_coordinator_domain::placement;
use island_coordinator_storage::jobs::{self, WaitingFilter};

/// Waiting jobs in the order in which they are placed. Why a job waits is known to the coordinator that executes it, and is not stored;
/// a page of the jobs with one reason is therefore made in memory, any other in SQL.
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    query: Query,
) -> Result<Json<Queue>, ApiError> {
    let requested = query.page()?;
    let filter = WaitingFilter {
        account: account_of_query(&query)?,
        cargo: query.parsed("workload", "the slug of a Cargo")?,
    };
    let reason = reason(&query)?;
    let waiting = api.execution.waiting();
    let reasons = count_reasons(&waiting);
    let reader = api.store.reader();
    let cargos = jobs::waiting_by_cargo(reader, filter.account).await?;
    let (data, total) = if let Some(reason) = reason {
        page(waiting, &filter, reason, requested)
    } else {
        let total = match &filter.cargo {
            Some(cargo) => cargos.get(cargo).copied().unwrap_or(0),
            None => cargos.values().sum(),
        };
        let mut data = jobs::waiting(reader, &filter, requested.limit, requested.offset).await?;
        for job in &mut data {
            job.waiting = api.execution.find(job.id).and_then(|handle| handle.waiting());
        }
        (data, total)
    };
    let data = data.into_iter().map(in_words).collect();
    Ok(Json(Queue { data, meta: PageMeta { total, ..requested }, reasons, cargos }))
}

fn reason(query: &Query) -> Result<Option<&str>, ApiError> {
    let Some(reason) = query.get("reason") else { return Ok(None) };
    if placement::is_reason(reason) {
        return Ok(Some(reason));
    }
    Err(ApiError::field(
        Code::ValidationError,
        "reason",
        "reason must be one that waiting jobs have, such as no_slot",
    ))
}

/// The names under which the reasons of a job are counted.
fn names(job: &WaitingJob) -> impl Iterator<Item = &str> {
    let reasons = job.waiting.as_ref();
    let none = reasons.is_some_and(BTreeMap::is_empty).then_some(placement::NO_ISLAND);
    reasons.into_iter().flat_map(BTreeMap::keys).map(String::as_str).chain(none)
}

/// Number of jobs with each reason.
fn count_reasons(waiting: &[WaitingJob]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in waiting.iter().flat_map(names) {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// A page of the jobs that wait for this reason, and their total number.
fn page(
    waiting: Vec<WaitingJob>,
    filter: &WaitingFilter,
    reason: &str,
    requested: PageMeta,
) -> (Vec<WaitingJob>, u64) {
    let is_wanted = |job: &WaitingJob| {
        filter.account.is_none_or(|account| account == job.account)
            && filter.cargo.as_ref().is_none_or(|cargo| *cargo == job.workload_slug)
            && names(job).any(|name| name == reason)
    };
    let mut found: Vec<WaitingJob> = waiting.into_iter().filter(is_wanted).collect();
    found.sort_by_key(|job| (std::cmp::Reverse(job.priority), job.created_at, job.id));
    let total = found.len() as u64;
    let skipped = usize::try_from(requested.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(requested.limit).unwrap_or(usize::MAX);
    (found.into_iter().skip(skipped).take(limit).collect(), total)
}

fn in_words(job: WaitingJob) -> WaitingJob {
    WaitingJob { waiting_reason: job.waiting.as_ref().map(placement::in_words), ..job }
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        ids::{AccountId, JobId},
        time::Timestamp,
    };
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn job(id: u128, priority: u8, at: i64, reasons: Option<&[&str]>) -> WaitingJob {
        WaitingJob {
            id: JobId(Uuid::from_u128(id)),
            account: AccountId(Uuid::from_u128(id % 2)),
            workload_slug: if id.is_multiple_of(3) { "echo" } else { "story" }.parse().expect("a slug"),
            priority,
            created_at: Timestamp::from_unix_ms(at),
            waiting: reasons.map(|names| names.iter().map(|name| ((*name).to_owned(), 1)).collect()),
            waiting_reason: None,
        }
    }

    #[test]
    fn a_job_counts_for_each_of_its_reasons() {
        let jobs = [
            job(1, 0, 0, Some(&["no_slot", "offline"])),
            job(2, 0, 0, Some(&["no_slot"])),
            job(3, 0, 0, Some(&[])),
            job(4, 0, 0, None),
        ];
        let counts = count_reasons(&jobs);
        let expected = [("no_island", 1), ("no_slot", 2), ("offline", 1)];
        assert_eq!(counts, expected.into_iter().map(|(name, n)| (name.to_owned(), n)).collect());
        assert!(counts.keys().all(|name| placement::is_reason(name)));
    }

    proptest! {
        /// The pages of a reason together are all jobs with it, each once, in the order of placement.
        #[test]
        fn pages_together_have_every_job_once(
            jobs in prop::collection::vec((0_u8..3, 0_i64..5, any::<bool>()), 0..40), limit in 1_u64..7,
        ) {
            let waiting: Vec<WaitingJob> = (0..)
                .zip(jobs)
                .map(|(id, (priority, at, is_busy))| {
                    job(id, priority, at, Some(if is_busy { &["no_slot"] } else { &["offline"] }))
                })
                .collect();
            let filter = WaitingFilter { account: None, cargo: Some("echo".parse().expect("a slug")) };
            let mut all = Vec::new();
            loop {
                let requested = PageMeta { total: 0, limit, offset: all.len() as u64 };
                let (page, total) = page(waiting.clone(), &filter, "no_slot", requested);
                prop_assert!(page.len() as u64 <= limit);
                if page.is_empty() {
                    prop_assert_eq!(total, all.len() as u64);
                    break;
                }
                all.extend(page);
            }
            let wanted = |job: &&WaitingJob| {
                job.workload_slug.as_str() == "echo" && names(job).any(|name| name == "no_slot")
            };
            prop_assert_eq!(all.len(), waiting.iter().filter(wanted).count());
            let order = |job: &WaitingJob| (std::cmp::Reverse(job.priority), job.created_at, job.id);
            prop_assert!(all.windows(2).all(|pair| order(&pair[0]) < order(&pair[1])));
        }
    }
}
