//! `island chat`: through the jobs API, so that the reply resumes after a dropped connection and loading is shown.

use std::{io::Read, process::ExitCode};

use anyhow::{Context, Result};
use island_coordinator_client::{Client, ClientError};
use island_protocol::{cargo::Category, ids::Slug};
use island_protocol_api::problem::Code;
use serde_json::{Map, Value};

use super::follow::{Follow, follow};
use crate::{
    args::Chat,
    failure::{NotAChat, Usage},
    output::Output,
    settings::Settings,
};

pub(super) async fn run(options: Chat, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let client = settings.client()?;
    let whole = options.no_stream;
    let workload = options.workload.clone();
    let job = match client.submit_job(workload.as_str(), input(options)?, 0).await {
        Ok(job) => job,
        Err(error) => return Err(explained(&client, workload, error).await),
    };
    let how = Follow { whole, cancel: true, ..Follow::default() };
    follow(&client, job.id, how, output).await
}

/// A Cargo without chat rejects the fields of a chat one by one; the useful message is that it does not chat.
async fn explained(client: &Client, slug: Slug, error: ClientError) -> anyhow::Error {
    if error.code() == Some(Code::InvalidInput.as_str())
        && let Ok(workload) = client.workload(slug.as_str()).await
        && workload.entry.category.is_some_and(|category| category != Category::Llm)
    {
        return NotAChat(slug).into();
    }
    error.into()
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
    let mut prompt = text;
    if prompt == "-" {
        prompt.clear();
        std::io::stdin().read_to_string(&mut prompt).context("read the prompt from standard input")?;
    }
    if prompt.trim().is_empty() {
        return Err(Usage("the prompt is empty".into()).into());
    }
    Ok(prompt)
}
