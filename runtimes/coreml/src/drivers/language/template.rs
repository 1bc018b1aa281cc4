//! The repository's chat template, rendered within bounds: it is a program that came with a stranger's file.

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_onnx::{
    repository::Repository,
    run::{rejected, wrong},
    text::tokens::Tokens,
};
use minijinja::{Environment, Error, ErrorKind, Value, context, syntax::SyntaxConfig};

/// Longest template that is compiled, bytes.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Longest text that it may make, bytes.
const MAX_RENDERED_BYTES: usize = 8 << 20;
/// Instructions for one rendering, and for each message.
const FUEL: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 20_000;
const MAX_RECURSION: usize = 64;
const NAME: &str = "chat";

/// A compiled chat template, or none.
#[derive(Debug)]
pub(super) struct Template(Option<Environment<'static>>);

impl Template {
    /// Of `chat_template.jinja`, or else of `tokenizer_config.json`.
    pub(super) fn load(repository: &Repository) -> Result<Self, Failure> {
        let file = repository.bytes("chat_template.jinja")?;
        let file = file
            .map(|bytes| String::from_utf8(bytes).map_err(|_| rejected("chat_template.jinja is not text")));
        let settings = repository.json("tokenizer_config.json")?.unwrap_or_default();
        let said = settings.get("chat_template").and_then(serde_json::Value::as_str).map(str::to_owned);
        let source = file.transpose()?.or(said);
        source.map(compile).transpose().map(Self)
    }

    /// The text before the reply. Without a template only the texts themselves are said.
    pub(super) fn render(&self, messages: &[(String, String)], tokens: &Tokens) -> Result<String, Failure> {
        let Some(environment) = &self.0 else {
            let texts: Vec<String> = messages.iter().map(|(_, content)| harmless(content, tokens)).collect();
            return Ok(texts.join("\n\n"));
        };
        let mut environment = environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64));
        let messages: Vec<Value> = messages
            .iter()
            .map(|(role, content)| context! { role => role, content => harmless(content, tokens) })
            .collect();
        let special = |name: &str| tokens.special(name).unwrap_or_default();
        let values = context! {
            messages => messages,
            bos_token => special("bos_token"),
            eos_token => special("eos_token"),
            add_generation_prompt => true,
        };
        let rendered = environment.get_template(NAME).and_then(|template| template.render(values));
        let rendered = rendered.map_err(|error| explain(&error))?;
        if rendered.len() > MAX_RENDERED_BYTES {
            return Err(Failure::of_job(
                FailureCode::TemplateLimit,
                "the model's chat template wrote too much",
            ));
        }
        Ok(rendered)
    }
}

/// What a user wrote is never taken for control tokens: an invisible character breaks what looks like one.
fn harmless(content: &str, tokens: &Tokens) -> String {
    let special = tokens.inner().get_added_tokens_decoder().into_values().filter(|token| token.special);
    let present = special.filter(|token| content.contains(&token.content));
    present.fold(content.to_owned(), |text, token| {
        let mut broken = token.content.clone();
        let after_first = broken.chars().next().map_or(0, char::len_utf8);
        broken.insert(after_first, '\u{200b}');
        text.replace(&token.content, &broken)
    })
}

fn compile(source: String) -> Result<Environment<'static>, Failure> {
    if source.len() > MAX_TEMPLATE_BYTES {
        return Err(rejected(format!("the model's chat template has more than {MAX_TEMPLATE_BYTES} bytes")));
    }
    let failed = |error: Error| rejected(format!("compile the model's chat template: {error}"));
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

fn explain(error: &Error) -> Failure {
    if matches!(error.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure) {
        return Failure::of_job(FailureCode::TemplateLimit, "the model's chat template went over its limits");
    }
    match error.detail().and_then(|detail| detail.strip_prefix(REFUSAL)) {
        Some(words) => wrong(format!("the model's chat template refuses the conversation: {words}")),
        None => rejected(format!("render the model's chat template: {error}")),
    }
}
