//! `island auth login`.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};

use crate::{
    failure::Usage,
    output::Output,
    settings::{SavedSettings, Settings},
};

pub(super) async fn login(key: Option<String>, settings: &Settings, output: &Output) -> Result<()> {
    let key = match key {
        Some(key) => key,
        None => ask().context("read the key (or give it with --key)")?,
    };
    let key = key.trim().to_owned();
    if !key.starts_with("ak_") {
        return Err(Usage("a key begins with 'ak_'".into()).into());
    }
    // A key that does not work is not worth saving.
    let answer = settings.client_with(Some(key.clone()))?.account().answer().await?;
    super::save_key(key, settings, output)?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!(
        "Logged in as {}. The key is in {}.",
        answer.value.email,
        SavedSettings::path()?.display()
    ))?;
    super::warn_if_overridden(output);
    Ok(())
}

/// Read without echo on a terminal, otherwise as a line of standard input.
fn ask() -> io::Result<String> {
    if io::stdin().is_terminal() {
        return rpassword::prompt_password("API key: ");
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line)
}
