//! The repository's chat template.

use std::time::{SystemTime, UNIX_EPOCH};

use island_runtimes_kit::{
    error::{EngineError, ErrorKind, invalid_model},
    keys::TOKENIZER,
    repository::Repository,
    text::tokens::Tokens,
    values::read,
};
use island_runtimes_template::{Message, Template, TemplateError, defuse};
use serde_json::Value;

/// A template with the control tokens that a user's text must not contain.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    template: Template,
    specials: Vec<String>,
}

impl ChatTemplate {
    /// From `chat_template.jinja` or `tokenizer_config.json`.
    pub(super) fn load(repository: &Repository, tokens: &Tokens) -> Result<Self, EngineError> {
        let file = repository.bytes("chat_template.jinja")?;
        let file = file.map(|bytes| {
            String::from_utf8(bytes).map_err(|_| invalid_model("chat_template.jinja is not text"))
        });
        let source = file.transpose()?.or(configured(&tokens.settings)?);
        let named = |name: &str| tokens.special(name).unwrap_or_default();
        let template =
            Template::compile(source, named("bos_token"), named("eos_token")).map_err(template_error)?;
        let added = tokens.inner().get_added_tokens_decoder().into_values();
        let specials = added.filter(|token| token.special).map(|token| token.content).collect();
        Ok(Self { template, specials })
    }

    /// The prompt of a conversation.
    pub(super) fn render(&self, messages: &[(String, String)]) -> Result<String, EngineError> {
        let harmless = |content: &str| defuse(content, self.specials.iter().map(String::as_str));
        let messages: Vec<Message> =
            messages.iter().map(|(role, content)| Message::new(role, harmless(content))).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        self.template.render(&self.template.conversation(&messages, None), now).map_err(template_error)
    }
}

/// The template of `tokenizer_config.json`: a text, or of a list the one that is called `default`.
fn configured(settings: &Value) -> Result<Option<String>, EngineError> {
    let source = |stated: &Value| match stated {
        Value::String(source) => Some(source.clone()),
        Value::Array(all) => {
            let default = all.iter().find(|one| one["name"] == "default")?;
            default["template"].as_str().map(str::to_owned)
        }
        _ => None,
    };
    read(TOKENIZER.file, settings, "chat_template", source)
}

fn template_error(error: TemplateError) -> EngineError {
    let kind = match error {
        TemplateError::Compile(_) | TemplateError::Render(_) => ErrorKind::InvalidModel,
        TemplateError::Limit => ErrorKind::TemplateLimit,
        TemplateError::Refused(_) => ErrorKind::InvalidInput,
    };
    EngineError::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_is_a_text_or_the_default_of_a_list() {
        let of =
            |stated: Value| configured(&json!({"chat_template": stated})).map_err(|error| error.message());
        assert_eq!((of(Value::Null), of(json!("a"))), (Ok(None), Ok(Some("a".to_owned()))));
        let listed = json!([{"name": "rag", "template": "b"}, {"name": "default", "template": "a"}]);
        assert_eq!(of(listed), Ok(Some("a".to_owned())));
        for stated in [json!(5), json!({"default": "a"}), json!([{"name": "rag", "template": "b"}])] {
            let refused = of(stated.clone()).expect_err("no template");
            assert_eq!(refused, format!("tokenizer_config.json: chat_template = {stated} is not supported"));
        }
    }
}
