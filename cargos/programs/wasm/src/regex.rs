//! Searches, replaces, splits and tests with regular expressions, in time linear in the text.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use regex::{Captures, Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes that a compiled pattern, and the tables made while it searches, may take.
const SIZE: usize = 8 << 20;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    text: String,
    #[serde(default)]
    operation: Operation,
    #[serde(default)]
    replacement: String,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    multi_line: bool,
    #[serde(default)]
    dot_all: bool,
    #[serde(default = "thousand")]
    limit: usize,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Operation {
    #[default]
    Find,
    Replace,
    Split,
    Test,
}

#[derive(Serialize, Default)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<Match>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<String>>,
    matched: bool,
    count: usize,
}

#[derive(Serialize)]
struct Match {
    text: String,
    start: usize,
    end: usize,
    groups: Map<String, Value>,
}

fn thousand() -> usize {
    1000
}

/// One match; the groups by name, or by number where they have none. Places are bytes of UTF-8.
fn one(pattern: &Regex, found: &Captures<'_>) -> Option<Match> {
    let whole = found.get(0)?;
    let groups = pattern.capture_names().enumerate().skip(1).map(|(number, name)| {
        let name = name.map_or_else(|| number.to_string(), str::to_owned);
        (name, found.get(number).map_or(Value::Null, |group| group.as_str().into()))
    });
    Some(Match {
        text: whole.as_str().to_owned(),
        start: whole.start(),
        end: whole.end(),
        groups: groups.collect(),
    })
}

fn search(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let pattern = RegexBuilder::new(&input.pattern)
        .case_insensitive(input.ignore_case)
        .multi_line(input.multi_line)
        .dot_matches_new_line(input.dot_all)
        .size_limit(SIZE)
        .dfa_size_limit(SIZE)
        .build()
        .or_invalid("pattern")?;
    let text = input.text.as_str();
    let matched = pattern.is_match(text);
    let answer = Answer { matched, ..Answer::default() };
    Ok(match input.operation {
        Operation::Test => Answer { count: usize::from(matched), ..answer },
        Operation::Find => {
            let found = pattern.captures_iter(text).take(input.limit);
            let all: Vec<Match> = found.filter_map(|found| one(&pattern, &found)).collect();
            Answer { count: all.len(), matches: Some(all), ..answer }
        }
        Operation::Replace => {
            let count = pattern.find_iter(text).take(input.limit).count();
            // 0 replaces none, not all of them.
            let text = match count {
                0 => text.to_owned(),
                count => pattern.replacen(text, count, input.replacement.as_str()).into_owned(),
            };
            Answer { count, text: Some(text), ..answer }
        }
        Operation::Split => {
            let parts: Vec<String> = pattern.splitn(text, input.limit).map(str::to_owned).collect();
            Answer { count: parts.len(), parts: Some(parts), ..answer }
        }
    })
}

fn main() -> ExitCode {
    run(search)
}
