//! Forms from the JSON Schemas of Cargos' inputs, and inputs from what was entered into them. The API checks the input:
//! here it is only given the form that the schema names.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use crate::{
    posted::Posted,
    texts::{fill, t},
    view::{Field, Kind},
};

/// Strings that may be at most this long are entered in one line.
const LINE: u64 = 256;
/// Name of the field with the whole input as JSON.
pub(crate) const WHOLE: &str = ".json";
/// Values that make more of a job visible than the Cargo's own defaults do.
const SUGGESTED: &[(&str, &str)] = &[("previews", "4")];
/// Behind the name of a file, that of the field for taking the example's.
const EXAMPLE: &str = ".example";

/// How a property is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Choice,
    Check,
    Number,
    File,
    Files,
    Text,
    Json,
}

fn entry(schema: &Value) -> Entry {
    if schema["enum"].is_array() {
        return Entry::Choice;
    }
    match schema["type"].as_str() {
        Some("boolean") => Entry::Check,
        Some("integer" | "number") => Entry::Number,
        Some("string") if schema["contentEncoding"] == "base64" => Entry::File,
        Some("string") => Entry::Text,
        Some("array") if schema["items"]["contentEncoding"] == "base64" => Entry::Files,
        _ => Entry::Json,
    }
}

/// Whether a property is entered as one file or several.
fn takes_files(schema: &Value) -> bool {
    matches!(entry(schema), Entry::File | Entry::Files)
}

/// Whether a value of this property is content in base 64, or a list of such values.
pub(crate) fn is_encoded(schema: &Value, name: &str) -> bool {
    takes_files(&schema["properties"][name])
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema["required"].as_array();
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

/// The fields for an input, filled with what was entered before, or with the example.
pub(crate) fn fields(schema: &Value, example: Option<&Value>, entered: Option<&Posted>) -> Vec<Field> {
    let input = example.map(|example| example.get("input").unwrap_or(example));
    let mut fields = Vec::new();
    for (name, property) in properties(schema) {
        let shown = input.and_then(|input| input.get(name));
        let is_main = is_required(schema, name) || shown.is_some();
        let mut field = field(name, property, shown);
        field.is_required &= is_required(schema, name);
        field.is_extra = !is_main;
        // Browsers do not keep the files of a form that comes back.
        let is_lost = entered.is_some_and(|entered| takes_files(property) && entered.file(name).is_some());
        if is_lost {
            t("input.choose_again").clone_into(&mut field.error);
            field.is_extra = false;
        }
        if let Some(entered) = entered.filter(|_| !takes_files(property)) {
            entered.raw(name).unwrap_or_default().clone_into(&mut field.value);
        }
        let takes_example = takes_files(property) && shown.is_some();
        if takes_example {
            field.is_required = false;
        }
        fields.push(field);
        if takes_example {
            let (box_name, label) = (format!("{name}{EXAMPLE}"), fill("input.example", &[("name", name)]));
            // The example must not take the place of a file that was chosen before.
            let is_set = entered.is_none_or(|entered| !is_lost && entered.get(&box_name) == "true");
            let value = if is_set { "true" } else { "" };
            fields.push(Field::new(&box_name, &label, Kind::Check).value(value));
        }
    }
    fields
}

/// The input of an earlier job as a form begins with it. A page cannot enter files, so of them there are those of the example only, if the
/// job had them; others have to be chosen again.
pub(crate) fn again(schema: &Value, example: Option<&Value>, before: &Map<String, Value>) -> Value {
    let is_shown = |name: &str, value: &Value| {
        !is_encoded(schema, name) || example.and_then(|example| example.get(name)) == Some(value)
    };
    let shown = before.iter().filter(|(name, value)| is_shown(name, value));
    Value::Object(shown.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Media types that a field for files offers, by what it is named and described as.
fn accepted(about: &str) -> &'static str {
    let text = about.to_lowercase();
    let names = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if names(&["audio", "sound", "wav", "speech"]) {
        "audio/*,video/mp4"
    } else if names(&["image", "picture", "png", "mask"]) {
        "image/*"
    } else if names(&["video"]) {
        "video/*"
    } else if names(&["pdf"]) {
        "application/pdf"
    } else {
        ""
    }
}

fn field(name: &str, property: &Value, shown: Option<&Value>) -> Field {
    let mut help = property["description"].as_str().unwrap_or_default().to_owned();
    if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
        help.push_str(&fill("input.default", &[("value", &plain(default))]));
    }
    let shown_text = shown.map(plain).unwrap_or_default();
    let kind = match entry(property) {
        Entry::Choice => {
            let values = property["enum"].as_array().into_iter().flatten().map(plain);
            let mut choices = vec![(String::new(), t("input.unset").to_owned())];
            choices.extend(values.map(|value| (value.clone(), value)));
            Kind::Choice(choices)
        }
        Entry::Check => Kind::Check,
        Entry::Number => {
            let is_whole = property["type"] == "integer";
            let bound =
                |name: &str| property[name].as_f64().map(|bound| bound.to_string()).unwrap_or_default();
            // A number that the example has must pass the step.
            let step = if is_whole { "1" } else { "any" };
            Kind::Number { step: step.to_owned(), min: bound("minimum"), max: bound("maximum") }
        }
        Entry::File => Kind::File(accepted(&format!("{name} {help}")).to_owned()),
        Entry::Files => Kind::Files(accepted(&format!("{name} {help}")).to_owned()),
        Entry::Text if property["maxLength"].as_u64().is_some_and(|max| max <= LINE) => Kind::Line,
        Entry::Text if property["format"].is_string() => Kind::Line,
        Entry::Text => Kind::Lines,
        Entry::Json => {
            help.push_str(t("input.json"));
            Kind::Code
        }
    };
    let suggested = SUGGESTED.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
    let value = match (entry(property), shown) {
        (Entry::Number, None) => suggested.unwrap_or_default(),
        (Entry::File | Entry::Files, _) => String::new(),
        (Entry::Json, Some(shown)) => serde_json::to_string_pretty(shown).unwrap_or_default(),
        (Entry::Check, None) => plain(&property["default"]),
        _ => shown_text,
    };
    Field { help, value, is_required: true, ..Field::new(name, name, kind) }
}

/// A string as it is, other values as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The input that was entered. An error names the field.
pub(crate) fn read(
    schema: &Value,
    example: Option<&Value>,
    posted: &Posted,
) -> Result<Map<String, Value>, (String, String)> {
    if let Some(whole) = posted.some(WHOLE) {
        let object = serde_json::from_str::<Map<String, Value>>(whole);
        return object
            .map_err(|error| (WHOLE.to_owned(), fill("input.bad_json", &[("error", &error.to_string())])));
    }
    let shown = example.map(|example| example.get("input").unwrap_or(example));
    let mut input = Map::new();
    for (name, property) in properties(schema) {
        let text = posted.some(name);
        let value = match entry(property) {
            Entry::File | Entry::Files => {
                let files = posted.files(name).map(|file| Value::String(BASE64_STANDARD.encode(file)));
                let files: Vec<Value> = files.collect();
                let takes_example = posted.get(&format!("{name}{EXAMPLE}")) == "true";
                let example = shown.and_then(|shown| shown.get(name)).filter(|_| takes_example);
                if files.is_empty() {
                    example.cloned()
                } else if entry(property) == Entry::Files {
                    Some(Value::Array(files))
                } else {
                    files.into_iter().next()
                }
            }
            Entry::Check => {
                let is_set = text == Some("true");
                (is_set || property["default"] == true).then_some(Value::Bool(is_set))
            }
            Entry::Number => posted.number(name),
            Entry::Choice => text.map(|text| {
                let choices = property["enum"].as_array().into_iter().flatten();
                choices
                    .into_iter()
                    .find(|choice| plain(choice) == text)
                    .cloned()
                    .unwrap_or_else(|| text.into())
            }),
            Entry::Text => {
                let raw = posted.raw(name).filter(|raw| !raw.is_empty());
                raw.map(|raw| Value::String(raw.to_owned()))
            }
            Entry::Json => match text {
                None => None,
                Some(text) => Some(json(property, text).map_err(|error| (name.clone(), error))?),
            },
        };
        input.extend(value.map(|value| (name.clone(), value)));
    }
    Ok(input)
}

/// JSON, or text where the schema allows any.
fn json(property: &Value, text: &str) -> Result<Value, String> {
    let allows_text = |schema: &Value| match &schema["type"] {
        Value::String(kind) => kind == "string",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
        _ => false,
    };
    let is_open = property.get("type").is_none() && property.get("anyOf").is_none();
    let any_of = property["anyOf"].as_array().into_iter().flatten();
    let is_text = is_open || allows_text(property) || any_of.into_iter().any(allows_text);
    serde_json::from_str(text).or_else(|error| {
        if is_text { Ok(text.into()) } else { Err(fill("input.bad_json", &[("error", &error.to_string())])) }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["text", "image"],
            "properties": {
                "text": {"type": "string"},
                "image": {"type": "string", "contentEncoding": "base64", "description": "A picture."},
                "mode": {"enum": ["a", 2]},
                "steps": {"type": "integer", "minimum": 1, "maximum": 8},
                "fast": {"type": "boolean", "default": true},
                "rows": {"type": "array"},
                "any": {"description": "Any value."},
            },
        })
    }

    #[test]
    fn each_property_has_its_field() {
        let example = json!({"input": {"text": "hello", "image": "iVBORw0KGgo="}});
        let fields = fields(&schema(), Some(&example), None);
        let of = |name: &str| fields.iter().find(|field| field.name == name).expect("a field");
        assert!(of("text").is_required && of("text").value == "hello" && of("text").kind == Kind::Lines);
        assert_eq!(of("image").kind, Kind::File("image/*".to_owned()));
        assert_eq!((of("image.example").value.as_str(), of("image").is_required), ("true", false));
        assert!(of("mode").is_extra && !of("mode").is_required);
        assert_eq!(of("fast").value, "true");
        assert_eq!(of("rows").kind, Kind::Code);
    }

    #[test]
    fn a_form_begins_with_the_input_of_an_earlier_job() {
        let example = json!({"text": "hello", "image": "iVBORw0KGgo=", "steps": 2});
        let again = |before: &Value| again(&schema(), Some(&example), before.as_object().expect("an object"));
        let of_example = json!({"text": "mine", "image": "iVBORw0KGgo=", "mode": "a"});
        assert_eq!(again(&of_example), of_example);
        // The example must not take the place of another file.
        let of_a_person = json!({"text": "mine", "image": "iVBORw0KGgoA", "mode": "a"});
        let shown = again(&of_a_person);
        assert_eq!(shown, json!({"text": "mine", "mode": "a"}));
        let fields = fields(&schema(), Some(&shown), None);
        assert!(fields.iter().any(|field| field.name == "image" && field.is_required));
        let value =
            |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.value.as_str());
        assert_eq!((value("text"), value("mode"), value("steps")), (Some("mine"), Some("a"), Some("")));
    }

    #[test]
    fn what_was_entered_becomes_the_input() {
        let posted = Posted::of(&[
            ("text", " hi\n"),
            ("mode", "2"),
            ("steps", "4"),
            ("any", "plain"),
            ("rows", "[1]"),
        ]);
        let input = read(&schema(), None, &posted).expect("an input");
        assert_eq!(
            Value::Object(input),
            json!({"text": " hi\n", "mode": 2, "steps": 4, "fast": false, "rows": [1], "any": "plain"})
        );
        let posted = Posted::of(&[("rows", "[1")]);
        assert_eq!(read(&schema(), None, &posted).expect_err("invalid JSON").0, "rows");
        let posted = Posted::of(&[(WHOLE, "{\"x\": 1}"), ("text", "ignored")]);
        assert_eq!(Value::Object(read(&schema(), None, &posted).expect("an input")), json!({"x": 1}));
    }

    #[test]
    fn a_file_that_was_chosen_is_not_replaced_by_the_example() {
        let example = json!({"input": {"text": "hello", "image": "iVBORw0KGgo="}});
        let is_set = |posted: &Posted| {
            let fields = fields(&schema(), Some(&example), Some(posted));
            let of = |name: &str| fields.iter().find(|field| field.name == name).expect("a field");
            (of("image.example").value == "true", of("image").error.is_empty())
        };
        let ticked = Posted::of(&[("image.example", "true")]);
        assert_eq!(is_set(&ticked), (true, true));
        assert_eq!(is_set(&Posted::default()), (false, true));
        assert_eq!(is_set(&ticked.with_files("image", &[b"x"])), (false, false));
    }

    #[test]
    fn several_files_are_an_array() {
        let schema = json!({"properties": {
            "pdfs": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
        }});
        assert_eq!(fields(&schema, None, None)[0].kind, Kind::Files("application/pdf".to_owned()));
        let posted = Posted::default().with_files("pdfs", &[b"a", b"b"]);
        let input = read(&schema, None, &posted).expect("an input");
        assert_eq!(Value::Object(input), json!({"pdfs": ["YQ==", "Yg=="]}));
        assert!(is_encoded(&schema, "pdfs") && !is_encoded(&schema, "other"));
    }
}
