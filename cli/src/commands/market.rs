//! `island market`.

mod history;
mod rates;

use anyhow::Result;

use crate::{args::Market, output::Output, settings::Settings};

pub(super) async fn run(command: Market, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Market::Rates { slug } => rates::rates(slug, settings, output).await,
        Market::History { slug } => history::history(&slug, settings, output).await,
    }
}
