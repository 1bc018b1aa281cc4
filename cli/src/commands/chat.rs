//! `island chat`: through the jobs API, so that the reply resumes after a dropped connection and loading is shown.

use std::{io::Read, process::ExitCode};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::follow::{Follow, follow};
use crate::{args::Chat, output::Output, settings::Settings};

pub(super) async fn run(options: Chat, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    let whole = options.no_stream;
    let workload = options.workload.clone();
    let job = client.submit_job(workload.as_str(), input(options)?, 0).await?;
    let how = Follow { whole, cancel_on_interrupt: true, ..Follow::default() };
    follow(&client, job.id, how, output).await
}

fn input(options: Chat) -> Result<Value> {
    let mut input = Map::new();
    input.insert("prompt".into(), prompt(options.prompt)?.into());
    input.insert("max_tokens".into(), options.max_tokens.into());
    if let Some(system) = options.system {
        input.insert("system_prompt".into(), system.into());
    }
    if let Some(temperature) = options.temperature {
        input.insert("temperature".into(), temperature.into());
    }
    Ok(Value::Object(input))
}

fn prompt(text: String) -> Result<String> {
    if text != "-" {
        return Ok(text);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("read the prompt from standard input")?;
    Ok(text)
}
