//! Converts byte offsets to line numbers.

use std::fmt::Display;

/// The line, from 1, of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end].split(|byte| *byte == b'\n').count().saturating_sub(1)
}

/// One per line.
pub(super) fn joined(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
