//! `island auth status`.

use anyhow::Result;

use crate::{
    output::{Output, text::credits},
    settings::Settings,
};

pub(super) async fn status(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.account().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let account = answer.value;
    output.fields(&[
        ("Email", account.email),
        ("Credits", credits(account.credits)),
        ("Coordinator", settings.api_url.clone()),
        ("Key from", settings.api_key_source.to_string()),
    ])
}
