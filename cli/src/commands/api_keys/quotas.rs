//! `island api-keys quotas`.

use anyhow::Result;

use crate::{
    args::ChangeQuotas,
    commands::{quotas, select},
    output::Output,
    settings::Settings,
};

pub(super) async fn quotas(
    key: &str,
    change: &ChangeQuotas,
    settings: &Settings,
    output: &Output,
) -> Result<()> {
    let wanted = change.wanted()?;
    let client = settings.client()?;
    let id = select::key(&client, key).await?;
    let request = match wanted {
        Some(quotas) => client.set_quotas_of_key(id, &quotas),
        None => client.quotas_of_key(id),
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    quotas::table(&answer.value, output)
}
