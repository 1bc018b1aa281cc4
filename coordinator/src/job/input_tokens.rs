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
pub(crate) struct InputTokens {
    /// At most: a token stands for at least one byte.
    pub max: u64,
    /// Likely, where nobody reported the number.
    pub usual: u64,
}

/// The numbers for an input of a language model.
pub(crate) fn count(input: &Map<String, Value>) -> InputTokens {
    let mut total = Total::default();
    input.values().for_each(|value| total.add(value));
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
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) if text.starts_with("data:audio/") => {
                self.sounds += SOUND + text.len() as u64 / SOUND_BYTES;
            }
            Value::String(text) if text.starts_with("data:") => self.pictures += 1,
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
        let picture =
            json!({"image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(1_000_000))}});
        let seen = of(json!({"messages": [picture]}));
        assert!((PICTURE..PICTURE + TEMPLATE + 100).contains(&seen.max), "{seen:?}");
        let sound =
            json!({"input_audio": {"data": format!("data:audio/wav;base64,{}", "A".repeat(100_000))}});
        let taken = of(json!({"messages": [sound]}));
        assert!((2_000 + SOUND..2_200 + SOUND + TEMPLATE).contains(&taken.max), "{taken:?}");
        assert!(of(json!({"tools": [{"a": 1}, true]})).usual > 0);
    }
}
