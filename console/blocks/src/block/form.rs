//! Forms and their fields.

use super::{Block, Cell, Tone};
use crate::t;

/// A form.
#[derive(Debug, Clone)]
pub struct Form {
    /// Where it is sent.
    pub action: String,
    /// `post`, or `get` for filters.
    pub method: &'static str,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Text of its button.
    pub submit: String,
    /// What its button does.
    pub tone: Tone,
    /// Whether it is one line, as in a table.
    pub is_inline: bool,
    /// Whether files are sent.
    pub has_files: bool,
    /// Distinguishes what several forms of a page do for who cannot see where they are.
    pub label: String,
    /// What cannot be undone, which is shown before the button is; or empty.
    pub confirm: String,
}

impl Form {
    pub(super) fn has_extra(&self) -> bool {
        self.fields.iter().any(|field| field.is_extra)
    }

    /// A form that changes something.
    pub fn post(action: impl Into<String>, submit: &str, fields: Vec<Field>) -> Self {
        Self {
            action: action.into(),
            method: "post",
            fields,
            submit: submit.to_owned(),
            tone: Tone::Plain,
            is_inline: false,
            has_files: false,
            label: String::new(),
            confirm: String::new(),
        }
    }

    /// A form that restricts a list.
    pub fn filter(action: impl Into<String>, fields: Vec<Field>) -> Self {
        Self { method: "get", is_inline: true, ..Self::post(action, t("form.filter"), fields) }
    }

    /// A button.
    pub fn button(action: impl Into<String>, submit: &str, label: impl Into<String>) -> Self {
        Self { is_inline: true, label: label.into(), ..Self::post(action, submit, Vec::new()) }
    }

    /// Puts what was entered into its fields, if it was sent to `action`. Secrets and files have to be entered again.
    fn enter(&mut self, action: &str, entered: &dyn Fn(&str) -> Option<String>) -> bool {
        if self.action != action || self.method != "post" {
            return false;
        }
        for field in &mut self.fields {
            if !matches!(field.kind, Kind::Hidden | Kind::Secret | Kind::File(_) | Kind::Files(_)) {
                field.value = entered(&field.name).unwrap_or_default();
            }
        }
        true
    }

    /// Marks what cannot be undone.
    #[must_use]
    pub fn bad(self) -> Self {
        Self { tone: Tone::Bad, ..self }
    }

    /// Shows a text, and the button only with it.
    #[must_use]
    pub fn confirm(self, text: impl Into<String>) -> Self {
        Self { confirm: text.into(), ..self }
    }

    /// Puts all fields in one line.
    #[must_use]
    pub fn inline(self) -> Self {
        Self { is_inline: true, ..self }
    }
}

/// Puts what was entered into the forms that were sent to `action`, and opens what hides them. Returns whether there is one.
pub fn enter(blocks: &mut [Block], action: &str, entered: &dyn Fn(&str) -> Option<String>) -> bool {
    let mut is_found = false;
    for block in blocks {
        is_found |= match block {
            Block::Form(form) => form.enter(action, entered),
            Block::Table(table) => {
                let mut is_in_row = false;
                for cell in table.rows.iter_mut().flatten() {
                    if let Cell::Actions(forms) = cell {
                        is_in_row |= forms.iter_mut().any(|form| form.enter(action, entered));
                    }
                }
                is_in_row
            }
            Block::Panel(_, inner) | Block::Columns(inner) => enter(inner, action, entered),
            Block::Fold(title, inner) => {
                let is_inside = enter(inner, action, entered);
                if is_inside {
                    *block = Block::Panel(std::mem::take(title), std::mem::take(inner));
                }
                is_inside
            }
            _ => false,
        };
    }
    is_found
}

/// A field of a form.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// Its name in the form.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// A remark, or empty.
    pub help: String,
    /// What is entered already.
    pub value: String,
    /// How it is entered.
    pub kind: Kind,
    /// Whether it must be entered.
    pub is_required: bool,
    /// Whether it is shown only on demand, behind all others.
    pub is_extra: bool,
    /// Why what was entered is refused, or empty.
    pub error: String,
}

/// How a field is entered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kind {
    /// A line of text.
    #[default]
    Line,
    /// A line of text, for which values are suggested.
    Suggested(Vec<String>),
    /// Several lines of text.
    Lines,
    /// Text of a program.
    Code,
    /// Text that is not shown.
    Secret,
    /// An e-mail address.
    Email,
    /// A number.
    Number {
        /// Distance of the values; `any` for all.
        step: String,
        /// Minimum, or empty.
        min: String,
        /// Maximum, or empty.
        max: String,
    },
    /// Yes or no.
    Check,
    /// A day.
    Date,
    /// One of several values with their texts.
    Choice(Vec<(String, String)>),
    /// A file. Media types that are offered.
    File(String),
    /// Several files, likewise.
    Files(String),
    /// A value that is sent and not shown.
    Hidden,
}

impl Field {
    pub(super) fn is_wrong(&self) -> bool {
        !self.error.is_empty()
    }

    /// A field without a value.
    pub fn new(name: &str, label: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), label: label.to_owned(), kind, ..Self::default() }
    }

    /// A line of text.
    pub fn line(name: &str, label: &str) -> Self {
        Self::new(name, label, Kind::Line)
    }

    /// A number of zero or more.
    pub fn amount(name: &str, label: &str) -> Self {
        Self::new(
            name,
            label,
            Kind::Number { step: "any".to_owned(), min: "0".to_owned(), max: String::new() },
        )
    }

    /// A value that is sent and not shown.
    pub fn hidden(name: &str, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..Self::new(name, "", Kind::Hidden) }
    }

    /// The reason that the audit log records.
    pub fn reason() -> Self {
        Self::line("reason", t("form.reason")).required()
    }

    /// Marks that it must be entered.
    #[must_use]
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// Sets the remark.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// Sets what is entered already.
    #[must_use]
    pub fn value(self, value: impl Into<String>) -> Self {
        Self { value: value.into(), ..self }
    }
}
