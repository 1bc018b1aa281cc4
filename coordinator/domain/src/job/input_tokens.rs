//! How many tokens an input can have, known without the model's vocabulary: what is held for them, and what an Island may report.

use serde_json::{Map, Value};

/// Tokens that a chat template may add.
const TEMPLATE: u64 = 1024;
/// Tokens that a picture may take.
const PICTURE: u64 = 8192;
/// Tokens that a sound may take besides those of its length.
const SOUND: u64 = 256;
/// Bytes of the address of a sound for which it has at most one token: the models that take most have 25 in a second, and hardly any speech
/// is stored in less than 8 kbit/s.
const SOUND_BYTES: u64 = 50;
/// Bytes of a usual token of English text.
const USUAL_BYTES: u64 = 4;

/// Numbers of tokens of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputTokens {
    /// At most: a token stands for at least one byte.
    pub max: u64,
    /// Likely, where nobody reported the number.
    pub usual: u64,
}

/// The numbers for an input of a language model.
pub fn count(input: &Map<String, Value>) -> InputTokens {
    let mut total = Total::default();
    for (name, value) in input {
        match value {
            Value::Array(messages) if name == "messages" => {
                messages.iter().for_each(|message| total.add_message(message));
            }
            value => total.add(value),
        }
    }
    let Total { text, pictures, sounds } = total;
    let media = pictures.saturating_mul(PICTURE).saturating_add(sounds);
    InputTokens { max: text.saturating_add(media).saturating_add(TEMPLATE), usual: text / USUAL_BYTES }
}

#[derive(Debug, Default)]
struct Total {
    text: u64,
    pictures: u64,
    /// Tokens of sounds.
    sounds: u64,
}

impl Total {
    /// Adds a message. Engines read files in the parts of its content alone: any other text is read as text, however it begins.
    fn add_message(&mut self, message: &Value) {
        let Value::Object(fields) = message else { return self.add(message) };
        for (name, value) in fields {
            self.text += name.len() as u64;
            match value {
                Value::Array(parts) if name == "content" => parts.iter().for_each(|part| self.add_part(part)),
                value => self.add(value),
            }
        }
    }

    fn add_part(&mut self, part: &Value) {
        let file = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
        match (part["type"].as_str(), file("/image_url/url"), file("/input_audio/data")) {
            (Some("image_url"), Some(_), _) => self.pictures += 1,
            (Some("input_audio"), _, Some(data)) => self.sounds += SOUND + data.len() as u64 / SOUND_BYTES,
            _ => self.add(part),
        }
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.text += text.len() as u64,
            Value::Array(values) => values.iter().for_each(|value| self.add(value)),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                self.text += name.len() as u64;
                self.add(value);
            }),
            // Schemas of functions contain them.
            Value::Null | Value::Bool(_) | Value::Number(_) => self.text += 24,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(input: Value) -> InputTokens {
        count(input.as_object().expect("an object"))
    }

    #[test]
    fn text_counts_by_its_bytes_and_pictures_by_their_number() {
        let text = of(json!({"messages": [{"role": "user", "content": "x".repeat(4000)}]}));
        assert!((4000..4000 + TEMPLATE + 100).contains(&text.max), "{text:?}");
        assert!((1000..1010).contains(&text.usual), "{text:?}");
        let content = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
        let picture = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
        let seen = of(content(json!({"type": "image_url", "image_url": {"url": picture}})));
        assert!((PICTURE..PICTURE + TEMPLATE + 200).contains(&seen.max), "{seen:?}");
        let sound = format!("data:audio/wav;base64,{}", "A".repeat(100_000));
        let taken = of(content(json!({"type": "input_audio", "input_audio": {"data": sound}})));
        assert!((2_000 + SOUND..2_200 + SOUND + TEMPLATE).contains(&taken.max), "{taken:?}");
        assert!(of(json!({"tools": [{"a": 1}, true]})).usual > 0);
    }

    /// Otherwise a long text would be held and paid as one picture.
    #[test]
    fn a_text_that_begins_as_the_address_of_a_file_is_text() {
        let text = format!("data:audio/wav,{}", "word ".repeat(20_000));
        let content = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
        for input in [
            json!({"prompt": text}),
            json!({"raw_prompt": text}),
            content(json!(text)),
            content(json!([{"type": "text", "text": text}])),
            content(json!([{"type": "text", "text": text, "image_url": {"url": text}}])),
            json!({"messages": [{"role": "assistant", "reasoning_content": text}]}),
            json!({"prompt": "a", "tools": [{"function": {"description": text, "image_url": {"url": text}}}]}),
        ] {
            let counted = of(input.clone());
            assert!(counted.max >= 100_000, "{counted:?} for {}", input.to_string().split_at(60).0);
        }
    }
}
