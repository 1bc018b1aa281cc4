//! Media as they appear in an input or output: base64, or a `data:` URL of it.

use std::borrow::Cow;

use base64::{
    Engine as _,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};

use crate::error::{EngineError, invalid_input};

/// Clients send base64 with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes `what`, which may have up to `most` bytes.
pub fn decode(text: &str, what: &str, most: usize) -> Result<Vec<u8>, EngineError> {
    let text = match text.strip_prefix("data:") {
        Some(url) => url
            .split_once(";base64,")
            .map(|(_, data)| data)
            .ok_or_else(|| invalid_input(format!("{what} is a data: URL that is not base64")))?,
        None if text.starts_with("http://") || text.starts_with("https://") => {
            return Err(invalid_input(format!(
                "{what} is an address; this Cargo takes the file itself, as base64"
            )));
        }
        None => text,
    };
    if text.len() / 4 * 3 > most {
        return Err(invalid_input(format!("{what} has more than {most} bytes")));
    }
    let text = if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        Cow::Owned(text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect::<String>())
    } else {
        Cow::Borrowed(text)
    };
    if text.is_empty() {
        return Err(invalid_input(format!("{what} is empty")));
    }
    LENIENT
        .decode(text.as_bytes())
        .map_err(|error| invalid_input(format!("{what} is not base64")).because(error))
}

/// Bytes as they appear in an output.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_forms_of_base64_are_read() {
        for text in ["aGVsbG8=", "aGVsbG8", "data:text/plain;base64,aGVsbG8=", "aGVs\nbG8=\n"] {
            assert_eq!(decode(text, "the sound", 100).expect(text), b"hello");
        }
    }

    #[test]
    fn errors_name_the_field_and_the_reason() {
        let why = |text: &str| decode(text, "the sound", 5).expect_err(text).message();
        assert!(why("!").contains("the sound is not base64"));
        assert!(why("").contains("empty"));
        assert!(why("aGVsbG8gdGhlcmU=").contains("more than 5 bytes"));
        assert!(why("data:text/plain,hello").contains("not base64"));
        assert!(why("https://example.com/a.wav").contains("address"));
    }
}
