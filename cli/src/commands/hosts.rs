//! `island hosts`.

mod alerts;
mod get;
mod karma;
mod list;
mod order;
mod pair;

use anyhow::Result;
use island_protocol::host::Order;

use crate::{args::Hosts, output::Output, settings::Settings};

pub(super) async fn run(command: Hosts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Hosts::List => list::list(settings, output).await,
        Hosts::Get { host } => get::get(&host, settings, output).await,
        Hosts::Karma { host } => karma::karma(&host, settings, output).await,
        Hosts::Alerts => alerts::alerts(settings, output).await,
        Hosts::Pause { host } => order::order(&host, Order::Pause, settings, output).await,
        Hosts::Drain { host } => order::order(&host, Order::Drain, settings, output).await,
        Hosts::Resume { host } => order::order(&host, Order::Resume, settings, output).await,
        Hosts::Pair { code } => pair::pair(&code, settings, output).await,
    }
}
