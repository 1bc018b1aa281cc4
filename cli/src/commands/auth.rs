//! `island auth`.

use anyhow::{Context, Result, bail};
use island_coordinator_client::Client;

use crate::{
    args::Auth,
    output::Output,
    settings::{SavedSettings, Settings},
};

pub(crate) async fn run(command: Auth, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Auth::Login { key } => login(key, settings, output).await,
        Auth::Status => status(settings, output).await,
        Auth::Logout => logout(output),
    }
}

async fn login(key: Option<String>, settings: &Settings, output: &Output) -> Result<()> {
    let key = match key {
        Some(key) => key,
        None => rpassword::prompt_password("API key: ").context("read the key (or give it with --key)")?,
    };
    let key = key.trim().to_owned();
    if !key.starts_with("ak_") {
        bail!("a key begins with 'ak_'");
    }
    // A key that does not work is not worth saving.
    let account = Client::new(&settings.api_url, Some(key.clone()))?.account().await?;
    let mut saved = SavedSettings::read()?;
    saved.api_key = Some(key);
    saved.api_url = Some(settings.api_url.clone());
    saved.write()?;
    if output.is_json() {
        return output.json(&account);
    }
    output.line(&format!(
        "Logged in as {}. The key is in {}.",
        account.email,
        SavedSettings::path()?.display()
    ));
    Ok(())
}

async fn status(settings: &Settings, output: &Output) -> Result<()> {
    let account = settings.client()?.account().await?;
    if output.is_json() {
        return output.json(&account);
    }
    let credits = format!("{:.2}", account.credits.0 as f64 / 1e6);
    output.fields(&[
        ("Email", account.email),
        ("Credits", credits),
        ("Coordinator", settings.api_url.clone()),
    ]);
    Ok(())
}

fn logout(output: &Output) -> Result<()> {
    let mut saved = SavedSettings::read()?;
    let had_key = saved.api_key.take().is_some();
    if had_key {
        saved.write()?;
    }
    if output.is_json() {
        return output.json(&serde_json::json!({ "removed": had_key }));
    }
    output.line(if had_key { "Removed the saved key." } else { "There was no saved key." });
    Ok(())
}
