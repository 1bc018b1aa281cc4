//! `island signup`.

use anyhow::{Context, Result};
use island_protocol_api::signup;

use crate::{
    args::SignUp,
    commands::auth,
    output::{Output, text},
    settings::{SavedSettings, Settings},
};

pub(super) async fn run(wanted: SignUp, settings: &Settings, output: &Output) -> Result<()> {
    let body = signup::SignUp { email: wanted.email, code: wanted.code };
    let answer = settings.client_with(None)?.sign_up(&body).answer().await?;
    let signed_up = answer.value;
    let saved = auth::save_key(signed_up.key.clone(), settings, output);
    if output.is_json() {
        output.json(&answer.body)?;
        return saved;
    }
    if saved.is_err() {
        // Nobody else has it.
        output.line(&signed_up.key)?;
        return saved.context("save the key of the new account, which is printed instead");
    }
    let account = signed_up.data;
    output.line(&format!(
        "Signed up as {} with {}. The key is in {}.",
        account.email,
        text::amount(account.credits),
        SavedSettings::path()?.display()
    ))?;
    auth::warn_if_overridden(output);
    Ok(())
}
