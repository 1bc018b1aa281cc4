//! Signatures in the form of Standard Webhooks: HMAC-SHA256 of the id, the time and the body. Pure, except for new secrets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Begins a secret; base64 follows.
const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const BYTES: usize = 24;

/// Generates a secret.
pub fn new_secret() -> String {
    format!("{PREFIX}{}", STANDARD.encode(rand::random::<[u8; BYTES]>()))
}

/// The value of `webhook-signature`. Returns `None` for text that is not a secret.
pub(super) fn sign(secret: &str, id: &str, unix_s: i64, body: &str) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{unix_s}.{body}").as_bytes());
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_specification() {
        // From the tests of the reference libraries, https://github.com/standard-webhooks/standard-webhooks.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let signature =
            sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn secrets_differ_and_sign() {
        let (one, two) = (new_secret(), new_secret());
        assert_ne!(one, two);
        assert!(sign(&one, "a", 1, "b").is_some());
        assert_ne!(sign(&one, "a", 1, "b"), sign(&two, "a", 1, "b"));
        assert_eq!(sign("ak_x", "a", 1, "b"), None);
    }

    proptest! {
        #[test]
        fn every_part_is_signed(id in "[a-z]{1,8}", other in "[A-Z]{1,8}", at in 0_i64..1 << 40) {
            let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
            let signature = sign(secret, &id, at, &id);
            prop_assert_ne!(&signature, &sign(secret, &other, at, &id));
            prop_assert_ne!(&signature, &sign(secret, &id, at + 1, &id));
            prop_assert_ne!(&signature, &sign(secret, &id, at, &other));
        }
    }
}
