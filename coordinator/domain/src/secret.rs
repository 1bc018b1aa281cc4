//! API keys: generated here, shown once, stored only as hashes.

use rand::distr::{Alphanumeric, SampleString as _};
use sha2::{Digest as _, Sha256};

/// Letters and digits after `ak_`: 36 of 62 characters have 214 bits of entropy.
const LENGTH: usize = 36;
/// Leading characters that are stored in plain text, to name a key and to find it.
const PREFIX: usize = 11;

/// A new key. Without `Debug`, as it has the secret.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a secret is not printed by accident")]
pub struct NewKey {
    /// The whole secret.
    pub secret: String,
    pub prefix: String,
    pub hash: String,
}

/// Generates a key.
pub fn new_key() -> NewKey {
    let secret = format!("ak_{}", Alphanumeric.sample_string(&mut rand::rng(), LENGTH));
    NewKey { prefix: prefix(&secret).unwrap_or_default().to_owned(), hash: hash(&secret), secret }
}

/// Generates the token of a session, or the code of a link that begins one; as long as a key.
pub fn new_token() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), LENGTH)
}

/// Letters and digits of an invitation's code: 95 bits of entropy.
const CODE_LENGTH: usize = 16;

/// Generates the code of an invitation.
pub fn new_code() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), CODE_LENGTH)
}

/// The part of a key that is stored in plain text. Returns `None` for text that is not a key of this service.
pub fn prefix(secret: &str) -> Option<&str> {
    let plain = secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && secret.starts_with("ak_") && secret.len() > PREFIX && secret.len() <= 128)
        .then(|| &secret[..PREFIX])
}

/// SHA-256 in hex. A key has more entropy than the hash, so nothing slower is needed.
pub fn hash(secret: &str) -> String {
    island_protocol::digest::Digest::from_bytes(Sha256::digest(secret.as_bytes()).into()).hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_found_by_what_is_stored() {
        let (one, two) = (new_key(), new_key());
        assert_ne!(one.secret, two.secret);
        assert_eq!(prefix(&one.secret), Some(one.prefix.as_str()));
        assert_eq!(hash(&one.secret), one.hash);
        assert!(!one.hash.contains(&one.secret[3..]));
    }

    #[test]
    fn other_text_is_not_a_key() {
        for text in ["", "ak_", "sk_aaaaaaaaaaaa", "ak_éééééééééé", "ak_a b c d e f g h"] {
            assert_eq!(prefix(text), None, "{text}");
        }
    }
}
