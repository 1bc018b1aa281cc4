//! The only module that prints. Text from models and other machines passes [`text::plain`] first.

mod progress;
mod table;
pub(crate) mod text;

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use island_protocol::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use self::text::{plain, plain_json};
pub(crate) use self::{progress::Progress, table::Column};
use crate::{args::Format, failure::Report};

/// Where results and messages go.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    out: io::Stdout,
    /// Of results.
    colour: bool,
    /// Of messages.
    message_colour: bool,
    /// Columns of the terminal that shows the results; `None` where none does.
    width: Option<u16>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let allowed = variable("NO_COLOR").is_none() && variable("TERM").as_deref() != Some("dumb");
        let colour = allowed && io::stdout().is_terminal();
        let message_colour = allowed && io::stderr().is_terminal();
        let width = if io::stdout().is_terminal() { table::terminal_width() } else { None };
        Self { format, out: io::stdout(), colour, message_colour, width }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// One JSON text.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)?;
        writeln!(self.out.lock(), "{}", plain_json(&text))?;
        Ok(())
    }

    /// One JSON text on one line, at once.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)?;
        let mut out = self.out.lock();
        writeln!(out, "{}", plain_json(&text))?;
        Ok(out.flush()?)
    }

    /// JSON texts, one on each line.
    pub(crate) fn json_lines(&self, lines: &str) -> Result<()> {
        let mut out = self.out.lock();
        for line in lines.lines() {
            writeln!(out, "{}", plain_json(line))?;
        }
        Ok(())
    }

    /// Lines of text.
    pub(crate) fn line(&self, text: &str) -> Result<()> {
        Ok(writeln!(self.out.lock(), "{}", plain(text))?)
    }

    /// A piece of a reply, at once and without a line end.
    pub(crate) fn piece(&self, text: &str) -> Result<()> {
        let mut out = self.out.lock();
        out.write_all(plain(text).as_bytes())?;
        Ok(out.flush()?)
    }

    /// Text of our own, as it is: a completion script or a manual page.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<()> {
        Ok(self.out.lock().write_all(bytes)?)
    }

    /// Names and values, aligned.
    pub(crate) fn fields(&self, fields: &[(&str, String)]) -> Result<()> {
        self.lines(&table::fields(fields, self.colour))
    }

    /// A table with a header, or a sentence when it is empty. It fits the terminal; elsewhere it is complete.
    pub(crate) fn table(&self, columns: &[Column], rows: Vec<Vec<String>>, when_empty: &str) -> Result<()> {
        if rows.is_empty() {
            return self.line(when_empty);
        }
        self.lines(&table::lines(columns, rows, self.width, self.colour))
    }

    /// A time in a table: relative on a terminal, elsewhere in full.
    pub(crate) fn moment(&self, moment: Timestamp) -> String {
        if self.width.is_some() { text::distance(moment, text::now()) } else { moment.to_string() }
    }

    fn lines(&self, lines: &[String]) -> Result<()> {
        let mut out = self.out.lock();
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// A remark on standard error, so that results stay clean.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_json() {
            complain(&plain(text));
        }
    }

    /// A warning, also where programs read the results.
    pub(crate) fn warn(&self, text: &str) {
        complain(&format!("{} {}", self.label("warning:", "1;33"), plain(text)));
    }

    /// An error with its code and what to try next.
    pub(crate) fn error(&self, report: &Report) {
        if self.is_json() {
            let mut error = json!({ "message": report.message, "code": report.code, "hint": report.hint });
            if let (Value::Object(error), Value::Object(details)) = (&mut error, &report.details) {
                error.extend(details.clone().into_iter().filter(|(_, value)| !value.is_null()));
            }
            return complain(&plain_json(&json!({ "error": error }).to_string()));
        }
        complain(&format!("{} {}", self.label("error:", "1;31"), plain(&report.message)));
        if let Some(hint) = &report.hint {
            complain(&format!("  try: {}", plain(hint)));
        }
    }

    /// A spinner with a message, on a terminal.
    pub(crate) fn progress(&self, message: &str) -> Progress {
        Progress::new(message, !self.is_json())
    }

    /// Sends what is still buffered; an output that cannot be written is an error, not a loss.
    pub(crate) fn finish(&self) -> Result<()> {
        Ok(self.out.lock().flush()?)
    }

    fn label(&self, text: &str, style: &str) -> String {
        if self.message_colour { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes a line to standard error. If that is closed too, the message is lost.
fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
