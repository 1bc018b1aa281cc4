//! What changed between two texts or two JSON values.

use std::process::ExitCode;

use island_cargo::{Error, Output, run};
use json_patch::Patch;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

#[derive(Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
enum Input {
    Unified {
        old: String,
        new: String,
        #[serde(default = "three")]
        context: usize,
    },
    Words {
        old: String,
        new: String,
    },
    Json {
        old: Value,
        new: Value,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Lines { diff: String, added: usize, removed: usize, same: bool },
    Words { changes: Vec<Change>, same: bool },
    Json { patch: Patch, same: bool },
}

#[derive(Serialize)]
struct Change {
    kind: &'static str,
    text: String,
}

fn three() -> usize {
    3
}

fn kind(tag: ChangeTag) -> &'static str {
    match tag {
        ChangeTag::Equal => "same",
        ChangeTag::Delete => "removed",
        ChangeTag::Insert => "added",
    }
}

fn lines(old: &str, new: &str, context: usize) -> Answer {
    let diff = TextDiff::from_lines(old, new);
    let count = |wanted| diff.iter_all_changes().filter(|change| change.tag() == wanted).count();
    Answer::Lines {
        added: count(ChangeTag::Insert),
        removed: count(ChangeTag::Delete),
        same: old == new,
        diff: diff.unified_diff().context_radius(context).header("old", "new").to_string(),
    }
}

/// Neighbouring words of one kind are one change.
fn words(old: &str, new: &str) -> Answer {
    let mut changes: Vec<Change> = Vec::new();
    for change in TextDiff::from_unicode_words(old, new).iter_all_changes() {
        let kind = kind(change.tag());
        match changes.last_mut().filter(|last| last.kind == kind) {
            Some(last) => last.text.push_str(change.value()),
            None => changes.push(Change { kind, text: change.value().to_owned() }),
        }
    }
    Answer::Words { changes, same: old == new }
}

fn compare(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    Ok(match input {
        Input::Unified { old, new, context } => lines(&old, &new, context),
        Input::Words { old, new } => words(&old, &new),
        Input::Json { old, new } => Answer::Json { patch: json_patch::diff(&old, &new), same: old == new },
    })
}

fn main() -> ExitCode {
    run(compare)
}
