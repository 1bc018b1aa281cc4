//! The model's own chat template, rendered within bounds: it is a program that came with a stranger's file.

mod clock;

use std::io::{self, Write};

use island_protocol::job::{Failure, FailureCode};
use minijinja::{Environment, Error, ErrorKind, Value, context, syntax::SyntaxConfig};

/// Longest template that is compiled.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Longest text it may make, besides the conversation itself.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// Instructions for one rendering, and for each message.
const FUEL: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 20_000;
const MAX_RECURSION: usize = 64;
const NAME: &str = "chat";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    fn as_value(&self) -> Value {
        Value::from_pairs([("role", self.role.as_str()), ("content", self.content.as_str())])
    }
}

/// A template that cannot be used, or a conversation it cannot render.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It is not a template our renderer understands.
    #[error("compile the model's chat template: {0}")]
    Compile(String),
    /// It took too long, nested too deep or wrote too much.
    #[error("the model's chat template went over its limits")]
    Limit,
    /// It refused the conversation in its own words.
    #[error("the model's chat template refuses the conversation: {0}")]
    Refused(String),
    /// It failed.
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

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Option<Environment<'static>>,
    bos: String,
    eos: String,
}

impl Template {
    /// Compiles a template; without one, messages are written with their roles before them.
    pub fn compile(source: Option<String>, bos: String, eos: String) -> Result<Self, TemplateError> {
        let environment = source.map(compile).transpose()?;
        Ok(Self { environment, bos, eos })
    }

    /// Whether the model brought a template.
    pub fn is_the_models_own(&self) -> bool {
        self.environment.is_some()
    }

    /// The text before the assistant's reply. `now` is the time in seconds since 1970, for templates that name the date.
    pub fn render(&self, messages: &[Message], now: i64) -> Result<String, TemplateError> {
        let Some(environment) = &self.environment else { return Ok(plain(messages)) };
        match self.render_with(environment, messages, now) {
            // Some models know no system message: theirs is said by the user.
            Err(TemplateError::Refused(_)) if messages[0].role == "system" && messages.len() > 1 => {
                self.render_with(environment, &without_system(messages), now)
            }
            rendered => rendered,
        }
    }

    fn render_with(
        &self,
        environment: &Environment<'_>,
        messages: &[Message],
        now: i64,
    ) -> Result<String, TemplateError> {
        let mut environment = environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64));
        environment.add_function("strftime_now", move |format: &str| clock::format(format, now));
        let template = environment.get_template(NAME).map_err(|error| explain(&error))?;
        let given: usize = messages.iter().map(|message| message.content.len()).sum();
        let mut output =
            Bounded { text: Vec::new(), left: MAX_ADDED_BYTES.saturating_add(given.saturating_mul(2)) };
        let values = context! {
            messages => messages.iter().map(Message::as_value).collect::<Vec<_>>(),
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => true,
        };
        template.render_captured_to(values, &mut output).map_err(|error| explain(&error))?;
        String::from_utf8(output.text).map_err(|error| TemplateError::Render(error.to_string()))
    }
}

fn compile(source: String) -> Result<Environment<'static>, TemplateError> {
    if source.len() > MAX_TEMPLATE_BYTES {
        return Err(TemplateError::Limit);
    }
    let failed = |error: Error| TemplateError::Compile(error.to_string());
    let mut environment = Environment::new();
    // As the templates' authors run them.
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.build().map_err(failed)?);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: &str| {
        Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, format!("{REFUSAL}{message}")))
    });
    environment.add_template_owned(NAME, source).map_err(failed)?;
    Ok(environment)
}

/// Marks an error as the template's own words.
const REFUSAL: &str = "refused: ";

fn explain(error: &Error) -> TemplateError {
    if matches!(error.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure) {
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

struct Bounded {
    text: Vec<u8>,
    left: usize,
}

impl Write for &mut Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
