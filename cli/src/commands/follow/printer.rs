//! Printing one job's events.

use std::process::ExitCode;

use anyhow::Result;
use island_protocol::{
    event::{Image, JobEvent, Numbered},
    ids::JobId,
    job::Usage,
};
use serde_json::{Value, json};

use super::Follow;
use crate::{
    commands::images,
    failure::FAILED,
    output::{Output, Progress, text::amount},
};

pub(super) struct Printer<'a> {
    job: JobId,
    how: &'a Follow,
    output: &'a Output,
    progress: Progress,
    /// Whether no Island has taken the job yet, as far as the events show.
    is_waiting: bool,
    /// The reasons that were shown last.
    reasons: String,
    text: String,
    images: usize,
}

impl<'a> Printer<'a> {
    pub(super) fn new(job: JobId, how: &'a Follow, output: &'a Output) -> Self {
        let progress = output.progress("waiting for an Island");
        Self {
            job,
            how,
            output,
            progress,
            is_waiting: true,
            reasons: String::new(),
            text: String::new(),
            images: 0,
        }
    }

    /// Whether no Island has taken the job yet, as far as the events show.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Shows why the job is waiting: in the spinner, or without a terminal once on standard error.
    pub(super) fn waiting(&mut self, reasons: &str) {
        let ends = if self.how.cancel { "Ctrl-C cancels" } else { "Ctrl-C stops following" };
        let message = format!("waiting: {reasons}; {ends}");
        if self.progress.is_shown() {
            self.progress.set_message(&message);
        } else if self.reasons != reasons {
            self.output.note(&message);
        }
        reasons.clone_into(&mut self.reasons);
    }

    /// Prints one event; the exit code once it was the last.
    pub(super) fn take(&mut self, event: Numbered<JobEvent>) -> Result<Option<ExitCode>> {
        let code = exit_code(&event.event);
        self.is_waiting = matches!(&event.event, JobEvent::Status { state, .. } if matches!(&**state, "submitted" | "pending"));
        if self.output.is_json() && !self.how.whole {
            self.output.json_line(&event)?;
            if let JobEvent::Image(image) = &event.event {
                self.image(event.n, image)?;
            }
            return Ok(code);
        }
        match event.event {
            JobEvent::Token { reasoning: true, .. } => self.progress.set_message("reasoning"),
            JobEvent::Token { content, reasoning: false, .. } => self.text(&content)?,
            JobEvent::Status { state, .. } => self.progress.set_message(waiting_for(&state)),
            JobEvent::Progress { step, total, phase } => {
                self.progress.at(phase.as_deref().unwrap_or("working"), step, total);
            }
            JobEvent::Image(image) => self.image(event.n, &image)?,
            JobEvent::Done { usage, output, .. } => self.done(usage, output)?,
            JobEvent::Error { error, code } => self.failed(&error, &code)?,
        }
        Ok(code)
    }

    pub(super) fn clear(&self) {
        self.progress.clear();
    }

    fn text(&mut self, content: &str) -> Result<()> {
        self.progress.clear();
        self.text.push_str(content);
        if self.how.whole { Ok(()) } else { self.output.piece(content) }
    }

    fn image(&mut self, n: u64, image: &Image) -> Result<()> {
        self.progress.clear();
        self.images += 1;
        match &self.how.images {
            Some(folder) => {
                let path = images::save(folder, self.job, n, image)?;
                self.output.note(&format!("saved {}", path.display()));
            }
            None => self.output.note(&format!(
                "image {n} ({}); to save it: island jobs stream {} --output DIR",
                image.format, self.job
            )),
        }
        Ok(())
    }

    fn done(&mut self, usage: Usage, result: Option<Value>) -> Result<()> {
        self.progress.clear();
        if self.output.is_json() {
            return self.output.json(&json!({
                "job_id": self.job, "status": "completed", "content": self.text, "output": result, "usage": usage,
            }));
        }
        if self.how.whole {
            self.output.line(&self.text)?;
        } else {
            self.end_line()?;
        }
        if let Some(result) = result {
            self.result(&result)?;
        }
        if let Some(summary) = summary(&usage) {
            self.output.note(&format!("[{summary}]"));
        }
        Ok(())
    }

    fn result(&self, result: &Value) -> Result<()> {
        // Images that came as events are saved already.
        if let (Some(folder), 0) = (&self.how.images, self.images) {
            for path in images::save_all(folder, self.job, result)? {
                self.output.note(&format!("saved {}", path.display()));
            }
        }
        self.output.line(&serde_json::to_string_pretty(&images::without_bytes(result))?)
    }

    fn failed(&self, error: &str, code: &str) -> Result<()> {
        self.end_line()?;
        if self.output.is_json() {
            let error = json!({ "code": code, "message": error });
            return self.output.json(&json!({ "job_id": self.job, "content": self.text, "error": error }));
        }
        self.output.warn(&format!("the job did not complete: {error} ({code})"));
        self.output.note(&format!("  see: island jobs get {}", self.job));
        Ok(())
    }

    fn end_line(&self) -> Result<()> {
        self.progress.clear();
        let is_open = !self.how.whole && !self.text.is_empty() && !self.text.ends_with('\n');
        if is_open { self.output.piece("\n") } else { Ok(()) }
    }
}

/// Tokens, where the Cargo counts them, and credits.
fn summary(usage: &Usage) -> Option<String> {
    let Usage { prompt_tokens, completion_tokens, .. } = *usage;
    let has_tokens = prompt_tokens + completion_tokens > 0;
    let tokens = has_tokens.then(|| format!("{prompt_tokens} + {completion_tokens} tokens"));
    let parts: Vec<String> = tokens.into_iter().chain(usage.credits_used.map(amount)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn waiting_for(state: &str) -> &str {
    match state {
        "submitted" | "pending" => "waiting for an Island",
        "queued" => "an Island is preparing",
        "running" => "waiting for the first output",
        "rate_limited" => {
            "an Island waits for the server of the model, which accepts no more requests for now"
        }
        other => other,
    }
}

fn exit_code(event: &JobEvent) -> Option<ExitCode> {
    match event {
        JobEvent::Done { .. } => Some(ExitCode::SUCCESS),
        JobEvent::Error { .. } => Some(ExitCode::from(FAILED)),
        _ => None,
    }
}
