//! `island jobs`.

mod cancel;
mod delete_data;
mod get;
mod input;
mod list;
mod output;
mod submit;

use std::process::ExitCode;

use anyhow::Result;

use super::{
    follow::{Follow, follow},
    select,
};
use crate::{args::Jobs, output::Output, settings::Settings};

pub(super) async fn run(command: Jobs, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    match command {
        Jobs::Submit(options) => return submit::submit(options, &client, output).await,
        Jobs::Stream { job, after, output: images } => {
            let id = select::job(&client, &job).await?;
            let how = Follow { after, images, ..Follow::default() };
            return follow(&client, id, how, output).await;
        }
        Jobs::List(options) => list::list(&options, &client, output).await?,
        Jobs::Get { job, output: images } => {
            let id = select::job(&client, &job).await?;
            get::get(id, images.as_deref(), &client, output).await?;
        }
        Jobs::Output { job } => output::output(select::job(&client, &job).await?, &client, output).await?,
        Jobs::Cancel { job } => cancel::cancel(select::job(&client, &job).await?, &client, output).await?,
        Jobs::DeleteData { job } => {
            delete_data::delete_data(select::job(&client, &job).await?, &client, output).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
