//! `GET /hosts/:id/advice`: which one change would have earned an Island more yesterday.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol_api::{Data, advice::Advice};
use tokio::time::Instant;

use super::control::own;
use crate::{
    Api, ApiError,
    http::{auth::Caller, segment::Segment},
};
use island_coordinator_domain::{
    fleet::IslandSummary,
    placement::{DayOfCargo, improvements},
};
use island_coordinator_storage::market::{self, DayDemand};

const DAY_MS: i64 = 24 * 3_600_000;

/// The changes of an Island of the caller's account, by what they would have earned with yesterday's demand.
pub(crate) async fn advice(
    State(api): State<Arc<Api>>,
    caller: Caller,
    id: Segment,
) -> Result<Json<Data<Advice>>, ApiError> {
    let host_id = own(&api, caller, &id.0).await?;
    let until = api.clock.now().day_begin();
    let from = until.plus_ms(-DAY_MS);
    let demand = market::of_day(api.store.reader(), from, until).await?;
    let catalogue = api.catalogue();
    let cargos = catalogue.iter().filter(|cargo| api.network.is_enabled(&cargo.entry.slug));
    let day: Vec<DayOfCargo<'_>> = cargos
        .filter_map(|cargo| {
            let DayDemand { jobs, earned, hosts, unmet } = *demand.get(&cargo.entry.slug)?;
            Some(DayOfCargo { cargo: &cargo.spec, jobs, earned, hosts, unmet })
        })
        .collect();
    // In a snapshot, so that placement does not wait. An Island that has not registered has no hardware that could be judged.
    let snapshot = api.fleet.snapshot(Instant::now());
    let island =
        snapshot.islands.iter().find(|island| island.id() == host_id).and_then(IslandSummary::profile);
    let improvements = island.map(|island| improvements(&day, &island)).unwrap_or_default();
    Ok(Json(Data { data: Advice { host_id, from, until, improvements } }))
}
