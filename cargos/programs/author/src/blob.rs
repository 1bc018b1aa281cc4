//! Bytes inside JSON.

use std::fmt;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Reads base64 with or without padding, writes it with.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes that stand in JSON as a text in base64; in an input, line breaks and a leading `data:...;base64,` are allowed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(from)?;
        if text.starts_with("data:") {
            let start = text.find(";base64,").map(|at| at + ";base64,".len());
            text.drain(..start.ok_or_else(|| de::Error::custom("the data: address is not in base64"))?);
        }
        text.retain(|c| !c.is_ascii_whitespace());
        BASE64.decode(&text).map(Blob).map_err(|error| de::Error::custom(format!("no base64: {error}")))
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_base64_in_json() {
        let blob = Blob(vec![0, 255, 62, 63]);
        let text = serde_json::to_string(&blob).expect("JSON");
        assert_eq!(text, r#""AP8+Pw==""#);
        for text in [&text, r#""AP8+Pw""#, r#""AP8+\nPw==\n""#, r#""data:image/png;base64,AP8+Pw==""#] {
            assert_eq!(serde_json::from_str::<Blob>(text).expect("base64"), blob, "{text}");
        }
        for text in ["\"AP8*\"", "\"data:text/plain,hello\"", "1"] {
            assert!(serde_json::from_str::<Blob>(text).is_err(), "{text}");
        }
    }
}
