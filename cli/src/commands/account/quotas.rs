//! `island account quotas`.

use anyhow::Result;

use crate::{commands::quotas, output::Output, settings::Settings};

pub(super) async fn quotas(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.quotas().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    quotas::table_of_both(&answer.value, output)
}
