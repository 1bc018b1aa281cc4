//! `island account`.

use anyhow::Result;

use crate::{
    output::{Output, text::credits},
    settings::Settings,
};

pub(super) async fn show(settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.account().answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let account = answer.value;
    output.fields(&[
        ("Email", account.email),
        ("Id", account.id.to_string()),
        ("Credits", credits(account.credits)),
    ])
}
