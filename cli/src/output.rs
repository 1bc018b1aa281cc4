//! The only place that prints. Text from models and strangers passes [`plain`] first.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this module is for")]

use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
    time::Duration,
};

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::Format;

/// Where results and messages go.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    colour: bool,
}

/// A spinner, or a bar once a total is known. Shown on a terminal only; gone when dropped.
#[derive(Debug)]
pub(crate) struct Progress(Option<ProgressBar>);

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { format, colour }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// One JSON text.
    pub(crate) fn json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string_pretty(value)?);
        Ok(())
    }

    /// One JSON text on one line, at once.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, value)?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// One line of text.
    pub(crate) fn line(&self, text: &str) {
        println!("{}", plain(text));
    }

    /// A piece of a reply, at once and without a line end.
    pub(crate) fn piece(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        // A reader that is gone ends the program at the next flush; nothing useful can be said to it.
        let _ = out.write_all(plain(text).as_bytes()).and_then(|()| out.flush());
    }

    /// Names and values, aligned.
    pub(crate) fn fields(&self, fields: &[(&str, String)]) {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields {
            println!("{}{}  {}", self.bold(name), " ".repeat(width - name.len()), plain(value));
        }
    }

    /// A table with a header, or a sentence when it is empty.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<String>>, when_empty: &str) {
        if rows.is_empty() {
            println!("{when_empty}");
            return;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().map(|name| self.bold(&name.to_uppercase())));
        for row in rows {
            table.add_row(row.iter().map(|cell| plain(cell).into_owned()));
        }
        for line in table.lines() {
            // The style pads every cell; the first needs none.
            println!("{}", line.strip_prefix(' ').unwrap_or(&line).trim_end());
        }
    }

    /// A remark on standard error, so that results stay clean.
    pub(crate) fn note(&self, text: &str) {
        if !self.is_json() {
            eprintln!("{}", plain(text));
        }
    }

    /// An error with its code and what to try next.
    pub(crate) fn error(&self, message: &str, code: Option<&str>, hint: Option<&str>) {
        if self.is_json() {
            let body = serde_json::json!({ "error": { "message": message, "code": code, "hint": hint } });
            eprintln!("{body}");
            return;
        }
        let label = if std::io::stderr().is_terminal() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
        eprintln!("{label} {}", plain(message));
        if let Some(hint) = hint {
            eprintln!("  try: {hint}");
        }
    }

    /// A spinner with a message, on a terminal.
    pub(crate) fn progress(&self, message: &str) -> Progress {
        if self.is_json() || !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::new_spinner().with_message(plain(message).into_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(Some(bar))
    }

    fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Progress {
    /// Says what is going on.
    pub(crate) fn say(&self, message: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(plain(message).into_owned());
        }
    }

    /// Shows a bar.
    pub(crate) fn at(&self, what: &str, step: u64, total: u64) {
        let Some(bar) = &self.0 else { return };
        let template = "{spinner} {msg} [{bar:30}] {percent}%";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
        bar.set_length(total);
        bar.set_position(step);
        bar.set_message(plain(what).into_owned());
    }

    /// Removes it from the screen.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Text without what could command a terminal: control characters but tab and line end, and direction overrides.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let hostile = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    if text.contains(hostile) {
        Cow::Owned(text.chars().filter(|c| !hostile(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Milliseconds as a person reads them.
pub(crate) fn duration(ms: Option<u64>) -> String {
    match ms {
        None => "-".into(),
        Some(ms) if ms < 1000 => format!("{ms} ms"),
        Some(ms) if ms < 60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        Some(ms) => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_command_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}31mc\rd\u{202e}e\n\tf\x07"), "a[2Jb31mcde\n\tf");
        assert!(matches!(plain("Grüße, 世界\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn durations() {
        let shown: Vec<String> =
            [None, Some(999), Some(1500), Some(61_000)].into_iter().map(duration).collect();
        assert_eq!(shown, ["-", "999 ms", "1.5 s", "1 min 1 s"]);
    }
}
