//! Content hashes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A SHA-256 digest, written as `sha256:` and 64 lower-case hex digits, the only form that parses.
///
/// File names are derived from the 32 bytes, so no text from outside becomes part of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Text that is not `sha256:` and 64 lower-case hex digits.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a digest must be 'sha256:' and 64 lower-case hex digits")]
pub struct InvalidDigest;

impl Digest {
    /// Creates a digest from the 32 bytes of a finished hash.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the 64 hex digits without the prefix: safe as a file name.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            use fmt::Write as _;
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix("sha256:").ok_or(InvalidDigest)?.as_bytes();
        if hex.len() != 64 {
            return Err(InvalidDigest);
        }
        let nibble = |b: u8| match b {
            b'0'..=b'9' => Ok(b - b'0'),
            b'a'..=b'f' => Ok(b - b'a' + 10),
            _ => Err(InvalidDigest),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;
    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(bytes in any::<[u8; 32]>()) {
            let digest = Digest::from_bytes(bytes);
            prop_assert_eq!(digest.to_string().parse(), Ok(digest));
        }

        #[test]
        fn other_text_is_rejected(text in ".{0,80}") {
            let is_digest = text.len() == 71
                && text.starts_with("sha256:")
                && text[7..].bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            prop_assert_eq!(text.parse::<Digest>().is_ok(), is_digest);
        }
    }
}
