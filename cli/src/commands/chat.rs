//! `island chat`: through the jobs API, so that the reply resumes after a dropped connection and loading is shown.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value};

use super::follow::{Follow, follow};
use crate::{args::Chat, output::Output, settings::Settings};

pub(crate) async fn run(options: Chat, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    let mut input = Map::new();
    input.insert("prompt".into(), options.prompt.into());
    input.insert("max_tokens".into(), options.max_tokens.into());
    if let Some(system) = options.system {
        input.insert("system_prompt".into(), system.into());
    }
    if let Some(temperature) = options.temperature {
        input.insert("temperature".into(), temperature.into());
    }
    let job = client.submit_job(&options.workload, Value::Object(input), 0).await?;
    let how = Follow { whole: options.no_stream, cancel_on_interrupt: true };
    follow(&client, job.id, None, how, output).await
}
