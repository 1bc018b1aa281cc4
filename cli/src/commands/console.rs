//! `island console`.

use anyhow::Result;
use serde_json::json;

use crate::{output::Output, settings::Settings};

/// Prints a link that signs a browser in. It contains no key, and is useless once it was used.
pub(super) async fn run(settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let link = client.sign_in_link().await?;
    let address = client.console_address(&link);
    if output.is_json() {
        return output.json_line(&json!({"url": address, "expires_at": link.expires_at}));
    }
    output.line(&address)
}
