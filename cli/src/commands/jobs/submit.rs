//! `island jobs submit`.

use std::process::ExitCode;

use anyhow::Result;
use island_coordinator_client::Client;

use super::input;
use crate::{
    args::Submit,
    commands::follow::{Follow, follow},
    output::Output,
};

pub(super) async fn submit(options: Submit, client: &Client, output: &Output) -> Result<ExitCode> {
    let input = input::read(options.input.as_deref(), options.image.as_deref(), &options.files)?;
    let request = client.submit_job(options.workload.as_str(), input, options.priority);
    let answer = request.answer().await?;
    if options.stream {
        if output.is_json() {
            // Programs need the id to come back to the job.
            output.json_line(&answer.body)?;
        }
        let how = Follow { images: options.output, ..Follow::default() };
        return follow(client, answer.value.id, how, output).await;
    }
    if output.is_json() {
        output.json(&answer.body)?;
    } else {
        output.line(&answer.value.id.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
