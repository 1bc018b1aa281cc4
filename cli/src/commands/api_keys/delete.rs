//! `island api-keys delete`.

use anyhow::Result;

use crate::{commands::select, output::Output, settings::Settings};

pub(super) async fn delete(key: &str, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::key(&client, key).await?;
    let answer = client.revoke_api_key(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} deleted", answer.value.id))
}
