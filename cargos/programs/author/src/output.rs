//! The lines a Cargo writes.

use std::{
    fmt,
    io::{self, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Error, Image};

/// Writes events to the consumer, one JSON line each, flushed at once.
///
/// Where nobody reads any more, what is written is dropped: [`Output::is_closed`] lets a long job stop early.
pub struct Output<'a> {
    to: Box<dyn Write + 'a>,
    usage: Usage,
    failure: Option<io::Error>,
}

/// What a job used, for Cargos that count tokens.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Usage {
    /// Tokens read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
}

impl<'a> Output<'a> {
    /// Lines to `to`; [`crate::run`] makes one for standard output.
    pub fn new(to: impl Write + 'a) -> Self {
        Self { to: Box::new(to), usage: Usage::default(), failure: None }
    }

    /// Reports the next phase.
    pub fn status(&mut self, message: &str) {
        self.line(&json!({ "type": "status", "message": message }));
    }

    /// A piece of text, streamed.
    pub fn token(&mut self, content: &str) {
        self.line(&json!({ "type": "token", "content": content }));
    }

    /// Step `step` of `total` is done.
    pub fn progress(&mut self, step: u64, total: u64) {
        self.line(&json!({ "type": "progress", "step": step, "total": total }));
    }

    /// Like [`Output::progress`], for one of several phases.
    pub fn progress_of(&mut self, phase: &str, step: u64, total: u64) {
        self.line(&json!({ "type": "progress", "step": step, "total": total, "phase": phase }));
    }

    /// A finished image.
    pub fn image(&mut self, image: Image<'_>) {
        let mut line =
            json!({ "type": "image", "data": STANDARD.encode(image.bytes), "format": image.format });
        for (key, size) in [("width", image.width), ("height", image.height)] {
            if let Some(size) = size {
                line[key] = size.into();
            }
        }
        self.line(&line);
    }

    /// Usage of the job, reported at its end.
    pub fn usage(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Whether a write failed because nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn result(&mut self, output: &Value) {
        self.line(&json!({ "type": "result", "output": output }));
    }

    pub(crate) fn done(&mut self) {
        self.line(&json!({ "type": "done", "usage": self.usage }));
    }

    pub(crate) fn error(&mut self, error: &Error) {
        let mut line = json!({ "type": "error", "message": error.message() });
        if error.is_invalid() {
            line["code"] = "invalid_input".into();
        }
        self.line(&line);
    }

    fn line(&mut self, line: &Value) {
        if self.failure.is_some() {
            return;
        }
        // In one piece: a line of which half was seen is worth nothing.
        let line = format!("{line}\n");
        let written = self.to.write_all(line.as_bytes()).and_then(|()| self.to.flush());
        self.failure = written.err();
    }
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("failure", &self.failure).finish_non_exhaustive()
    }
}
