//! The forms in which families of models write calls of functions.
//!
//! | form | families |
//! | --- | --- |
//! | `<tool_call>{"name", "arguments"}</tool_call>` | Qwen2.5, Qwen3, SmolLM3, Granite 4, Hermes |
//! | `<tool_call><function=f><parameter=a>…</parameter></function></tool_call>` | Qwen3-Coder, Qwen3.5 and later |
//! | `[TOOL_CALLS][{"name", "arguments"}]`, `[TOOL_CALLS]f[ARGS]{…}` | Mistral |
//! | `<\|tool_call>call:f{a:1}<tool_call\|>` | Gemma 4 |
//! | `<\|tool_call\|>[{"name", "arguments"}]` | Granite 3, Phi-4-mini |
//! | `<\|python_tag\|>{"name", "parameters"}` | Llama 3 |
//! | `<｜tool▁call▁begin｜>function<｜tool▁sep｜>f` and a block of JSON, or `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}` | DeepSeek |
//! | only the JSON | Llama 3, Gemma 3, Phi-4, and models without a form of their own |
//!
//! Calls are read while they are written: of the last one, the end may be missing. Its arguments are then the beginning of the JSON text that
//! they will be: more text only extends it.

use serde_json::Value;

use super::json::{Members, open_string, scan};

/// Maximum nesting of the arguments in Gemma's form.
const MAX_DEPTH: usize = 32;

const HERMES: &str = "<tool_call>";
const MISTRAL: &str = "[TOOL_CALLS]";
const GEMMA: &str = "<|tool_call>";
const GRANITE: &str = "<|tool_call|>";
const LLAMA: &str = "<|python_tag|>";
const XML: &str = "<function=";
const XML_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const DEEPSEEK: &str = "<｜tool▁calls▁begin｜>";
const DEEPSEEK_ONE: &str = "<｜tool▁call▁begin｜>";
const DEEPSEEK_SEPARATOR: &str = "<｜tool▁sep｜>";
const DEEPSEEK_END: &str = "<｜tool▁call▁end｜>";
const GEMMA_END: &str = "<tool_call|>";
const GEMMA_QUOTE: &str = "<|\"|>";
const MISTRAL_ARGUMENTS: &str = "[ARGS]";
const MISTRAL_ID: &str = "[CALL_ID]";

/// Texts that begin calls.
pub(super) const OPENERS: [&str; 8] = [HERMES, MISTRAL, GEMMA, GRANITE, LLAMA, XML, DEEPSEEK, DEEPSEEK_ONE];

/// Texts that may stand between calls and after the last one.
const BETWEEN: [&str; 9] = [
    "</tool_call>",
    GEMMA_END,
    "<|/tool_call|>",
    DEEPSEEK,
    DEEPSEEK_END,
    "<｜tool▁calls▁end｜>",
    ",",
    ";",
    "]",
];

/// Texts of the forms that are control tokens of some models, so that their text is left out unless it is needed.
pub(crate) const CONTROL: [&str; 15] = [
    HERMES,
    "</tool_call>",
    MISTRAL,
    MISTRAL_ARGUMENTS,
    MISTRAL_ID,
    GEMMA,
    GEMMA_END,
    GEMMA_QUOTE,
    GRANITE,
    LLAMA,
    DEEPSEEK,
    DEEPSEEK_ONE,
    DEEPSEEK_SEPARATOR,
    DEEPSEEK_END,
    "<｜tool▁calls▁end｜>",
];

/// A call that has begun: its function and the beginning of its arguments are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub name: String,
    /// JSON text, usually of an object; a text that the model wrote instead is passed on.
    pub arguments: String,
    /// Whether its end was read.
    pub is_complete: bool,
    /// Length of the text up to its end and what closes it.
    pub end: usize,
}

/// What was read of one call.
#[derive(Debug, Default)]
struct Body<'t> {
    name: Option<String>,
    arguments: Option<String>,
    /// What follows; `None` if the end is missing or invalid.
    rest: Option<&'t str>,
}

/// The calls at the beginning of a text that have begun. `is_end` if no more text follows; `schema` has the JSON Schema of a function's
/// arguments.
pub(super) fn read<'s>(text: &str, is_end: bool, schema: impl Fn(&str) -> Option<&'s Value>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut rest = text.trim_start();
    rest = rest.strip_prefix(DEEPSEEK).unwrap_or(rest).trim_start();
    loop {
        if let Some(last) = calls.last_mut() {
            rest = skip(rest);
            last.end = text.len() - rest.len();
        }
        let Some(body) = body(rest, is_end, &schema) else { return calls };
        let (Some(name), Some(arguments)) = (body.name, body.arguments) else { return calls };
        let end = text.len() - body.rest.unwrap_or_default().len();
        calls.push(Call { name, arguments, is_complete: body.rest.is_some(), end });
        let Some(after) = body.rest else { return calls };
        rest = after;
    }
}

/// Whether a text may be the beginning of one that stands between calls.
pub(super) fn may_close(text: &str) -> bool {
    BETWEEN.iter().any(|between| between.starts_with(text))
}

/// Leaves out white space and what stands between calls.
fn skip(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(after) = BETWEEN.iter().find_map(|between| rest.strip_prefix(between)) {
        rest = after.trim_start();
    }
    rest
}

/// The call at the beginning of a text; `None` without one.
fn body<'t, 's>(
    text: &'t str,
    is_end: bool,
    schema: &impl Fn(&str) -> Option<&'s Value>,
) -> Option<Body<'t>> {
    if text.starts_with(XML) {
        return xml(text, is_end, schema);
    }
    if let Some(rest) = text.strip_prefix(HERMES) {
        let rest = rest.trim_start();
        return if rest.starts_with(XML) { xml(rest, is_end, schema) } else { object(rest) };
    }
    if let Some(rest) = text.strip_prefix(MISTRAL) {
        let rest = rest.trim_start();
        return if rest.starts_with(['[', '{']) { list(rest) } else { mistral(rest) };
    }
    if let Some(rest) = text.strip_prefix(GEMMA) {
        return gemma(rest);
    }
    if let Some(rest) = text.strip_prefix(DEEPSEEK_ONE) {
        return deepseek(rest);
    }
    let rest = [GRANITE, LLAMA].iter().find_map(|opener| text.strip_prefix(opener));
    list(rest.unwrap_or(text).trim_start())
}

/// An object, perhaps the first one of a list.
fn list(text: &str) -> Option<Body<'_>> {
    object(text.strip_prefix('[').unwrap_or(text))
}

/// An object with a name and arguments.
fn object(text: &str) -> Option<Body<'_>> {
    let mut body = Body::default();
    let mut members = Members::of(text)?;
    for (key, value) in members.by_ref() {
        match key.as_str() {
            "\"name\"" if value.rest.is_some() => {
                body.name = Some(serde_json::from_str(&value.compact).ok()?);
            }
            "\"arguments\"" | "\"parameters\"" if body.arguments.is_none() => {
                body.arguments = match value.compact.chars().next() {
                    Some('{') => Some(value.compact),
                    // A text is decoded once it is complete.
                    Some('"') if value.rest.is_some() => Some(serde_json::from_str(&value.compact).ok()?),
                    Some('"') | None => None,
                    Some(_) => return None,
                };
            }
            _ => {}
        }
    }
    body.rest = members.after();
    Some(body)
}

/// `f[ARGS]{…}` or `f[CALL_ID]1[ARGS]{…}`.
fn mistral(text: &str) -> Option<Body<'_>> {
    let Some((name, arguments)) = text.split_once(MISTRAL_ARGUMENTS) else { return Some(Body::default()) };
    let name = name.split(MISTRAL_ID).next()?.trim();
    json(name, arguments)
}

/// A name and an object after it.
fn json<'t>(name: &str, text: &'t str) -> Option<Body<'t>> {
    let value = scan(text);
    let arguments = Some(value.compact).filter(|compact| !compact.is_empty());
    if arguments.as_ref().is_some_and(|compact| !compact.starts_with('{')) {
        return None;
    }
    Some(Body { name: Some(name.to_owned()), arguments, rest: value.rest })
}

/// `function<separator>f` and a block of JSON, or `f<separator>{…}`.
fn deepseek(text: &str) -> Option<Body<'_>> {
    const BLOCK: &str = "```json";
    let Some((kind, rest)) = text.split_once(DEEPSEEK_SEPARATOR) else { return Some(Body::default()) };
    if kind.trim() != "function" {
        return json(kind.trim(), rest);
    }
    let Some((name, rest)) = rest.split_once('\n') else { return Some(Body::default()) };
    let rest = rest.trim_start();
    if !rest.is_empty() && rest.len() < BLOCK.len() && BLOCK.starts_with(rest) {
        return Some(Body::default());
    }
    let mut body = json(name.trim(), rest.strip_prefix(BLOCK).unwrap_or(rest))?;
    body.rest = body.rest.map(|rest| rest.trim_start().trim_start_matches('`'));
    Some(body)
}

/// A call whose arguments are texts between tags. Their types are those of the function's schema.
fn xml<'t, 's>(text: &'t str, is_end: bool, schema: &impl Fn(&str) -> Option<&'s Value>) -> Option<Body<'t>> {
    let Some((name, mut rest)) = text.strip_prefix(XML)?.split_once('>') else {
        return Some(Body::default());
    };
    let name = name.trim();
    let properties = schema(name).and_then(|schema| schema.get("properties"));
    let mut arguments = "{".to_owned();
    let done = |arguments: String, rest| {
        Some(Body { name: Some(name.to_owned()), arguments: Some(arguments), rest })
    };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(XML_END) {
            return done(arguments + "}", Some(after));
        }
        let may_continue = [XML_END, PARAMETER].iter().any(|tag| tag.starts_with(rest));
        if may_continue && !is_end {
            return done(arguments, None);
        }
        // Some models leave out the end of the function.
        let Some(parameter) = rest.strip_prefix(PARAMETER) else { return done(arguments + "}", Some(rest)) };
        let Some((key, after)) = parameter.split_once('>') else { return done(arguments, None) };
        let key = key.trim();
        if arguments.len() > 1 {
            arguments.push(',');
        }
        arguments.push_str(&Value::from(key).to_string());
        arguments.push(':');
        let (value, after) = parameter_value(after);
        let kind = properties.and_then(|properties| properties.get(key)).and_then(|one| one.get("type"));
        let is_text = kind.and_then(Value::as_str) == Some("string");
        let parsed = || serde_json::from_str::<Value>(value.trim()).ok();
        match (is_text, after) {
            (true, None) => arguments.push_str(&open_string(value)),
            (true, Some(_)) => arguments.push_str(&Value::from(value).to_string()),
            (false, None) => {}
            (false, Some(_)) => {
                arguments.push_str(&parsed().unwrap_or_else(|| value.into()).to_string());
            }
        }
        let Some(after) = after else { return done(arguments, None) };
        rest = after;
    }
}

/// The text of a parameter, and what follows its end. A text that begins on a line of its own ends on one, so that it may contain the end of
/// another tag.
fn parameter_value(text: &str) -> (&str, Option<&str>) {
    let is_block = text.starts_with('\n');
    let end = if is_block {
        text.find("\n</parameter>").map(|at| (at, at + 1))
    } else {
        text.find(PARAMETER_END).map(|at| (at, at))
    };
    let Some((length, at)) = end else {
        // What may be a part of the end is held back.
        let of_tag = if is_block { 0 } else { begun(text, PARAMETER_END) };
        let value = &text[..text.len() - begun(text, "\n</parameter>").max(of_tag)];
        return (if is_block { value.strip_prefix('\n').unwrap_or(value) } else { value }, None);
    };
    let value = &text[..length];
    let value = if is_block { value.strip_prefix('\n').unwrap_or(value) } else { value };
    let value = if is_block { value } else { value.strip_suffix('\n').unwrap_or(value) };
    (value, Some(&text[at + PARAMETER_END.len()..]))
}

/// Number of bytes at the end of a text that could be the beginning of `delimiter`.
pub(super) fn begun(text: &str, delimiter: &str) -> usize {
    let begins = |&length: &usize| delimiter.get(..length).is_some_and(|begin| text.ends_with(begin));
    (1..delimiter.len()).rev().find(begins).unwrap_or(0)
}

/// `call:f{a:1,b:<|"|>text<|"|>}`.
fn gemma(text: &str) -> Option<Body<'_>> {
    let text = text.trim_start();
    let Some(text) = text.strip_prefix("call:") else {
        return "call:".starts_with(text).then(Body::default);
    };
    let Some(at) = text.find('{') else { return Some(Body::default()) };
    let (name, arguments) = text.split_at(at);
    let mut reader = Gemma { rest: arguments, json: String::new() };
    let read = reader.value(0);
    let rest = read.is_some().then_some(reader.rest);
    Some(Body { name: Some(name.trim().to_owned()), arguments: Some(reader.json), rest })
}

/// Translates Gemma's form to JSON: names are without quotes, and texts have other quotes.
struct Gemma<'t> {
    /// What was not read yet.
    rest: &'t str,
    /// What was translated.
    json: String,
}

impl Gemma<'_> {
    fn take(&mut self, expected: &str) -> bool {
        let rest = self.rest.trim_start();
        let taken = rest.strip_prefix(expected);
        self.rest = taken.unwrap_or(rest);
        taken.is_some()
    }

    /// Translates a value; `None` if its end is missing or it is invalid.
    fn value(&mut self, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.take(GEMMA_QUOTE) {
            let Some((text, rest)) = self.rest.split_once(GEMMA_QUOTE) else {
                let held = begun(self.rest, GEMMA_QUOTE);
                self.json.push_str(&open_string(&self.rest[..self.rest.len() - held]));
                return None;
            };
            self.rest = rest;
            self.json.push_str(&Value::from(text).to_string());
            return Some(());
        }
        if self.take("{") {
            return self.items(depth, '{', "}");
        }
        if self.take("[") {
            return self.items(depth, '[', "]");
        }
        let (plain, rest) = self.rest.split_at(self.rest.find([',', '}', ']'])?);
        let value: Value = serde_json::from_str(plain.trim()).ok()?;
        self.rest = rest;
        self.json.push_str(&value.to_string());
        Some(())
    }

    /// The members of an object or the items of a list, after its first bracket.
    fn items(&mut self, depth: usize, open: char, close: &str) -> Option<()> {
        self.json.push(open);
        if !self.take(close) {
            loop {
                if open == '{' {
                    let (name, rest) = self.rest.split_once(':')?;
                    self.rest = rest;
                    self.json.push_str(&Value::from(name.trim().trim_matches('"')).to_string());
                    self.json.push(':');
                }
                self.value(depth + 1)?;
                if !self.take(",") {
                    break;
                }
                self.json.push(',');
            }
            if !self.take(close) {
                return None;
            }
        }
        self.json.push_str(close);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read_part(text: &str, is_end: bool) -> Vec<Call> {
        let schema = json!({"type": "object", "properties": {
            "path": {"type": "string"}, "line": {"type": "integer"}, "deep": {"type": "object"},
        }});
        read(text, is_end, |name| (name == "edit").then_some(&schema))
    }

    /// Functions and arguments of complete calls; `None` without any, or if one is incomplete or its arguments are not JSON.
    fn calls(text: &str) -> Option<Vec<(String, Value)>> {
        let calls = read_part(text, true);
        let read = |call: Call| {
            call.is_complete.then(|| Some((call.name, serde_json::from_str(&call.arguments).ok()?))).flatten()
        };
        (!calls.is_empty()).then(|| calls.into_iter().map(read).collect()).flatten()
    }

    fn one(arguments: Value) -> Vec<(String, Value)> {
        vec![("edit".to_owned(), arguments)]
    }

    /// A call with these arguments in each form.
    fn forms(arguments: &Value) -> Vec<String> {
        let object = format!("{arguments:#}");
        vec![
            format!("<tool_call>\n{{\"name\": \"edit\", \"arguments\": {object}}}\n</tool_call>"),
            "<tool_call>\n<function=edit>\n<parameter=path>\na.rs\n</parameter>\n<parameter=line>\n3\n</parameter>\n</function>\n</tool_call>".to_owned(),
            "<function=edit>\n<parameter=path>\na.rs\n</parameter>\n<parameter=line>\n3\n</parameter>\n</function>".to_owned(),
            format!("[TOOL_CALLS][{{\"name\": \"edit\", \"arguments\": {object}}}]"),
            format!("[TOOL_CALLS]edit[ARGS]{object}"),
            format!("[TOOL_CALLS]edit[CALL_ID]abc[ARGS]{object}"),
            "<|tool_call>call:edit{path:<|\"|>a.rs<|\"|>,line:3}<tool_call|>".to_owned(),
            format!("<|tool_call|>[{{\"name\": \"edit\", \"arguments\": {object}}}]<|/tool_call|>"),
            format!("<|python_tag|>{{\"name\": \"edit\", \"parameters\": {object}}}"),
            format!("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n{object}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            format!("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{object}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            format!("{{\"name\": \"edit\", \"parameters\": {object}}}"),
        ]
    }

    #[test]
    fn every_form_is_read() {
        let arguments = json!({"path": "a.rs", "line": 3});
        for text in forms(&arguments) {
            assert_eq!(calls(&text), Some(one(arguments.clone())), "{text}");
            let read = read_part(&text, true);
            assert_eq!(
                (read[0].arguments.as_str(), read[0].end),
                ("{\"path\":\"a.rs\",\"line\":3}", text.len())
            );
        }
    }

    #[test]
    fn arguments_are_read_while_they_are_written() {
        for text in forms(&json!({"path": "a.rs", "line": 3})) {
            let half = text.find("a.r").expect("the text of the argument") + 2;
            let [call] = read_part(&text[..half], false).try_into().expect("one call");
            assert_eq!((call.name.as_str(), call.arguments.as_str()), ("edit", "{\"path\":\"a."), "{text}");
            assert!(!call.is_complete);
        }
    }

    #[test]
    fn a_text_after_calls_is_not_a_part_of_them() {
        for (text, rest) in [
            ("{\"name\": \"edit\", \"parameters\": {}}\n\nDone.", "Done."),
            ("<tool_call>{\"name\": \"edit\", \"arguments\": {}}</tool_call> Wait", "Wait"),
            ("<tool_call>{\"name\": \"edit\", \"arguments\": {}}</tool_call><tool_call>{x", "<tool_call>{x"),
        ] {
            let calls = read_part(text, true);
            assert_eq!((calls.len(), &text[calls[0].end..]), (1, rest));
        }
    }

    #[test]
    fn several_calls_are_read() {
        let two =
            |text: &str| calls(text).map(|calls| calls.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
        let both = Some(vec!["edit".to_owned(), "look".to_owned()]);
        assert_eq!(two("[TOOL_CALLS]edit[ARGS]{}[TOOL_CALLS]look[ARGS]{}"), both);
        assert_eq!(two("<|tool_call>call:edit{}<tool_call|><|tool_call>call:look{}<tool_call|>"), both);
        assert_eq!(
            two(
                "<tool_call><function=edit></function></tool_call>\n<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>"
            ),
            both
        );
        assert_eq!(two("<function=edit>\n</function>\n<function=look>\n</function>"), both);
        assert_eq!(
            two(
                "<|python_tag|>{\"name\": \"edit\", \"parameters\": {}}; {\"name\": \"look\", \"parameters\": {}}"
            ),
            both
        );
    }

    #[test]
    fn texts_between_tags_have_the_types_of_the_schema() {
        let xml = |key: &str, value: &str| {
            calls(&format!(
                "<tool_call><function=edit>\n<parameter={key}>\n{value}\n</parameter>\n</function></tool_call>"
            ))
        };
        assert_eq!(xml("path", "12"), Some(one(json!({"path": "12"}))));
        assert_eq!(xml("line", "12"), Some(one(json!({"line": 12}))));
        assert_eq!(xml("line", "many"), Some(one(json!({"line": "many"}))));
        assert_eq!(xml("deep", "{\"a\": [1]}"), Some(one(json!({"deep": {"a": [1]}}))));
        assert_eq!(xml("unknown", "true"), Some(one(json!({"unknown": true}))));
        assert_eq!(xml("path", "\n  indented\n"), Some(one(json!({"path": "\n  indented\n"}))));
        assert_eq!(xml("path", "a </function> b"), Some(one(json!({"path": "a </function> b"}))));
    }

    #[test]
    fn values_in_the_form_of_gemma_are_read() {
        let text = "<|tool_call>call:edit{deep: {a:[1,-2.5,true,null,<|\"|>x, {y}: z<|\"|>],b:{}} , e:[]}<tool_call|>";
        assert_eq!(
            calls(text),
            Some(one(json!({"deep": {"a": [1, -2.5, true, null, "x, {y}: z"], "b": {}}, "e": []})))
        );
        for bad in ["call:edit{a:}", "call:edit{a:1", "call:edit[1]", "edit{}", "call:edit{a:<|\"|>x}"] {
            assert_eq!(calls(&format!("<|tool_call>{bad}<tool_call|>")), None, "{bad}");
        }
        let deep = format!("<|tool_call>call:edit{{a:{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(calls(&deep), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(<tool_call>|\\[TOOL_CALLS\\]|<\\|tool_call>call:f|<function=|[a{}\\[\\]:,<>=|\"\n1]|<parameter=|</parameter>|<｜tool▁call▁begin｜>|<｜tool▁sep｜>){0,20}") {
            let _ = calls(&text);
            let whole = read_part(&text, true);
            let mut before: Vec<Call> = Vec::new();
            for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
                let calls = read_part(&text[..at], false);
                prop_assert!(calls.len() >= before.len());
                for (call, shorter) in calls.iter().zip(&before) {
                    prop_assert_eq!(&call.name, &shorter.name);
                    prop_assert!(call.arguments.starts_with(&shorter.arguments), "{:?} {:?}", call, shorter);
                }
                before = calls;
            }
            prop_assert!(whole.len() >= before.len());
        }
    }
}
