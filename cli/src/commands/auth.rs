//! `island auth`.

mod login;
mod logout;
mod status;

use anyhow::Result;

use crate::{args::Auth, output::Output, settings::Settings};

pub(super) async fn run(command: Auth, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Auth::Login { key } => login::login(key, settings, output).await,
        Auth::Status => status::status(settings, output).await,
        Auth::Logout => logout::logout(output),
    }
}
