//! Tests of kinds of values where the renderer's own differ from those of the library that templates are written for.

use minijinja::{Value, value::ValueKind};

/// `is iterable`: not for `none`, so that `tools is iterable and tools | length` works without tools.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// `is number`: booleans are numbers in Python.
pub(super) fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

/// `is sequence`: what has a length and items, texts and mappings included.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}
