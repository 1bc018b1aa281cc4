//! Source code as its community formats it.

use island_cargo::{Error, OrInvalid, Output};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlformat::{FormatOptions, Indent, QueryParams};

use crate::{process, scratch::Scratch};

/// It has a function, but no module to run.
const JSBEAUTIFIER: &str = "import sys, jsbeautifier; sys.exit(jsbeautifier.main())";

#[derive(Deserialize)]
pub(crate) struct Input {
    code: String,
    language: Language,
    #[serde(default = "four")]
    indent: u8,
}

#[derive(Deserialize, Serialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Language {
    C,
    Cpp,
    Csharp,
    Java,
    Javascript,
    Json,
    Python,
    Shell,
    Sql,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    code: String,
    changed: bool,
    language: Language,
}

fn four() -> u8 {
    4
}

/// What formats a language: a program that reads standard input, and its arguments.
fn tool(language: Language, indent: u8) -> Option<(&'static str, Vec<String>)> {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let astyle = |mode: &str| {
        Some((
            "astyle",
            vec![
                format!("--mode={mode}"),
                format!("--indent=spaces={}", indent.max(2)),
                "--style=kr".to_owned(),
                "--pad-oper".to_owned(),
                "--unpad-paren".to_owned(),
                "--pad-header".to_owned(),
            ],
        ))
    };
    match language {
        Language::C | Language::Cpp => astyle("c"),
        Language::Csharp => astyle("cs"),
        Language::Java => astyle("java"),
        Language::Python => Some(("python3", words(&["-IBm", "black", "--quiet", "-"]))),
        Language::Javascript => {
            let size = format!("--indent-size={indent}");
            Some(("python3", words(&["-IBc", JSBEAUTIFIER, "--end-with-newline", &size, "-"])))
        }
        Language::Shell => Some(("shfmt", vec![format!("-i={indent}"), "-ci".to_owned(), "-".to_owned()])),
        _ => None,
    }
}

fn json(code: &str, indent: u8) -> Result<String, Error> {
    let value: Value = serde_json::from_str(code).or_invalid("code")?;
    let spaces = vec![b' '; usize::from(indent)];
    let formatter = serde_json::ser::PrettyFormatter::with_indent(&spaces);
    let mut text = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

fn sql(code: &str, indent: u8) -> String {
    let options =
        FormatOptions { indent: Indent::Spaces(indent), uppercase: Some(true), ..FormatOptions::default() };
    sqlformat::format(code, &QueryParams::None, &options) + "\n"
}

pub(crate) fn format(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let code = match input.language {
        Language::Json => json(&input.code, input.indent)?,
        Language::Sql => sql(&input.code, input.indent),
        other => {
            let (program, arguments) =
                tool(other, input.indent).or_invalid("nothing formats this language")?;
            let scratch = Scratch::new()?;
            let mut command = process::tool(program, &scratch);
            command.args(arguments);
            // Some tools end their lines as the input does, and not at all where it has only one without an end.
            let end = if input.code.ends_with('\n') { "" } else { "\n" };
            String::from_utf8(process::filter(command, format!("{}{end}", input.code).into_bytes())?)?
        }
    };
    Ok(Answer { changed: code != input.code, code, language: input.language })
}
