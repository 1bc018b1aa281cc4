//! Functions that a reply may call: which are offered, how they are described to a model without support for them, and which reply counts
//! as a call.

pub mod calls;
pub(crate) mod forms;
mod json;
pub(crate) mod past;

use serde_json::{Map, Value, json};

/// Maximum number of functions in one request.
const MAX_TOOLS: usize = 128;

/// The functions of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// In the form of the request: `{"type": "function", "function": {"name", "description", "parameters"}}`.
    pub tools: Vec<Value>,
    /// Whether the reply must be a call.
    pub choice: Choice,
    /// Whether only the first call of a reply counts.
    pub is_single: bool,
}

/// An invalid field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrong {
    /// The name of the field.
    pub field: &'static str,
    /// The rule for it.
    pub must: &'static str,
}

/// Whether a reply must be a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The model decides.
    Auto,
    /// A call of any function.
    Required,
    /// A call of this function.
    Named(String),
}

impl Offer {
    /// Parses `tools` and `tool_choice`; `Ok(None)` if no function is offered.
    pub fn read(fields: &Map<String, Value>) -> Result<Option<Self>, Wrong> {
        let Some(tools) = fields.get("tools") else { return Ok(None) };
        let wrong = Wrong { field: "tools", must: "a list of up to 128 functions, each with a name" };
        let no_choice = Wrong { field: "tool_choice", must: "auto, none, required or one function" };
        let tools = tools.as_array().filter(|tools| tools.len() <= MAX_TOOLS).ok_or(wrong)?;
        if !tools.iter().all(|tool| name_of(tool).is_some()) {
            return Err(wrong);
        }
        let choice = match fields.get("tool_choice") {
            None => Choice::Auto,
            Some(Value::String(choice)) => match choice.as_str() {
                "auto" => Choice::Auto,
                "none" => return Ok(None),
                "required" => Choice::Required,
                _ => return Err(no_choice),
            },
            Some(one) => Choice::Named(name_of(one).ok_or(no_choice)?.to_owned()),
        };
        let is_single = match fields.get("parallel_tool_calls") {
            None => false,
            Some(several) => {
                let wrong = Wrong { field: "parallel_tool_calls", must: "true or false" };
                !several.as_bool().ok_or(wrong)?
            }
        };
        let offer = Self { tools: tools.clone(), choice, is_single };
        if let Choice::Named(name) = &offer.choice
            && !offer.has(name)
        {
            return Err(Wrong { field: "tool_choice", must: "the name of an offered function" });
        }
        Ok((!offer.tools.is_empty()).then_some(offer))
    }

    /// Whether a function of this name is offered.
    pub fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| name_of(tool) == Some(name))
    }

    /// The JSON Schema of a function's arguments.
    pub fn schema(&self, name: &str) -> Option<&Value> {
        let tool = self.tools.iter().find(|tool| name_of(tool) == Some(name))?;
        tool.pointer("/function/parameters")
    }

    /// The schema that the whole reply must match: that of a call, if it must be one; the required `form` or any call, if it may be one.
    pub fn reply_schema(&self, form: Option<&Value>) -> Option<Value> {
        if self.choice == Choice::Auto {
            return form.map(|form| json!({ "anyOf": [moved(form, "#/anyOf/0"), self.any_call()] }));
        }
        let wanted = |tool: &&Value| match &self.choice {
            Choice::Auto => false,
            Choice::Required => true,
            Choice::Named(name) => name_of(tool) == Some(name),
        };
        let tools: Vec<&Value> = self.tools.iter().filter(wanted).collect();
        match tools[..] {
            [] => None,
            [tool] => Some(call_schema(tool, "#")),
            _ => {
                let calls = tools.iter().enumerate();
                let calls: Vec<Value> =
                    calls.map(|(n, tool)| call_schema(tool, &format!("#/anyOf/{n}"))).collect();
                Some(json!({ "anyOf": calls }))
            }
        }
    }

    /// The schema of a call of any function. Arguments are not restricted, as in replies without a required form.
    fn any_call(&self) -> Value {
        let names: Vec<&str> = self.tools.iter().filter_map(name_of).collect();
        call(&json!({ "enum": names }), &json!({ "type": "object" }))
    }

    /// The functions as text, for a model whose template does not support them.
    pub fn instructions(&self) -> String {
        let list: Vec<String> = self.tools.iter().map(|tool| tool["function"].to_string()).collect();
        format!(
            "You may call these functions:\n{}\nTo call one, reply with nothing but JSON of this form: \
             {{\"name\": \"the function\", \"arguments\": {{}}}}",
            list.join("\n")
        )
    }
}

fn name_of(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str().filter(|name| !name.is_empty() && name.len() <= 128)
}

/// The schema of a call of one function, as a part of another schema at this place.
fn call_schema(tool: &Value, place: &str) -> Value {
    let function = &tool["function"];
    let arguments = match function.get("parameters").filter(|schema| schema.is_object()) {
        Some(schema) => moved(schema, &format!("{place}/properties/arguments")),
        None => json!({ "type": "object" }),
    };
    call(&json!({ "const": function["name"] }), &arguments)
}

/// The schema of a call whose name and arguments match these.
fn call(name: &Value, arguments: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { "name": name, "arguments": arguments },
        "required": ["name", "arguments"],
        "additionalProperties": false,
    })
}

/// A schema as a part of another one at this place: references within it lead there.
fn moved(schema: &Value, place: &str) -> Value {
    match schema {
        Value::Array(list) => Value::Array(list.iter().map(|part| moved(part, place)).collect()),
        Value::Object(map) => {
            let part = |(name, part): (&String, &Value)| {
                let target = part.as_str().filter(|_| name == "$ref").and_then(|text| text.strip_prefix('#'));
                let moved = match target {
                    Some(target) => Value::String(format!("{place}{target}")),
                    None => moved(part, place),
                };
                (name.clone(), moved)
            };
            Value::Object(map.iter().map(part).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<Option<Offer>, Wrong> {
        Offer::read(value.as_object().expect("an object"))
    }

    fn weather() -> Value {
        json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}])
    }

    #[test]
    fn tool_choice_is_parsed() {
        assert_eq!(read(&json!({})), Ok(None));
        assert_eq!(read(&json!({"tools": []})), Ok(None));
        assert_eq!(read(&json!({"tools": weather(), "tool_choice": "none"})), Ok(None));
        let auto = read(&json!({"tools": weather()})).expect("valid").expect("offered");
        assert_eq!((auto.choice.clone(), auto.reply_schema(None)), (Choice::Auto, None));
        let named =
            json!({"tools": weather(), "tool_choice": {"type": "function", "function": {"name": "weather"}}});
        let named = read(&named).expect("valid").expect("offered");
        for form in [None, Some(&json!({"type": "string"}))] {
            let forced = named.reply_schema(form).expect("a schema");
            assert_eq!(forced["properties"]["name"]["const"], "weather");
        }
    }

    #[test]
    fn a_reply_that_may_be_a_call_has_the_required_form_or_is_one() {
        let offer = read(&json!({"tools": weather()})).expect("valid").expect("offered");
        let form =
            json!({"$defs": {"mood": {"enum": ["calm"]}}, "properties": {"mood": {"$ref": "#/$defs/mood"}}});
        let schema = offer.reply_schema(Some(&form)).expect("a schema");
        assert_eq!(schema["anyOf"][0]["properties"]["mood"]["$ref"], "#/anyOf/0/$defs/mood");
        assert_eq!(schema["anyOf"][0]["$defs"], form["$defs"]);
        assert_eq!(schema["anyOf"][1]["properties"]["name"]["enum"], json!(["weather"]));
    }

    #[test]
    fn references_within_the_parameters_of_a_forced_call_are_resolved() {
        let parameters =
            json!({"$defs": {"mood": {"enum": ["calm"]}}, "properties": {"mood": {"$ref": "#/$defs/mood"}}});
        let tool = |name| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        for tools in [json!([tool("one")]), json!([tool("one"), tool("two")])] {
            let offer = read(&json!({"tools": tools, "tool_choice": "required"}));
            let schema = offer.expect("valid").expect("offered").reply_schema(None).expect("a schema");
            let grammar = crate::grammar::grammar(&schema).expect("every reference leads to a schema");
            assert!(grammar.contains("calm"), "{grammar}");
        }
    }

    #[test]
    fn invalid_tools_are_rejected() {
        let other = json!({"type": "function", "function": {"name": "other"}});
        for (bad, field) in [
            (json!({"tools": "weather"}), "tools"),
            (json!({"tools": [{"type": "function"}]}), "tools"),
            (json!({"tools": weather(), "tool_choice": "must"}), "tool_choice"),
            (json!({"tools": weather(), "tool_choice": other}), "tool_choice"),
        ] {
            assert_eq!(read(&bad).expect_err("no offer").field, field, "{bad}");
        }
    }
}
