//! `island auth logout`.

use anyhow::Result;

use crate::{output::Output, settings::SavedSettings};

pub(super) fn logout(output: &Output) -> Result<()> {
    let mut saved = SavedSettings::read(output)?;
    let had_key = saved.api_key.take().is_some();
    if had_key {
        saved.write()?;
    }
    if output.is_json() {
        return output.json(&serde_json::json!({ "removed": had_key }));
    }
    output.line(if had_key { "Removed the saved key." } else { "There was no saved key." })?;
    if std::env::var_os("SERVICE_API_KEY").is_some_and(|value| !value.is_empty()) {
        output.warn("SERVICE_API_KEY is set and still in use");
    }
    Ok(())
}
