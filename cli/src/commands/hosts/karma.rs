//! `island hosts karma`.

use anyhow::Result;

use super::get;
use crate::{commands::select, output::Output, settings::Settings};

pub(super) async fn karma(host: &str, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let id = select::host(&client, host).await?;
    let answer = client.host_karma(id).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&get::karma(answer.value.karma))
}
