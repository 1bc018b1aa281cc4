//! `island network`.

mod notices;
mod stats;

use anyhow::Result;

pub(super) use self::notices::{announce, announcements};
use crate::{args::Network, output::Output, settings::Settings};

pub(super) async fn run(command: Network, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Network::Stats => stats::stats(settings, output).await,
        Network::Notices => notices::notices(settings, output).await,
    }
}
