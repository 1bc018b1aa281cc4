//! `GET /island/recommendations`.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::ids::HostId;
use island_protocol_api::{
    problem::Code,
    recommendation::{Recommendation, Recommendations},
};

use crate::{Api, ApiError, http::query::Query};
use island_coordinator_domain::{catalogue::Cargo, placement};
use island_coordinator_storage::market::Demand;

/// The Cargos whose models an Island should download, highest demand first. Needs no key.
pub(crate) async fn recommendations(
    State(api): State<Arc<Api>>,
    query: Query,
) -> Result<Json<Recommendations>, ApiError> {
    let text = query
        .get("host_id")
        .ok_or_else(|| ApiError::field(Code::InvalidRequest, "host_id", "host_id is missing"))?;
    let host_id: HostId = text
        .parse()
        .map_err(|_| ApiError::field(Code::ValidationError, "host_id", "host_id must be a UUID"))?;
    let unknown = || ApiError::new(Code::HostNotFound, "there is no such Island");
    api.execution.account_and_key(host_id).await?.ok_or_else(unknown)?;
    let catalogue = api.catalogue();
    let able = api.fleet.inspect(host_id, |island| {
        let cargos = catalogue
            .iter()
            .filter(|cargo| !cargo.spec.artifacts.is_empty() && api.network.is_enabled(&cargo.entry.slug));
        // Without a registration the Island's hardware is unknown.
        let Some(island) = island else { return Vec::new() };
        cargos.filter(|cargo| placement::able(&cargo.spec, island).is_ok()).collect::<Vec<&Arc<Cargo>>>()
    });
    let able = able.ok_or_else(unknown)?;
    let demand = api.demands.get(&api).await?;
    let wanted = |cargo: &Cargo| demand.get(&cargo.entry.slug).copied().unwrap_or_default();
    let found = able.into_iter().filter_map(|cargo| recommend(cargo, wanted(cargo)));
    Ok(Json(Recommendations { host_id, recommendations: sorted(found.collect()) }))
}

fn recommend(cargo: &Cargo, demand: Demand) -> Option<Recommendation> {
    let artifacts = &cargo.spec.artifacts;
    let model = artifacts.iter().find(|file| file.name == "model").or(artifacts.first())?;
    Some(Recommendation {
        workload_slug: cargo.entry.slug.clone(),
        model_url: model.url.clone(),
        model_hash: model.sha256.map(|digest| digest.to_string()),
        runtime_type: cargo.entry.runtime_type.clone(),
        estimated_earnings_per_job: cargo.spec.usual_price().to_string(),
        queued_demand: demand.queued,
        demand_score: demand.score(),
        artifacts: artifacts.clone(),
    })
}

/// Highest demand first, then by name.
fn sorted(mut recommendations: Vec<Recommendation>) -> Vec<Recommendation> {
    recommendations
        .sort_by(|a, b| b.demand_score.cmp(&a.demand_score).then(a.workload_slug.cmp(&b.workload_slug)));
    recommendations
}
