//! `island hosts pair`.

use anyhow::Result;

use crate::{output::Output, settings::Settings};

pub(super) async fn pair(code: &str, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.pair_host(code).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!(
        "{} ({}) is yours now; what it earns goes to your account.",
        answer.value.name, answer.value.id
    ))
}
