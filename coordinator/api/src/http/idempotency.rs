//! `Idempotency-Key`: a repeated request gets the answer of the first one and has no further effect.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{IntoResponseParts, ResponseParts},
};
use island_protocol::ids::AccountId;
use island_protocol_api::problem::Code;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{ApiError, http::body::Fields};
use island_coordinator_storage::idempotency::Claim;

const HEADER: &str = "idempotency-key";
const MAX_LENGTH: usize = 255;

/// The key of a request and the fingerprint of its body.
#[derive(Debug, Clone)]
pub(crate) struct IdempotencyKey {
    route: &'static str,
    key: String,
    fingerprint: String,
}

impl IdempotencyKey {
    /// Reads the header; returns `None` if it is absent.
    pub(crate) fn read(
        headers: &HeaderMap,
        route: &'static str,
        body: &Fields,
    ) -> Result<Option<Self>, ApiError> {
        let mut values = headers.get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let plain = value.as_bytes().iter().all(|byte| (0x20..0x7f).contains(byte));
        let key = value.to_str().unwrap_or_default().trim();
        if values.next().is_some() || !plain || key.is_empty() || key.len() > MAX_LENGTH {
            let message = format!("send one Idempotency-Key of 1 to {MAX_LENGTH} printable ASCII characters");
            return Err(ApiError::new(Code::InvalidIdempotencyKey, message));
        }
        Ok(Some(Self { route, key: key.to_owned(), fingerprint: fingerprint(body.values()) }))
    }

    /// The headers of a request with this key, which is made in this process.
    pub(crate) fn headers(key: &str) -> HeaderMap {
        // A key that is not a valid value would not be one of a client either.
        let value = HeaderValue::from_str(key);
        value.into_iter().map(|value| (HeaderName::from_static(HEADER), value)).collect()
    }

    /// The key of one of several jobs of a request; that of the first is the request's own.
    pub(crate) fn of_part(&self, index: u32) -> Self {
        // A client's key has no such character.
        let key = if index == 0 { self.key.clone() } else { format!("{}\n{index}", self.key) };
        Self { key, ..self.clone() }
    }

    /// The endpoint.
    pub(crate) fn endpoint(&self) -> &'static str {
        self.route
    }

    /// The claim that the store checks. An earlier one is valid for `life_ms`.
    pub(crate) fn claim(&self, account: AccountId, life_ms: i64) -> Claim<'_> {
        Claim { account, route: self.route, key: &self.key, fingerprint: &self.fingerprint, life_ms }
    }
}

/// The error for a key that was used before with another body.
pub(crate) fn reused() -> ApiError {
    ApiError::new(
        Code::IdempotencyKeyReused,
        "this Idempotency-Key was used before with another body: use a new one",
    )
}

/// `Idempotency-Replayed: true`, if this is the answer to an earlier request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replayed(pub bool);

impl IntoResponseParts for Replayed {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        if self.0 {
            let name = HeaderName::from_static("idempotency-replayed");
            parts.headers_mut().insert(name, HeaderValue::from_static("true"));
        }
        Ok(parts)
    }
}

/// SHA-256 of the body's canonical form: names sorted, without white space.
fn fingerprint<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let mut text = String::new();
    canonical_object(fields, &mut text);
    island_protocol::digest::Digest::from_bytes(Sha256::digest(text.as_bytes()).into()).hex()
}

fn canonical_object<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, text: &mut String) {
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    text.push('{');
    for (name, value) in fields {
        text.push_str(&Value::String(name.clone()).to_string());
        text.push(':');
        canonical(value, text);
        text.push(',');
    }
    text.push('}');
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => canonical_object(fields.iter(), text),
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn of(value: Value) -> String {
        let fields: Map<String, Value> = serde_json::from_value(value).expect("object");
        fingerprint(fields.iter())
    }

    #[test]
    fn the_fingerprint_ignores_only_order_and_white_space() {
        let one = of(json!({"a": 1, "b": {"c": [1, 2], "d": "x"}}));
        assert_eq!(one, of(json!({"b": {"d": "x", "c": [1, 2]}, "a": 1})));
        for other in [
            json!({"a": 1, "b": {"c": [2, 1], "d": "x"}}),
            json!({"a": "1", "b": {"c": [1, 2], "d": "x"}}),
            json!({"a": 1, "b": {"c": [1, 2]}, "d": "x"}),
            json!({}),
        ] {
            assert_ne!(one, of(other));
        }
    }
}
