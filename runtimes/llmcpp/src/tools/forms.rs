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
//! | `<｜tool▁call▁begin｜>function<｜tool▁sep｜>f` and a block of JSON | DeepSeek |
//! | only the JSON | Llama 3, Gemma 3, Phi-4, and models without a form of their own |

use serde_json::{Map, Value};

/// Maximum nesting of the arguments in Gemma's form.
const MAX_DEPTH: usize = 32;

const HERMES: &str = "<tool_call>";
const MISTRAL: &str = "[TOOL_CALLS]";
const GEMMA: &str = "<|tool_call>";
const GRANITE: &str = "<|tool_call|>";
const LLAMA: &str = "<|python_tag|>";
const XML: &str = "<function=";
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

/// Name and arguments: an object, or a text that the model wrote instead.
pub(super) type Call = (String, Value);

/// The calls that a text consists of; `None` if it is not a call. `schema` has the JSON Schema of a function's arguments.
pub(super) fn read<'s>(text: &str, schema: impl Fn(&str) -> Option<&'s Value>) -> Option<Vec<Call>> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix(HERMES) {
        let parts = rest.split(HERMES).map(|part| part.trim().trim_end_matches("</tool_call>").trim());
        return parts
            .map(|part| if part.starts_with(XML) { xml(part, &schema) } else { json(part) })
            .collect();
    }
    if text.starts_with(XML) {
        let parts = text.split(XML).skip(1);
        return parts.map(|part| xml(&format!("{XML}{}", part.trim()), &schema)).collect();
    }
    if let Some(rest) = text.strip_prefix(MISTRAL) {
        let rest = rest.trim();
        return if rest.starts_with(['[', '{']) {
            list(rest)
        } else {
            rest.split(MISTRAL).map(mistral).collect()
        };
    }
    if let Some(rest) = text.strip_prefix(GEMMA) {
        let parts = rest.split(GEMMA).map(|part| part.trim().trim_end_matches(GEMMA_END));
        return parts.map(gemma).collect();
    }
    if let Some(rest) = text.strip_prefix(GRANITE) {
        return list(rest.trim_end_matches("<|/tool_call|>"));
    }
    if let Some(rest) = text.strip_prefix(LLAMA) {
        return list(rest).or_else(|| rest.split(';').map(json).collect());
    }
    if text.starts_with(DEEPSEEK) || text.starts_with(DEEPSEEK_ONE) {
        return text.split(DEEPSEEK_ONE).skip(1).map(deepseek).collect();
    }
    list(text)
}

fn list(text: &str) -> Option<Vec<Call>> {
    match serde_json::from_str(text.trim()).ok()? {
        Value::Array(list) => list.iter().map(call).collect(),
        one => Some(vec![call(&one)?]),
    }
}

fn json(text: &str) -> Option<Call> {
    call(&serde_json::from_str(text.trim()).ok()?)
}

fn call(value: &Value) -> Option<Call> {
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = value.get("arguments").or_else(|| value.get("parameters"))?;
    (arguments.is_object() || arguments.is_string()).then(|| (name, arguments.clone()))
}

fn mistral(text: &str) -> Option<Call> {
    let (name, arguments) = text.split_once(MISTRAL_ARGUMENTS)?;
    let name = name.split(MISTRAL_ID).next()?.trim();
    let arguments: Map<String, Value> = serde_json::from_str(arguments.trim()).ok()?;
    Some((name.to_owned(), Value::Object(arguments)))
}

fn deepseek(text: &str) -> Option<Call> {
    let text = text.split(DEEPSEEK_END).next()?;
    let (name, rest) = text.split_once(DEEPSEEK_SEPARATOR)?.1.split_once('\n')?;
    let block = rest.trim().strip_prefix("```json").unwrap_or(rest).trim().trim_end_matches("```");
    let arguments: Map<String, Value> = serde_json::from_str(block.trim()).ok()?;
    Some((name.trim().to_owned(), Value::Object(arguments)))
}

/// A call whose arguments are texts between tags. Their types are those of the function's schema.
fn xml<'s>(text: &str, schema: &impl Fn(&str) -> Option<&'s Value>) -> Option<Call> {
    let (name, mut rest) = text.strip_prefix(XML)?.split_once('>')?;
    let name = name.trim();
    let properties = schema(name).and_then(|schema| schema.get("properties"));
    let mut arguments = Map::new();
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let (key, after) = parameter.split_once('>')?;
        // A text may contain the end of another tag.
        let (value, after) =
            after.split_once("\n</parameter>").or_else(|| after.split_once("</parameter>"))?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let key = key.trim();
        let kind = properties.and_then(|properties| properties.get(key)).and_then(|one| one.get("type"));
        let value = match kind.and_then(Value::as_str) {
            Some("string") => value.into(),
            _ => serde_json::from_str(value.trim()).unwrap_or_else(|_| value.into()),
        };
        arguments.insert(key.to_owned(), value);
        rest = after;
    }
    Some((name.to_owned(), Value::Object(arguments)))
}

/// `call:f{a:1,b:<|"|>text<|"|>}`.
fn gemma(text: &str) -> Option<Call> {
    let text = text.trim().strip_prefix("call:")?;
    let at = text.find('{')?;
    let (name, arguments) = text.split_at(at);
    let mut reader = Gemma(arguments);
    let arguments = reader.value(0)?;
    (reader.0.trim().is_empty() && arguments.is_object()).then(|| (name.trim().to_owned(), arguments))
}

/// The unread rest of a value in Gemma's form: JSON with names without quotes and other quotes around texts.
struct Gemma<'t>(&'t str);

impl Gemma<'_> {
    fn take(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(expected)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.0 = self.0.trim_start();
        if self.take(GEMMA_QUOTE).is_some() {
            let (text, rest) = self.0.split_once(GEMMA_QUOTE)?;
            self.0 = rest;
            return Some(text.into());
        }
        if self.take("{").is_some() {
            let mut fields = Map::new();
            if self.take("}").is_some() {
                return Some(fields.into());
            }
            loop {
                let (name, rest) = self.0.split_once(':')?;
                self.0 = rest;
                fields.insert(name.trim().trim_matches('"').to_owned(), self.value(depth + 1)?);
                if self.take(",").is_none() {
                    self.take("}")?;
                    return Some(fields.into());
                }
            }
        }
        if self.take("[").is_some() {
            let mut items = Vec::new();
            if self.take("]").is_some() {
                return Some(items.into());
            }
            loop {
                items.push(self.value(depth + 1)?);
                if self.take(",").is_none() {
                    self.take("]")?;
                    return Some(items.into());
                }
            }
        }
        let end = self.0.find([',', '}', ']']).unwrap_or(self.0.len());
        let (plain, rest) = self.0.split_at(end);
        let value = serde_json::from_str(plain.trim()).ok()?;
        self.0 = rest;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn calls(text: &str) -> Option<Vec<Call>> {
        let schema = json!({"type": "object", "properties": {
            "path": {"type": "string"}, "line": {"type": "integer"}, "deep": {"type": "object"},
        }});
        read(text, |name| (name == "edit").then_some(&schema))
    }

    fn one(arguments: Value) -> Vec<Call> {
        vec![("edit".to_owned(), arguments)]
    }

    #[test]
    fn every_form_is_read() {
        let arguments = json!({"path": "a.rs", "line": 3});
        let object = arguments.to_string();
        for text in [
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
            format!("{{\"name\": \"edit\", \"parameters\": {object}}}"),
        ] {
            assert_eq!(calls(&text), Some(one(arguments.clone())), "{text}");
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
        for bad in [
            "call:edit{a:}",
            "call:edit{a:1",
            "call:edit{a:1}}",
            "call:edit[1]",
            "edit{}",
            "call:edit{a:<|\"|>x}",
        ] {
            assert_eq!(calls(&format!("<|tool_call>{bad}<tool_call|>")), None, "{bad}");
        }
        let deep = format!("<|tool_call>call:edit{{a:{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(calls(&deep), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(<tool_call>|\\[TOOL_CALLS\\]|<\\|tool_call>call:f|<function=|[a{}\\[\\]:,<>=|\"\n1]|<parameter=|</parameter>|<｜tool▁call▁begin｜>|<｜tool▁sep｜>){0,20}") {
            let _ = calls(&text);
        }
    }
}
