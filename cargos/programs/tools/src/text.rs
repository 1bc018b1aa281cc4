//! Text: formatted, filled in, and recognised.

pub(crate) mod format;
pub(crate) mod language;
pub(crate) mod template;
