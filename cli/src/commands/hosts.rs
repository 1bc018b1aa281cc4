//! `island hosts`.

mod get;
mod karma;
mod list;
mod pair;

use anyhow::Result;

use crate::{args::Hosts, output::Output, settings::Settings};

pub(super) async fn run(command: Hosts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Hosts::List => list::list(settings, output).await,
        Hosts::Get { host } => get::get(&host, settings, output).await,
        Hosts::Karma { host } => karma::karma(&host, settings, output).await,
        Hosts::Pair { code } => pair::pair(&code, settings, output).await,
    }
}
