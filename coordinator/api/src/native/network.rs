//! `GET /network/stats` and `GET /network/notices`.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use island_protocol_api::{
    Data,
    network::{NetworkNotices, NetworkStats},
};
use tokio::time::Instant;

use crate::{Api, ApiError};
use island_coordinator_domain::fleet::IslandSummary;
use island_coordinator_storage::market;

/// Size of the network. Needs no key.
pub(crate) async fn stats(State(api): State<Arc<Api>>) -> Result<Json<Data<NetworkStats>>, ApiError> {
    let snapshot = api.fleet.snapshot(Instant::now());
    let online: Vec<&IslandSummary> =
        snapshot.islands.iter().filter(|island| island.status != "offline").collect();
    let regions: BTreeSet<&str> = online.iter().filter_map(|island| island.region.as_deref()).collect();
    let data = NetworkStats {
        online_islands: online.len() as u64,
        regions: regions.len() as u64,
        jobs_completed: market::completed(api.store.reader()).await?,
    };
    Ok(Json(Data { data }))
}

/// What operators want everybody to know. Needs no key.
pub(crate) async fn notices(State(api): State<Arc<Api>>) -> Json<Data<NetworkNotices>> {
    Json(Data { data: api.network.view(api.clock.now()) })
}
