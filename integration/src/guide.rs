//! Running a guide: its ```sh blocks are run in order in one shell, and what they print must be what the block after
//! them shows. `…` stands for anything: for a part of a text, for a whole value, for the rest of a list or an object, and
//! alone on a line for any lines.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use serde_json::Value;

/// A command of the guide, and what it is to print.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Line of the guide where it begins.
    pub line: usize,
    /// What is run.
    pub command: String,
    /// What it prints, where the guide shows it: the block's language and its text.
    pub shown: Option<(String, String)>,
}

/// The steps of a guide.
pub fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = guide.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let block = block.join("\n");
        match language {
            "sh" => steps.push(Step { line: at + 1, command: block, shown: None }),
            "json" | "text" => {
                let step = steps.last_mut().expect("an answer follows a command");
                assert!(step.shown.is_none(), "line {}: a second answer to one command", at + 1);
                step.shown = Some((language.to_owned(), block));
            }
            _ => {}
        }
    }
    steps
}

/// Runs the steps with `variables` set. Returns every difference from what is shown, and every step without an answer that failed.
pub fn differences(steps: &[Step], variables: &[(&str, &str)], folder: &Path) -> String {
    let mut script = String::from("set -u\n");
    for (at, step) in steps.iter().enumerate() {
        let _ = writeln!(script, "{{\n{}\n}} >{at}.out 2>&1; echo $? >{at}.status", step.command);
    }
    let result = Command::new("bash")
        .args(["--norc", "-c", &script])
        .envs(variables.iter().copied())
        .current_dir(folder)
        .output()
        .expect("run bash");
    let mut all = String::from_utf8_lossy(&result.stderr).into_owned();
    for (at, step) in steps.iter().enumerate() {
        let printed = fs::read_to_string(folder.join(format!("{at}.out"))).unwrap_or_default();
        let Step { line, command, .. } = step;
        let Some((language, shown)) = &step.shown else {
            let status = fs::read_to_string(folder.join(format!("{at}.status"))).unwrap_or_default();
            if status.trim() != "0" {
                let _ = writeln!(
                    all,
                    "--- line {line}\n{command}\n--- ended with status {status}--- printed\n{printed}"
                );
            }
            continue;
        };
        let same =
            if language == "json" { is_json_like(shown, &printed) } else { is_text_like(shown, &printed) };
        if !same {
            let _ = writeln!(all, "--- line {line}\n{command}\n--- shown\n{shown}\n--- printed\n{printed}");
        }
    }
    all
}

fn is_json_like(shown: &str, printed: &str) -> bool {
    let shown: Value = serde_json::from_str(&quoted(shown)).expect("what is shown is JSON but for its …");
    serde_json::from_str(printed).is_ok_and(|printed: Value| is_like(&shown, &printed))
}

/// JSON in which every `…` outside a string has become one; as a member of an object, it means that more may follow.
fn quoted(shown: &str) -> String {
    let (mut json, mut open, mut last) = (String::new(), Vec::new(), ' ');
    let (mut inside, mut escaped) = (false, false);
    for c in shown.chars() {
        match c {
            '"' if !escaped => inside = !inside,
            '{' | '[' if !inside => open.push(c),
            '}' | ']' if !inside => drop(open.pop()),
            '…' if !inside => {
                let is_member = open.last() == Some(&'{') && matches!(last, '{' | ',');
                json.push_str(if is_member { r#""…": 0"# } else { r#""…""# });
                last = c;
                continue;
            }
            _ => {}
        }
        escaped = inside && c == '\\' && !escaped;
        if !c.is_whitespace() {
            last = c;
        }
        json.push(c);
    }
    json
}

fn is_like(shown: &Value, printed: &Value) -> bool {
    match (shown, printed) {
        (Value::String(shown), _) if shown == "…" => true,
        (Value::String(shown), Value::String(printed)) => is_glob_of(shown, printed),
        (Value::Array(shown), Value::Array(printed)) => {
            let open = shown.last().is_some_and(|last| last == "…");
            let fixed = if open { &shown[..shown.len() - 1] } else { &shown[..] };
            let long_enough = if open { printed.len() >= fixed.len() } else { printed.len() == fixed.len() };
            long_enough && fixed.iter().zip(printed).all(|(shown, printed)| is_like(shown, printed))
        }
        (Value::Object(shown), Value::Object(printed)) => {
            let open = shown.contains_key("…");
            let known = |name: &String| open || shown.contains_key(name);
            printed.keys().all(known)
                && shown
                    .iter()
                    .filter(|(name, _)| *name != "…")
                    .all(|(name, shown)| printed.get(name).is_some_and(|printed| is_like(shown, printed)))
        }
        _ => shown == printed,
    }
}

fn is_text_like(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
    are_lines_like(&lines(shown), &lines(printed))
}

fn are_lines_like(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=printed.len()).any(|skipped| are_lines_like(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| is_glob_of(first, line.trim_end()) && are_lines_like(rest, others)),
    }
}

/// Whether a text is what is shown, in which every `…` stands for anything.
fn is_glob_of(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once('…') else { return shown == printed };
    let Some(mut printed) = printed.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().expect("a split has a part");
    for part in parts {
        let Some(at) = printed.find(part) else { return false };
        printed = &printed[at + part.len()..];
    }
    printed.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_steps() {
        let guide = "text\n```sh\necho a\n```\n```json\n{}\n```\n```console\nno\n```\n```sh\nx\n```\n";
        let wanted = [
            Step { line: 2, command: "echo a".into(), shown: Some(("json".into(), "{}".into())) },
            Step { line: 11, command: "x".into(), shown: None },
        ];
        assert_eq!(steps(guide), wanted);
    }

    #[test]
    fn json_matches_but_for_what_is_left_out() {
        for (shown, printed, wanted) in [
            (r#"{"a": 1}"#, r#"{"a":1}"#, true),
            (r#"{"a": 1}"#, r#"{"a":1,"b":2}"#, false),
            (r#"{"a": 1, …}"#, r#"{"a":1,"b":2}"#, true),
            (r#"{"a": …}"#, r#"{"a":{"b":2}}"#, true),
            (r#"{"a": …}"#, r#"{"b":2}"#, false),
            (r#"{"a": "0190…"}"#, r#"{"a":"0190ff"}"#, true),
            (r#"{"a": "0190…"}"#, r#"{"a":"0200ff"}"#, false),
            (r"[1, …]", "[1,2,3]", true),
            (r"[1, …]", "[2]", false),
            (r#"{"a": 1}"#, "curl: (7) failed", false),
        ] {
            assert_eq!(is_json_like(shown, printed), wanted, "{shown} and {printed}");
        }
    }

    #[test]
    fn text_matches_but_for_what_is_left_out() {
        for (shown, printed, wanted) in [
            ("a\n…\nd", "a\nb\nc\nd\n", true),
            ("a\n…\nd", "a\nd", true),
            ("a\n…\nd", "a\nb", false),
            ("id: …\nx", "id: 7\nx", true),
            ("a…c…e", "abcde", true),
            ("a…c…f", "abcde", false),
        ] {
            assert_eq!(is_text_like(shown, printed), wanted, "{shown} and {printed}");
        }
    }

    #[test]
    fn variables_live_from_step_to_step_and_differences_are_told() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let guide = "```sh\nNAME=you\n```\n```sh\necho hello $NAME\n```\n```text\nhello me\n```\n";
        let found = differences(&steps(guide), &[], folder.path());
        assert!(found.contains("line 4") && found.contains("hello you"), "{found}");
        let found =
            differences(&steps("```sh\ntrue\n```\n```sh\necho broken; false\n```\n"), &[], folder.path());
        assert!(
            found.contains("line 4") && found.contains("status 1") && !found.contains("line 1"),
            "{found}"
        );
    }
}
