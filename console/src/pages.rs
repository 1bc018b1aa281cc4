//! The pages, one module for each noun.

mod admin;
mod cargos;
mod chat;
mod home;
mod islands;
mod jobs;
mod keys;
mod ledger;
mod market;
mod network;
mod publications;
mod sign_in;
mod usage;

use std::sync::Arc;

use axum::{
    Router,
    response::Response,
    routing::{get, post},
};
use island_protocol::{
    cargo::{CargoEntry, PriceUnit, TokenPrices},
    credits::MicroCredits,
    job::JobStatus,
};

use crate::{
    session,
    texts::{fill, t},
    view::Tone,
    web::{self, Console, Visit},
};

/// The prices of a Cargo: of a job or its unit, and of 1,000 tokens of prompts and replies if they have prices.
fn prices(cargo: &CargoEntry) -> String {
    let TokenPrices { price_per_1k_input, price_per_1k_output } = cargo.token_prices;
    if cargo.token_prices.is_zero() {
        let price = cargo.price_per_job.to_string();
        return match cargo.price_unit {
            PriceUnit::Job => price,
            PriceUnit::Image => format!("{price} {}", t("cargos.per_image")),
            PriceUnit::Minute => format!("{price} {}", t("cargos.per_minute")),
        };
    }
    let tokens = format!("{price_per_1k_input} + {price_per_1k_output} {}", t("cargos.per_tokens"));
    if cargo.price_per_job.is_zero() { tokens } else { format!("{} + {tokens}", cargo.price_per_job) }
}

/// All routes except those of the assets.
pub(crate) fn routes() -> Router<Arc<Console>> {
    Router::new()
        .route("/", get(home::page))
        .route("/console", get(home::begin))
        .route("/console/sign-in", get(sign_in::page).post(sign_in::with_key))
        .route("/console/sign-in/invitation", post(sign_in::with_invitation))
        .route("/console/sign-in/link", get(sign_in::link).post(sign_in::with_link))
        .route("/console/sign-in/provider", post(sign_in::with_provider))
        .route(session::SIGNED_IN, get(sign_in::provider_end))
        .route("/console/sign-out", post(sign_in::sign_out))
        .route(session::LINKS, post(sign_in::offer))
        .route("/console/chat", get(chat::page))
        .route("/console/cargos", get(cargos::list))
        .route("/console/cargos/{slug}", get(cargos::get).post(cargos::submit))
        .route("/console/jobs", get(jobs::list).post(jobs::create))
        .route("/console/jobs/{id}", get(jobs::get))
        .route("/console/jobs/{id}/stream", get(jobs::stream))
        .route("/console/jobs/{id}/part", get(jobs::part))
        .route("/console/jobs/{id}/output", get(jobs::output))
        .route("/console/jobs/{id}/cancel", post(jobs::cancel))
        .route("/console/jobs/{id}/delete", post(jobs::delete))
        .route("/console/usage", get(usage::page))
        .route("/console/earnings", get(usage::earnings))
        .route("/console/ledger", get(ledger::page))
        .route("/console/ledger/statement.csv", get(ledger::csv))
        .route("/console/keys", get(keys::page).post(keys::create))
        .route("/console/keys/{id}/revoke", post(keys::revoke))
        .route("/console/publications", get(publications::list).post(publications::submit))
        .route("/console/publications/{id}", get(publications::get))
        .route("/console/publications/{id}/withdraw", post(publications::withdraw))
        .route("/console/islands", get(islands::list).post(islands::pair))
        .route("/console/islands/{id}", get(islands::get))
        .route("/console/islands/{id}/{verb}", post(islands::order))
        .route("/console/market", get(market::list))
        .route("/console/market/{slug}", get(market::history))
        .route("/console/network", get(network::page))
        .route("/console/{*rest}", get(missing))
        .merge(admin::routes())
}

/// An address below `/console` that leads nowhere.
async fn missing(visit: Visit) -> Response {
    match visit.who().await {
        Ok(who) => web::not_found(&visit, who.as_ref()),
        Err(failure) => web::failed(&visit, None, failure, "/"),
    }
}

/// The badge of a job's status.
fn status(status: JobStatus) -> (Tone, String) {
    let tone = match status {
        JobStatus::Completed => Tone::Good,
        JobStatus::Failed | JobStatus::Timeout => Tone::Bad,
        JobStatus::Cancelled | JobStatus::Pending => Tone::Warn,
        _ => Tone::Plain,
    };
    (tone, t(&format!("status.{status}")).to_owned())
}

/// Milliseconds for people.
fn duration(ms: u64) -> String {
    let (seconds, minutes) = ((ms / 1000 % 60).to_string(), ms / 60_000);
    match ms {
        0..1_000 => fill("unit.milliseconds", &[("value", &ms.to_string())]),
        1_000..60_000 => fill("unit.seconds", &[("value", &format!("{:.1}", ms as f64 / 1000.0))]),
        60_000..3_600_000 => {
            fill("unit.minutes", &[("minutes", &minutes.to_string()), ("seconds", &seconds)])
        }
        _ => fill(
            "unit.hours",
            &[("hours", &(minutes / 60).to_string()), ("minutes", &(minutes % 60).to_string())],
        ),
    }
}

/// Megabytes for people.
fn megabytes(mb: u64) -> String {
    match mb {
        0 => t("unit.less").to_owned(),
        1..1024 => fill("unit.megabytes", &[("value", &mb.to_string())]),
        _ => fill("unit.gigabytes", &[("value", &format!("{:.1}", mb as f64 / 1024.0))]),
    }
}

/// A part of a memory and the whole, in the unit of the whole.
fn megabytes_of(part: u64, whole: u64) -> String {
    if whole < 1024 {
        return fill("unit.megabytes", &[("value", &format!("{part} / {whole}"))]);
    }
    let (part, whole) = (part as f64 / 1024.0, whole as f64 / 1024.0);
    fill("unit.gigabytes", &[("value", &format!("{part:.1} / {whole:.1}"))])
}

/// Credits as a number for a plot.
fn amount(credits: MicroCredits) -> f64 {
    credits.0 as f64 / 1e6
}
