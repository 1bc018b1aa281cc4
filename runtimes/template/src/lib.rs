//! A model's chat template, rendered within limits: it is an untrusted program from the model's file.

mod bounds;
mod clock;
mod depth;
mod generation;
mod json;
mod kinds;
mod widths;

use std::{collections::BTreeMap, panic::catch_unwind};

use bounds::Bounds;
use island_protocol::job::{Failure, FailureCode};
use minijinja::{
    Environment, Error, ErrorKind, Value, context,
    machinery::{self, Instructions},
    syntax::SyntaxConfig,
    value::Serde,
};
use serde_json::{Value as Json, json};

/// Maximum length of a template.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Maximum length of the rendered text, in addition to the conversation.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// Instruction limit for one rendering, and for each message. Checks count as well.
const FUEL: u64 = 2_000_000;
const FUEL_PER_MESSAGE: u64 = 40_000;
/// A value may have this many times the length of the rendered text.
const VALUE_FACTOR: usize = 4;
/// Maximum bytes of all results together, in addition to this many times the conversation.
const MAX_PRODUCED_BYTES: usize = 64 << 20;
const PRODUCED_FACTOR: usize = 32;
/// Values that are looked at by the checks of one instruction, on average.
const VISITS_PER_INSTRUCTION: u64 = 10;
/// Depth of calls; a macro counts as four.
const MAX_RECURSION: usize = 200;
const NAME: &str = "chat";

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// The reasoning before it, which some templates repeat.
    pub reasoning: Option<String>,
    /// Functions it called, their arguments as objects.
    pub calls: Vec<Json>,
    /// Results of its calls, `{"name", "response"}`, for templates that do not know the role `tool`.
    pub responses: Vec<Json>,
    /// The call that a message of the role `tool` answers.
    pub call_id: Option<String>,
    /// The name of the function, for a message of the role `tool`.
    pub name: Option<String>,
}

impl Message {
    /// A message that is only text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    fn as_value(&self) -> Value {
        let mut fields =
            vec![("role", Value::from(self.role.as_str())), ("content", Value::from(self.content.as_str()))];
        if !self.calls.is_empty() {
            fields.push(("tool_calls", Value::from(Serde(&self.calls))));
        }
        if !self.responses.is_empty() {
            fields.push(("tool_responses", Value::from(Serde(&self.responses))));
        }
        let optional = [
            ("reasoning_content", &self.reasoning),
            // The name of the same field in other templates.
            ("thinking", &self.reasoning),
            ("tool_call_id", &self.call_id),
            ("name", &self.name),
        ];
        for (field, value) in optional {
            fields.extend(value.as_deref().map(|value| (field, Value::from(value))));
        }
        Value::from_pairs(fields)
    }

    /// The same with the arguments of its calls as JSON in texts.
    fn with_textual_arguments(&self) -> Self {
        let mut message = self.clone();
        for arguments in message.calls.iter_mut().filter_map(|call| call.pointer_mut("/function/arguments")) {
            if !arguments.is_string() {
                *arguments = json::spaced(arguments).into();
            }
        }
        message
    }

    /// The same as text, for a template without support of calls.
    fn in_words(&self) -> Self {
        if self.role == "tool" {
            let name = self.name.as_deref().or(self.call_id.as_deref()).unwrap_or("the function");
            return Self::new("user", format!("{name} returned: {}", self.content));
        }
        let calls = self.calls.iter().map(|call| call["function"].to_string());
        let lines: Vec<String> =
            [self.content.clone()].into_iter().filter(|line| !line.is_empty()).chain(calls).collect();
        Self { reasoning: self.reasoning.clone(), ..Self::new(self.role.clone(), lines.join("\n")) }
    }
}

/// Functions that a reply may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer<'o> {
    /// For a template that supports them.
    pub tools: &'o [Json],
    /// As text, for a template that does not.
    pub instructions: String,
}

/// What a template renders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Functions that the reply may call, for a template that supports them.
    pub tools: Vec<Json>,
    /// How the model is to reason.
    pub thinking: Thinking,
}

/// How a model is to reason before it answers, for templates that know the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether it reasons; `None` leaves that to the template.
    pub enabled: Option<bool>,
    /// How much: `low`, `medium` or `high`; `None` leaves that to the template.
    pub effort: Option<String>,
}

impl Thinking {
    /// The variables of templates.
    fn variables(&self) -> Value {
        let mut variables = Vec::new();
        if let Some(enabled) = self.enabled {
            variables.extend([("enable_thinking", Value::from(enabled)), ("thinking", Value::from(enabled))]);
        }
        variables.extend(self.effort.as_deref().map(|effort| ("reasoning_effort", Value::from(effort))));
        Value::from_pairs(variables)
    }
}

/// A template that cannot be used, or a conversation that it cannot render.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The renderer cannot parse the template.
    #[error("compile the model's chat template: {0}")]
    Compile(String),
    /// It exceeded its limits of time, nesting or length.
    #[error("the model's chat template exceeded its limits")]
    Limit,
    /// It refused the conversation with this message.
    #[error("the model's chat template refuses the conversation: {0}")]
    Refused(String),
    /// Rendering failed.
    #[error("render the model's chat template: {0}")]
    Render(String),
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        let code = match error {
            TemplateError::Compile(_) | TemplateError::Render(_) => FailureCode::ModelRejected,
            TemplateError::Limit => FailureCode::TemplateLimit,
            TemplateError::Refused(_) => FailureCode::InvalidInput,
        };
        Self::of_job(code, error.to_string())
    }
}

/// What a template supports, as far as its text shows it.
#[derive(Debug, Clone, Copy, Default)]
struct Knows {
    /// The list of functions.
    tools: bool,
    /// Calls in messages of the assistant, and messages with results.
    calls: bool,
    /// Results as a part of the message that called, and not as messages: the first templates of Gemma 4.
    responses: bool,
}

impl Knows {
    fn of(source: &str) -> Self {
        let responses = ["['tool_responses']", ".tool_responses"];
        Self {
            tools: source.contains("tools"),
            calls: source.contains("tool_calls"),
            responses: responses.iter().any(|name| source.contains(name)) && !source.contains("tool_call_id"),
        }
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Option<Environment<'static>>,
    knows: Knows,
    bos: String,
    eos: String,
}

impl Template {
    /// Compiles a template; without one, messages are written after their roles.
    pub fn compile(source: Option<String>, bos: String, eos: String) -> Result<Self, TemplateError> {
        let knows = source.as_deref().map(Knows::of).unwrap_or_default();
        let environment = source.map(compile).transpose()?;
        Ok(Self { environment, knows, bos, eos })
    }

    /// The conversation as this template needs it: with functions as data, or as text.
    pub fn conversation(&self, messages: &[Message], offer: Option<&Offer<'_>>) -> Conversation {
        let tools = offer.map(|offer| offer.tools.to_vec()).unwrap_or_default();
        let mut messages = match self.knows {
            Knows { responses: true, .. } => with_responses(messages),
            Knows { calls: true, .. } | Knows { tools: true, .. } => messages.to_vec(),
            _ => messages.iter().map(Message::in_words).collect(),
        };
        if self.knows.tools {
            return Conversation { messages, tools, ..Conversation::default() };
        }
        if let Some(Offer { instructions, .. }) = offer {
            match messages.first_mut().filter(|first| first.role == "system") {
                Some(system) => system.content = format!("{}\n\n{instructions}", system.content),
                None => messages.insert(0, Message::new("system", instructions.as_str())),
            }
        }
        Conversation { messages, ..Conversation::default() }
    }

    /// Whether the model has a template.
    pub fn is_the_models_own(&self) -> bool {
        self.environment.is_some()
    }

    /// Returns the text before the assistant's reply. `now` is the time in seconds since 1970, for templates that use the date.
    pub fn render(&self, conversation: &Conversation, now: i64) -> Result<String, TemplateError> {
        let messages = &conversation.messages;
        let Some(environment) = &self.environment else { return Ok(plain(messages)) };
        match self.render_with(environment, conversation, messages, now) {
            // Some templates append the arguments of a call to a text.
            Err(TemplateError::Render(_)) if messages.iter().any(|message| !message.calls.is_empty()) => {
                let messages: Vec<Message> = messages.iter().map(Message::with_textual_arguments).collect();
                self.render_with(environment, conversation, &messages, now)
            }
            // Some templates take one system message, at the beginning, and turns that alternate; agents send more of both.
            Err(refused @ TemplateError::Refused(_)) => {
                let turns = in_turns(messages);
                let rendered = if turns == *messages {
                    Err(refused)
                } else {
                    self.render_with(environment, conversation, &turns, now)
                };
                match rendered {
                    // Some models do not support system messages: the user's first message includes it.
                    Err(TemplateError::Refused(_)) if turns.len() > 1 && turns[0].role == "system" => {
                        self.render_with(environment, conversation, &without_system(&turns), now)
                    }
                    rendered => rendered,
                }
            }
            rendered => rendered,
        }
    }

    fn render_with(
        &self,
        environment: &Environment<'_>,
        Conversation { tools, thinking, .. }: &Conversation,
        messages: &[Message],
        now: i64,
    ) -> Result<String, TemplateError> {
        let template = environment.get_template(NAME).map_err(|error| explain(&error))?;
        let compiled = machinery::get_compiled_template(&template);
        let code = bounds::guarded(&compiled.instructions);
        let blocks: BTreeMap<&str, Instructions<'_>> =
            compiled.blocks.iter().map(|(name, code)| (*name, bounds::guarded(code))).collect();
        let mut environment = environment.clone();
        // It could include itself, without checks.
        environment.remove_template(NAME);
        let fuel = FUEL + FUEL_PER_MESSAGE * messages.len() as u64;
        environment.set_fuel(Some(fuel));
        environment.add_function("strftime_now", move |format: &str| clock::format(format, now));
        let length =
            |message: &Message| message.content.len() + message.reasoning.as_ref().map_or(0, String::len);
        let given: usize = messages.iter().map(length).sum();
        let longest = MAX_ADDED_BYTES.saturating_add(given.saturating_mul(2));
        let data =
            messages.iter().flat_map(|message| message.calls.iter().chain(&message.responses)).chain(tools);
        let data: usize = given + data.map(|value| value.to_string().len()).sum::<usize>();
        let value = MAX_ADDED_BYTES.saturating_add(data.saturating_mul(2)).saturating_mul(VALUE_FACTOR);
        let produced = MAX_PRODUCED_BYTES.saturating_add(data.saturating_mul(PRODUCED_FACTOR));
        let bounds = Bounds {
            value: value as u64,
            produced: (produced as u64).into(),
            visits: fuel.saturating_mul(VISITS_PER_INSTRUCTION).into(),
        };
        bounds.install(&mut environment);
        let values = context! {
            messages => messages.iter().map(Message::as_value).collect::<Vec<_>>(),
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => true,
            // The library that templates are written for defines both, as `none` if absent: some templates test `is not none`.
            tools => if tools.is_empty() { Value::from(()) } else { Value::from(Serde(tools)) },
            documents => Value::from(()),
            ..thinking.variables()
        };
        let mut text = String::new();
        let mut output = machinery::make_string_output(&mut text);
        let escape = compiled.initial_auto_escape.clone();
        machinery::eval(&environment, &code, values, &blocks, &mut output, escape)
            .map_err(|error| explain(&error))?;
        if text.len() > longest { Err(TemplateError::Limit) } else { Ok(text) }
    }
}

/// The lexer counts columns in 16 bits. In builds with overflow checks it panics at an error beyond them.
fn compile(source: String) -> Result<Environment<'static>, TemplateError> {
    catch_unwind(|| parse(source)).unwrap_or(Err(TemplateError::Limit))
}

fn parse(source: String) -> Result<Environment<'static>, TemplateError> {
    if source.len() > MAX_TEMPLATE_BYTES {
        return Err(TemplateError::Limit);
    }
    let failed = |error: Error| TemplateError::Compile(error.to_string());
    let mut environment = Environment::new();
    // With the settings that the templates' authors use.
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let syntax = syntax.build().map_err(failed)?;
    let source = generation::without_generation_tags(&source).into_owned();
    if !depth::is_bounded(&source, &syntax) {
        return Err(TemplateError::Limit);
    }
    environment.set_syntax(syntax);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(widths::method);
    environment.add_filter("format", widths::format);
    environment.add_filter("indent", widths::indent);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("join", widths::join);
    environment.add_filter("replace", widths::replace);
    environment.add_filter("batch", widths::batch);
    environment.add_filter("slice", widths::slice);
    environment.add_test("iterable", kinds::is_iterable);
    environment.add_test("number", kinds::is_number);
    environment.add_test("sequence", kinds::is_sequence);
    environment.add_function("raise_exception", |message: &str| {
        Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
    });
    environment.add_template_owned(NAME, source).map_err(failed)?;
    Ok(environment)
}

/// Prefix of an error that the template itself raised.
const REFUSAL: &str = "refused: ";

fn explain(error: &Error) -> TemplateError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TemplateError::Limit;
    }
    match error.detail() {
        Some(detail) if detail.starts_with(REFUSAL) => {
            TemplateError::Refused(detail[REFUSAL.len()..].to_owned())
        }
        Some(detail) if detail.contains("recursion limit") => TemplateError::Limit,
        _ => TemplateError::Render(error.to_string()),
    }
}

/// The messages with the results of calls in the messages that called. A result that is a JSON object is passed as one.
fn with_responses(messages: &[Message]) -> Vec<Message> {
    let mut folded: Vec<Message> = Vec::new();
    for message in messages {
        match folded.last_mut().filter(|last| message.role == "tool" && !last.calls.is_empty()) {
            Some(caller) => {
                let called = |call: &&Json| {
                    call["id"].as_str().is_some() && call["id"].as_str() == message.call_id.as_deref()
                };
                let function = caller.calls.iter().find(called).map(|call| call["function"]["name"].clone());
                let name = function.or_else(|| message.name.as_deref().map(Json::from));
                let object = serde_json::from_str(&message.content).ok().filter(Json::is_object);
                let response = object.unwrap_or_else(|| message.content.as_str().into());
                caller
                    .responses
                    .push(json!({ "name": name.unwrap_or_else(|| "unknown".into()), "response": response }));
            }
            None => folded.push(message.clone()),
        }
    }
    folded
}

/// The same with one system message, at the beginning: later ones become the user's. Messages of the user in a row become one.
fn in_turns(messages: &[Message]) -> Vec<Message> {
    let mut turns: Vec<Message> = Vec::new();
    for message in messages {
        let begins = turns.iter().all(|turn| turn.role == "system");
        let role = if message.role == "system" && !begins { "user" } else { message.role.as_str() };
        match turns.last_mut() {
            Some(last) if last.role == role && matches!(role, "system" | "user") => {
                last.content = format!("{}\n\n{}", last.content, message.content);
            }
            _ => turns.push(Message { role: role.to_owned(), ..message.clone() }),
        }
    }
    turns
}

fn without_system(messages: &[Message]) -> Vec<Message> {
    let (system, rest) =
        messages.split_first().map_or(("", messages), |(first, rest)| (first.content.as_str(), rest));
    let mut rest = rest.to_vec();
    if let Some(first) = rest.first_mut() {
        first.content = format!("{system}\n\n{}", first.content);
    }
    rest
}

fn plain(messages: &[Message]) -> String {
    let line = |message: &Message| {
        let mut role = message.role.clone();
        role[..1].make_ascii_uppercase();
        format!("{role}: {}\n\n", message.content)
    };
    messages.iter().map(line).chain(["Assistant:".to_owned()]).collect()
}

/// A user's text in which nothing looks like a control token any more: an invisible character breaks what did.
pub fn defuse<'s>(text: &str, specials: impl IntoIterator<Item = &'s str>) -> String {
    let present = specials.into_iter().filter(|special| text.contains(special));
    present.fold(text.to_owned(), |text, special| {
        let mut broken = special.to_owned();
        let after_first = broken.chars().next().map_or(0, char::len_utf8);
        broken.insert(after_first, '\u{200b}');
        text.replace(special, &broken)
    })
}

#[cfg(test)]
mod tests;
