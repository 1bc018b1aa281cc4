//! `GET /market/rates[/:slug]` and `GET /market/history/:slug`.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use island_protocol::{ids::Slug, time::Timestamp};
use island_protocol_api::{Data, market::MarketRate, problem::Code};
use tokio::time::Instant;

use crate::{
    Api, ApiError,
    http::{auth::Reader, segment::Segment},
};
use island_coordinator_domain::{catalogue::Cargo, placement};
use island_coordinator_storage::market::{HOUR_MS, Prices};

type Rates = Json<Data<Vec<MarketRate>>>;

/// Rates of all Cargos in the last 24 hours, by slug.
pub(crate) async fn rates(State(api): State<Arc<Api>>, _reader: Reader) -> Result<Rates, ApiError> {
    let catalogue = api.catalogue();
    let cargos: Vec<&Cargo> = catalogue.iter().map(AsRef::as_ref).collect();
    Ok(Json(Data { data: rates_of(&api, &cargos).await? }))
}

/// Rate of one Cargo, as a list of one element, as existing clients expect.
pub(crate) async fn rate(
    State(api): State<Arc<Api>>,
    _reader: Reader,
    Segment(slug): Segment,
) -> Result<Rates, ApiError> {
    let cargo = known(&api, &slug)?;
    Ok(Json(Data { data: rates_of(&api, &[&cargo]).await? }))
}

/// Rates of a Cargo in each hour of the last 7 days in which one of its jobs settled, oldest first.
pub(crate) async fn history(
    State(api): State<Arc<Api>>,
    _reader: Reader,
    Segment(slug): Segment,
) -> Result<Rates, ApiError> {
    let cargo = known(&api, &slug)?;
    let now = api.clock.now();
    let since = now.plus_ms(-7 * 24 * HOUR_MS);
    let hours = api.market.hours(api.store.reader(), &cargo.entry.slug, now, since).await?;
    let data = hours.into_iter().map(|hour| record(&cargo, Some(hour.prices), hour.hosts, hour.begins));
    Ok(Json(Data { data: data.collect() }))
}

fn known(api: &Api, slug: &str) -> Result<Arc<Cargo>, ApiError> {
    let cargo = api.catalogue().get(slug).cloned();
    cargo.ok_or_else(|| ApiError::new(Code::WorkloadNotFound, "there is no such Cargo"))
}

async fn rates_of(api: &Api, cargos: &[&Cargo]) -> Result<Vec<MarketRate>, ApiError> {
    let now = api.clock.now();
    let prices: HashMap<Slug, Prices> =
        api.market.prices(api.store.reader(), now, now.plus_ms(-24 * HOUR_MS)).await?;
    let hosts = able_hosts(api, cargos);
    let records = cargos
        .iter()
        .zip(hosts)
        .map(|(cargo, hosts)| record(cargo, prices.get(&cargo.entry.slug).copied(), hosts, now));
    Ok(records.collect())
}

/// Number of online Islands that could serve each Cargo, regardless of their load.
fn able_hosts(api: &Api, cargos: &[&Cargo]) -> Vec<u64> {
    let snapshot = api.fleet.snapshot(Instant::now());
    let count = |cargo: &&Cargo| {
        snapshot.count(&cargo.entry.slug, |island| placement::able(&cargo.spec, island).is_ok())
    };
    cargos.iter().map(count).collect()
}

fn record(cargo: &Cargo, prices: Option<Prices>, num_hosts: u64, timestamp: Timestamp) -> MarketRate {
    let list = cargo.spec.usual_price();
    let prices = prices.unwrap_or(Prices { avg: list, min: list, max: list, jobs: 0 });
    MarketRate {
        workload_slug: cargo.entry.slug.clone(),
        avg_price: prices.avg,
        min_price: prices.min,
        max_price: prices.max,
        num_hosts,
        num_jobs: prices.jobs,
        timestamp,
    }
}
