//! Demand for Cargos, which all Islands request a few times an hour: counted once for all of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use island_protocol::ids::Slug;
use tokio::{sync::Mutex, time::Instant};

use crate::Api;
use island_coordinator_domain::{
    fleet::IslandSummary,
    placement::{self, Selection},
};
use island_coordinator_storage::{
    StoreError,
    market::{self, Demand, HOUR_MS, WaitingJobs},
};

/// Counts are reused for this many times what they cost, so that they take 2 % of the time at most.
const REUSE: u32 = 50;
/// Maximum age of the counts.
const MAX_AGE: Duration = Duration::from_mins(1);
/// Maximum number of kinds of requests whose preferences are compared with all Islands.
const MAX_SELECTIONS: u32 = 500;

pub(crate) type Demands = HashMap<Slug, Demand>;

#[derive(Debug)]
struct Counted {
    demands: Arc<Demands>,
    until: Instant,
}

/// The latest counts.
#[derive(Debug, Default)]
pub struct LatestDemands(Mutex<Option<Counted>>);

impl LatestDemands {
    /// Demand for each Cargo. Waiting jobs count if the preferences of their request allow an Island that could run them: others would be
    /// demand that no download can meet.
    pub(crate) async fn get(&self, api: &Api) -> Result<Arc<Demands>, StoreError> {
        // One request counts; others wait for it.
        let mut latest = self.0.lock().await;
        let begun = Instant::now();
        if let Some(counted) = latest.as_ref().filter(|counted| begun < counted.until) {
            return Ok(counted.demands.clone());
        }
        let demands = Arc::new(count(api, begun).await?);
        let until = begun + life(begun.elapsed());
        *latest = Some(Counted { demands: demands.clone(), until });
        Ok(demands)
    }
}

/// How long counts are used that cost this time.
fn life(cost: Duration) -> Duration {
    (cost * REUSE).min(MAX_AGE)
}

async fn count(api: &Api, now: Instant) -> Result<Demands, StoreError> {
    let reader = api.store.reader();
    let since = api.clock.now().plus_ms(-HOUR_MS);
    let mut demands = Demands::new();
    for (slug, completed) in market::completed_since(reader, since).await? {
        demands.entry(slug).or_default().completed = completed;
    }
    for waiting in market::waiting(reader, MAX_SELECTIONS).await? {
        if is_servable(api, &waiting, now) {
            demands.entry(waiting.slug).or_default().queued += waiting.jobs;
        }
    }
    Ok(demands)
}

/// Whether an Island that these jobs may run on has what their Cargo needs, whatever it does now.
fn is_servable(api: &Api, waiting: &WaitingJobs, now: Instant) -> bool {
    let Some((account, preferences)) = &waiting.selection else { return true };
    let Some(cargo) = api.catalogue().get(waiting.slug.as_str()).cloned() else { return false };
    let selection =
        Selection { account: Some(*account), preferences: preferences.clone(), ..Selection::default() };
    let snapshot = api.fleet.snapshot(now);
    let mut islands = snapshot.islands.iter().filter_map(IslandSummary::profile);
    islands.any(|island| selection.allows(&island) && placement::able(&cargo.spec, &island).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_used_for_fifty_times_their_cost() {
        assert_eq!(life(Duration::from_millis(2)), Duration::from_millis(100));
        assert_eq!(life(Duration::from_secs(5)), MAX_AGE);
    }
}
