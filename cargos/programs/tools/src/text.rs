//! Text: formatting, templates, language detection.

pub(crate) mod format;
pub(crate) mod language;
pub(crate) mod template;
