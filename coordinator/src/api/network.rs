//! `GET /network/stats`.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use island_protocol::api::{Data, network::NetworkStats};
use tokio::time::Instant;

use super::{Api, ApiError};
use crate::storage::market;

/// Size of the network. Needs no key.
pub(super) async fn stats(State(api): State<Arc<Api>>) -> Result<Json<Data<NetworkStats>>, ApiError> {
    let context = api.execution.context();
    let mut online = context.fleet.views(Instant::now());
    online.retain(|view| view.status != "offline");
    let regions: BTreeSet<&str> = online.iter().filter_map(|view| view.region.as_deref()).collect();
    let data = NetworkStats {
        online_islands: online.len() as u64,
        regions: regions.len() as u64,
        jobs_completed: market::completed(context.store.reader()).await?,
    };
    Ok(Json(Data { data }))
}
