//! `island api-keys list`.

use anyhow::Result;

use super::scopes;
use crate::{
    output::{
        Output,
        text::{credits, or_dash},
    },
    settings::Settings,
};

pub(super) async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.api_keys().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.iter().map(|key| {
        let cap = key.spend_cap.map_or_else(|| "-".into(), credits);
        vec![
            key.id.to_string(),
            key.name.clone(),
            key.prefix.clone(),
            scopes(&key.scopes),
            key.created_at.to_string(),
            or_dash(key.last_used_at),
            or_dash(key.expires_at),
            format!("{} / {cap}", credits(key.spent)),
        ]
    });
    let header = ["id", "name", "prefix", "scopes", "created", "last used", "expires", "spent / cap"];
    output.table(&header, rows.collect(), "No keys.")
}
