//! A spinner, or a bar once a total is known, while something is waited for.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use super::text::on_one_line;

/// Shown on a terminal only, until dropped.
#[derive(Debug)]
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(message: &str, wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner().with_message(on_one_line(message));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    /// Whether there is something to see.
    pub(crate) fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Shows the current state.
    pub(crate) fn set_message(&self, message: &str) {
        if let Some(bar) = &self.0 {
            bar.set_style(ProgressStyle::default_spinner());
            bar.set_message(on_one_line(message));
        }
    }

    /// Shows a bar.
    pub(crate) fn at(&self, what: &str, step: u64, total: u64) {
        let Some(bar) = &self.0 else { return };
        let template = "{spinner} {msg} [{bar:30}] {percent}%";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
        bar.set_length(total);
        bar.set_position(step);
        bar.set_message(on_one_line(what));
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
