//! Signatures on fabric messages and claims.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    fabric::{SIGNATURE_WINDOW_MS, signed_bytes},
    time::Timestamp,
};
use nkeys::KeyPair;

/// Why a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It is missing, or not base64.
    #[error("the signature is missing or malformed")]
    Malformed,
    /// It was not made with this key over these bytes.
    #[error("the signature does not match")]
    Wrong,
    /// It is too old, or from the future.
    #[error("the signature is outside its time window")]
    Stale,
}

/// The header value for a message.
pub fn sign(key: &KeyPair, subject: &str, payload: &[u8]) -> Result<String, nkeys::error::Error> {
    Ok(STANDARD.encode(key.sign(&signed_bytes(subject, payload))?))
}

/// Whether a message that claims to have been signed at `sent_at` is neither too old nor from the future, by one of these
/// clocks.
pub fn is_timely(sent_at: Timestamp, clocks: &[Timestamp]) -> bool {
    clocks.iter().any(|now| (now.unix_ms() - sent_at.unix_ms()).abs() <= SIGNATURE_WINDOW_MS)
}

/// Verifies a signature with the signer's public key, and the time at which the message claims to have been signed, by
/// these clocks.
pub fn verify(
    public_key: &str,
    signature: Option<&str>,
    signed: &[u8],
    sent_at: Timestamp,
    clocks: &[Timestamp],
) -> Result<(), SignatureError> {
    if !is_timely(sent_at, clocks) {
        return Err(SignatureError::Stale);
    }
    let signature = signature.and_then(|text| STANDARD.decode(text).ok()).ok_or(SignatureError::Malformed)?;
    let key = KeyPair::from_public_key(public_key).map_err(|_| SignatureError::Wrong)?;
    key.verify(signed, &signature).map_err(|_| SignatureError::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_subject_payload_key_and_time() {
        let (key, other) = (KeyPair::new_user(), KeyPair::new_user());
        let now = Timestamp::from_unix_ms(1_000_000);
        let signature = sign(&key, "a.b", b"{}").expect("sign");
        let check = |public: &KeyPair, subject: &str, payload: &[u8], at: Timestamp| {
            verify(&public.public_key(), Some(&signature), &signed_bytes(subject, payload), at, &[now])
        };
        assert_eq!(check(&key, "a.b", b"{}", now), Ok(()));
        assert_eq!(check(&other, "a.b", b"{}", now), Err(SignatureError::Wrong));
        assert_eq!(check(&key, "a.c", b"{}", now), Err(SignatureError::Wrong));
        assert_eq!(check(&key, "a.b", b"{ }", now), Err(SignatureError::Wrong));
        assert_eq!(check(&key, "a.b", b"{}", now.plus_ms(-120_001)), Err(SignatureError::Stale));
        assert_eq!(check(&key, "a.b", b"{}", now.plus_ms(120_001)), Err(SignatureError::Stale));
        assert_eq!(verify(&key.public_key(), None, b"", now, &[now]), Err(SignatureError::Malformed));
    }

    #[test]
    fn one_of_two_clocks_that_is_right_suffices() {
        let now = Timestamp::from_unix_ms(1_000_000_000);
        let wrong = now.plus_ms(3_600_000);
        for clocks in [[now, wrong], [wrong, now]] {
            assert!(is_timely(now, &clocks) && is_timely(wrong, &clocks));
            assert!(!is_timely(now.plus_ms(1_800_000), &clocks));
        }
    }
}
