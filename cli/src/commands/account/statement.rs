//! `island account statement`.

use anyhow::Result;

use crate::{args::StatementOptions, commands::statement, output::Output, settings::Settings};

pub(super) async fn statement(
    options: &StatementOptions,
    settings: &Settings,
    output: &Output,
) -> Result<()> {
    statement::show(&settings.client()?, None, options, output).await
}
