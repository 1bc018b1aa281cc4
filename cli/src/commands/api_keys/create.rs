//! `island api-keys create`.

use anyhow::{Result, bail};
use island_protocol::time::Timestamp;
use island_protocol_api::{key, quota::Quotas};
use serde_json::json;

use super::scopes;
use crate::{
    args::{CreateKey, quotas},
    output::{Output, text::now},
    settings::Settings,
};

pub(super) async fn create(wanted: CreateKey, settings: &Settings, output: &Output) -> Result<()> {
    let body = body(wanted, now())?;
    let answer = settings.client()?.create_api_key(&body).answer().await?;
    let created = &answer.value;
    let Some(secret) = &created.key else {
        // The first answer was lost in transit, and a secret is returned only once.
        let id = created.data.id;
        bail!(
            "key {id} was created, but its secret was lost on the way: `island api-keys delete {id}`, then create another"
        );
    };
    if output.is_json() {
        output.json(&answer.body)?;
    } else {
        output.line(secret)?;
    }
    let data = &created.data;
    output.note(&format!("created '{}' ({}, {})", data.name, scopes(&data.scopes), data.id));
    output.warn("this is the only time the key is shown: keep it safe");
    Ok(())
}

fn body(wanted: CreateKey, now: Timestamp) -> Result<key::CreateKey> {
    let quotas = quotas(&wanted.quotas)?;
    Ok(key::CreateKey {
        name: wanted.name,
        scopes: (!wanted.scopes.is_empty()).then(|| json!(wanted.scopes)),
        expires_at: wanted.expires.map(|expiry| expiry.moment(now)),
        spend_cap: wanted.spend_cap,
        quotas: (quotas != Quotas::default()).then_some(quotas),
    })
}
