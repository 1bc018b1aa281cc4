//! `island auth`.

mod browser;
mod login;
mod logout;
mod status;

use anyhow::Result;

use crate::{
    args::Auth,
    output::Output,
    settings::{SavedSettings, Settings},
};

pub(super) async fn run(command: Auth, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Auth::Login { browser: true, .. } => browser::login(settings, output).await,
        Auth::Login { key, .. } => login::login(key, settings, output).await,
        Auth::Status => status::status(settings, output).await,
        Auth::Logout => logout::logout(output),
    }
}

/// Saves a key with the address of its coordinator.
pub(super) fn save_key(key: String, settings: &Settings, output: &Output) -> Result<()> {
    let mut saved = SavedSettings::read(output)?;
    saved.api_key = Some(key);
    saved.api_url = Some(settings.api_url.clone());
    if settings.allow_plaintext {
        saved.allow_plaintext = Some(true);
    }
    saved.write()
}

/// Warns if the saved key is not the one in use.
pub(super) fn warn_if_overridden(output: &Output) {
    if std::env::var_os("SERVICE_API_KEY").is_some_and(|value| !value.is_empty()) {
        output.warn("SERVICE_API_KEY is set and overrides the saved key");
    }
}
