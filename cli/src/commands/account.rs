//! `island account`.

use anyhow::Result;

use crate::{output::Output, settings::Settings};

pub(crate) async fn show(settings: &Settings, output: &Output) -> Result<()> {
    let account = settings.client()?.account().await?;
    if output.is_json() {
        return output.json(&account);
    }
    output.fields(&[
        ("Email", account.email),
        ("Id", account.id.to_string()),
        ("Credits", format!("{:.2}", account.credits.0 as f64 / 1e6)),
    ]);
    Ok(())
}
