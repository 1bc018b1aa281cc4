//! `island workloads`.

mod get;
mod list;

use anyhow::Result;

use crate::{args::Workloads, output::Output, settings::Settings};

pub(super) async fn run(command: Workloads, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Workloads::List(filter) => list::list(&filter, settings, output).await,
        Workloads::Get { slug } => get::get(&slug, settings, output).await,
    }
}
