//! Following a job to its end: text as it comes, a bar while files and models load.

use std::process::ExitCode;

use anyhow::Result;
use island_coordinator_client::Client;
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
    job::Usage,
};
use serde_json::Value;

use crate::{
    failure::JOB_FAILED,
    output::{Output, Progress},
};

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Follow {
    /// Print text at the end instead of as it comes.
    pub(crate) whole: bool,
    /// Whether Ctrl-C cancels the job, or only stops following it.
    pub(crate) cancel_on_interrupt: bool,
}

/// Prints a job's events until it has ended; the exit code says how.
pub(crate) async fn follow(
    client: &Client,
    job: JobId,
    after: Option<u64>,
    how: Follow,
    output: &Output,
) -> Result<ExitCode> {
    let mut events = client.job_events(job, after);
    let mut printer = Printer::new(how.whole, output);
    loop {
        let event = tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return interrupted(client, job, how, &printer).await,
            event = events.next() => event,
        };
        let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
        if let Some(code) = printer.take(event?)? {
            return Ok(code);
        }
    }
}

async fn interrupted(client: &Client, job: JobId, how: Follow, printer: &Printer<'_>) -> Result<ExitCode> {
    printer.progress.clear();
    if how.cancel_on_interrupt {
        client.cancel_job(job).await?;
        printer.output.note("\ncancelled");
    } else {
        printer.output.note(&format!("\nthe job goes on: island jobs stream {job}"));
    }
    Ok(ExitCode::from(130))
}

struct Printer<'a> {
    output: &'a Output,
    progress: Progress,
    whole: bool,
    text: String,
}

impl<'a> Printer<'a> {
    fn new(whole: bool, output: &'a Output) -> Self {
        Self { output, progress: output.progress("waiting for an Island"), whole, text: String::new() }
    }

    /// Prints one event; the exit code once it was the last.
    fn take(&mut self, event: Numbered<JobEvent>) -> Result<Option<ExitCode>> {
        if self.output.is_json() && !self.whole {
            self.output.json_line(&event)?;
            return Ok(exit_code(&event.event));
        }
        let code = exit_code(&event.event);
        match event.event {
            JobEvent::Token { content } => self.text(&content),
            JobEvent::Status { state } => self.progress.say(&state),
            JobEvent::Progress { step, total, phase } => {
                self.progress.at(phase.as_deref().unwrap_or("working"), step, total);
            }
            JobEvent::Image(image) => {
                self.progress.clear();
                self.output.note(&format!("image: {} ({} bytes of base64)", image.format, image.data.len()));
            }
            JobEvent::Done { usage, output, .. } => self.done(usage, output)?,
            JobEvent::Error { error, code } => {
                self.end_line();
                self.output.error(&format!("the job did not complete: {error}"), Some(&code), None);
            }
        }
        Ok(code)
    }

    fn text(&mut self, content: &str) {
        self.progress.clear();
        self.text.push_str(content);
        if !self.whole {
            self.output.piece(content);
        }
    }

    fn done(&mut self, usage: Usage, result: Option<Value>) -> Result<()> {
        self.progress.clear();
        if self.output.is_json() {
            return self
                .output
                .json(&serde_json::json!({ "content": self.text, "output": result, "usage": usage }));
        }
        if self.whole {
            self.output.line(&self.text);
        } else {
            self.end_line();
        }
        if let Some(result) = result {
            self.output.line(&serde_json::to_string_pretty(&result)?);
        }
        let credits = usage.credits_used.map_or_else(String::new, |credits| format!(", {credits} credits"));
        self.output.note(&format!("[{} + {} tokens{credits}]", usage.prompt_tokens, usage.completion_tokens));
        Ok(())
    }

    fn end_line(&self) {
        self.progress.clear();
        if !self.whole && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.output.piece("\n");
        }
    }
}

fn exit_code(event: &JobEvent) -> Option<ExitCode> {
    match event {
        JobEvent::Done { .. } => Some(ExitCode::SUCCESS),
        JobEvent::Error { .. } => Some(ExitCode::from(JOB_FAILED)),
        _ => None,
    }
}
