//! `island api-keys`.

mod create;
mod delete;
mod list;
mod quotas;

use anyhow::Result;

pub(super) use self::list::table;
use crate::{args::ApiKeys, output::Output, settings::Settings};

pub(super) async fn run(command: ApiKeys, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        ApiKeys::List => list::list(settings, output).await,
        ApiKeys::Create(wanted) => create::create(wanted, settings, output).await,
        ApiKeys::Quotas { key, change } => quotas::quotas(&key, &change, settings, output).await,
        ApiKeys::Delete { key } => delete::delete(&key, settings, output).await,
    }
}

/// Scopes as one word.
fn scopes(scopes: &[island_protocol_api::key::Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(",")
}
