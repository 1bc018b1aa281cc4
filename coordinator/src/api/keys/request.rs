//! What a new key is asked to be, within what the key that asks may give: pure.

use island_protocol::{credits::MicroCredits, problem::Code, time::Timestamp};
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    api::{ApiError, auth::Caller, body::Fields},
    storage::key::Scopes,
};

const LONGEST_NAME: usize = 100;

/// A checked wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRequest {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub spend_cap: Option<MicroCredits>,
}

fn invalid(param: &str, message: &str) -> ApiError {
    ApiError::field(Code::ValidationError, param, message)
}

impl KeyRequest {
    /// Checks the fields. What is left out is as with the key that asks.
    pub(super) fn parse(mut fields: Fields, caller: &Caller, now: Timestamp) -> Result<Self, ApiError> {
        let Value::String(name) = fields.required("name")? else {
            return Err(invalid("name", "name must be a string"));
        };
        let length = name.chars().count();
        if name.trim().is_empty() || length > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(invalid("name", "name must have 1 to 100 characters, no control characters"));
        }
        let scopes = fields.take("scopes").map(|value| scopes(&value)).transpose()?;
        let expires_at = fields.take("expires_at").map(|value| expiry(value, now)).transpose()?;
        let spend_cap = fields.number("spend_cap", 0.0..=1e9)?;
        fields.nothing_else()?;
        let request = Self {
            name,
            scopes: scopes.unwrap_or(caller.scopes),
            expires_at: expires_at.or(caller.expires_at),
            spend_cap: spend_cap.map(|credits| MicroCredits((credits * 1e6).round() as i64)),
        };
        request.within(caller)?;
        Ok(request)
    }

    /// Nobody gives more than he has. A cap is compared by the store, with what is left of it.
    fn within(&self, caller: &Caller) -> Result<(), ApiError> {
        let beyond = |param: &str, message: &str| Err(ApiError::field(Code::Forbidden, param, message));
        if self.scopes.list().into_iter().any(|scope| !caller.scopes.allow(scope)) {
            return beyond("scopes", "a key cannot give more scopes than it has");
        }
        if caller.expires_at.is_some_and(|end| self.expires_at.is_none_or(|wanted| wanted > end)) {
            return beyond("expires_at", "a key cannot make one that outlives it");
        }
        if caller.spend_cap.is_some() && self.spend_cap.is_none() {
            return beyond("spend_cap", "a capped key must give the new one a spend_cap, out of its own");
        }
        Ok(())
    }
}

/// `["read", "write"]` or `"read,write"`.
fn scopes(value: &Value) -> Result<Scopes, ApiError> {
    let names: Option<Vec<&str>> = match value {
        Value::String(text) => Some(text.split(',').collect()),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    };
    names
        .and_then(Scopes::from_names)
        .ok_or_else(|| invalid("scopes", "scopes must be a list of read and write, or both with a comma"))
}

fn expiry(value: Value, now: Timestamp) -> Result<Timestamp, ApiError> {
    let must =
        || invalid("expires_at", "expires_at must be a moment in the future, such as 2030-01-01T00:00:00Z");
    Timestamp::deserialize(value).ok().filter(|moment| *moment > now).ok_or_else(must)
}

#[cfg(test)]
mod tests {
    use island_protocol::ids::{AccountId, ApiKeyId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::api::body;

    const NOW: i64 = 1_800_000_000_000;

    fn caller(scopes: &str, expires_in: Option<i64>, cap: Option<i64>) -> Caller {
        Caller {
            account: AccountId(Uuid::nil()),
            operator: false,
            key: ApiKeyId(Uuid::nil()),
            scopes: Scopes::from_names(scopes.split(',')).expect("scopes"),
            expires_at: expires_in.map(|ms| Timestamp::from_unix_ms(NOW + ms)),
            spend_cap: cap.map(MicroCredits),
        }
    }

    fn parse(body: &Value, caller: &Caller) -> Result<KeyRequest, (String, String)> {
        let fields = body::fields(body.clone());
        KeyRequest::parse(fields, caller, Timestamp::from_unix_ms(NOW)).map_err(|error| {
            let problem = error.body().error;
            (problem.code, problem.param.unwrap_or_default())
        })
    }

    #[test]
    fn what_is_left_out_is_as_with_the_key_that_asks() {
        let request = parse(&json!({"name": "n"}), &caller("read,write", Some(9), None)).expect("request");
        assert_eq!((request.scopes, request.spend_cap), (Scopes::ALL, None));
        assert_eq!(request.expires_at, Some(Timestamp::from_unix_ms(NOW + 9)));
    }

    #[test]
    fn bad_fields_are_named() {
        let caller = caller("read,write", None, None);
        for (body, param) in [
            (json!({}), "name"),
            (json!({"name": 1}), "name"),
            (json!({"name": "  "}), "name"),
            (json!({"name": "a\u{7}"}), "name"),
            (json!({"name": "x".repeat(101)}), "name"),
            (json!({"name": "n", "scopes": []}), "scopes"),
            (json!({"name": "n", "scopes": "admin"}), "scopes"),
            (json!({"name": "n", "scopes": 1}), "scopes"),
            (json!({"name": "n", "expires_at": "tomorrow"}), "expires_at"),
            (json!({"name": "n", "expires_at": "2020-01-01T00:00:00Z"}), "expires_at"),
            (json!({"name": "n", "spend_cap": -1}), "spend_cap"),
            (json!({"name": "n", "spend_cap": "5"}), "spend_cap"),
            (json!({"name": "n", "colour": "red"}), "colour"),
        ] {
            assert_eq!(parse(&body, &caller), Err(("validation_error".into(), param.into())), "{body}");
        }
    }

    #[test]
    fn nobody_gives_more_than_he_has() {
        let refused = |body: Value, caller: Caller, param: &str| {
            assert_eq!(parse(&body, &caller), Err(("forbidden".into(), param.into())), "{body}");
        };
        refused(json!({"name": "n", "scopes": "read,write"}), caller("write", None, None), "scopes");
        let late = json!({"name": "n", "expires_at": "2100-01-01T00:00:00Z"});
        refused(late, caller("write", Some(1_000), None), "expires_at");
        refused(json!({"name": "n"}), caller("write", None, Some(5)), "spend_cap");
    }
}
