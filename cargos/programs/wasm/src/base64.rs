//! Bytes as text and back: base64, base32 and hexadecimal.

use std::process::ExitCode;

use data_encoding::{
    BASE32, BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE,
};
use island_cargo::{Blob, Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Input {
    Encode {
        text: Option<String>,
        data: Option<Blob>,
        #[serde(default)]
        alphabet: Alphabet,
        #[serde(default = "yes")]
        padding: bool,
    },
    Decode {
        encoded: String,
        #[serde(default)]
        alphabet: Alphabet,
    },
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Alphabet {
    #[default]
    Standard,
    Url,
    Base32,
    Hex,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Encoded { encoded: String, bytes: usize },
    Decoded { text: Option<String>, data: Blob, bytes: usize },
}

fn yes() -> bool {
    true
}

impl Alphabet {
    fn writer(self, padding: bool) -> Encoding {
        match (self, padding) {
            (Self::Standard, true) => BASE64,
            (Self::Standard, false) => BASE64_NOPAD,
            (Self::Url, true) => BASE64URL,
            (Self::Url, false) => BASE64URL_NOPAD,
            (Self::Base32, true) => BASE32,
            (Self::Base32, false) => data_encoding::BASE32_NOPAD,
            (Self::Hex, _) => HEXLOWER,
        }
    }

    /// Reads text whose padding was cut off.
    fn reader(self) -> Encoding {
        match self {
            Self::Hex => HEXLOWER_PERMISSIVE,
            other => other.writer(false),
        }
    }
}

fn convert(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    match input {
        Input::Encode { text, data, alphabet, padding } => {
            let data = match (text, data) {
                (Some(text), None) => text.into_bytes(),
                (None, Some(Blob(data))) => data,
                _ => return Err(Error::invalid("give either text or data")),
            };
            Ok(Answer::Encoded { encoded: alphabet.writer(padding).encode(&data), bytes: data.len() })
        }
        Input::Decode { mut encoded, alphabet } => {
            encoded.retain(|c| !c.is_ascii_whitespace());
            let digits = encoded.trim_end_matches('=');
            let data = alphabet.reader().decode(digits.as_bytes()).or_invalid("encoded")?;
            let bytes = data.len();
            Ok(Answer::Decoded { text: String::from_utf8(data.clone()).ok(), data: Blob(data), bytes })
        }
    }
}

fn main() -> ExitCode {
    run(convert)
}
