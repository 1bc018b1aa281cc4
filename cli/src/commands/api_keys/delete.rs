//! `island api-keys delete`.

use anyhow::Result;
use island_protocol::ids::ApiKeyId;

use crate::{output::Output, settings::Settings};

pub(super) async fn delete(id: ApiKeyId, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.revoke_api_key(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} deleted", answer.value.id))
}
