//! From a request for a key to the key, within the limits of the key that creates it: pure.

use island_protocol::{credits::MicroCredits, time::Timestamp};
use island_protocol_api::{key::CreateKey, problem::Code, quota::Quotas};
use serde_json::Value;

use crate::{ApiError, http::auth::Caller};
use island_coordinator_storage::key::Scopes;

/// A new key within the limits of the one that creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRequest {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
    pub spend_cap: Option<MicroCredits>,
    pub quotas: Option<Quotas>,
}

impl KeyRequest {
    /// Maps a request. Absent fields have the values of the key that creates.
    pub(super) fn new(request: CreateKey, caller: &Caller, now: Timestamp) -> Result<Self, ApiError> {
        if request.expires_at.is_some_and(|end| end <= now) {
            let message = "expires_at must be a time in the future, such as 2030-01-01T00:00:00Z";
            return Err(ApiError::field(Code::ValidationError, "expires_at", message));
        }
        let request = Self {
            name: request.name,
            scopes: request.scopes.as_ref().and_then(scopes).unwrap_or(caller.scopes),
            expires_at: request.expires_at.or(caller.expires_at),
            spend_cap: request.spend_cap,
            quotas: request.quotas,
        };
        request.within(caller)?;
        Ok(request)
    }

    /// Checks that the new key may do no more than its creator. The store compares caps, as it knows what is left of them.
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
fn scopes(value: &Value) -> Option<Scopes> {
    match value {
        Value::Array(names) => Scopes::from_names(names.iter().filter_map(Value::as_str)),
        other => Scopes::from_names(other.as_str()?.split(',')),
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::ids::{AccountId, ApiKeyId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::http::body;

    const NOW: i64 = 1_800_000_000_000;

    fn caller(scopes: &str, expires_in: Option<i64>, cap: Option<i64>) -> Caller {
        Caller {
            account: AccountId(Uuid::nil()),
            operator: false,
            key: ApiKeyId(Uuid::nil()),
            scopes: Scopes::from_names(scopes.split(',')).expect("scopes"),
            expires_at: expires_in.map(|ms| Timestamp::from_unix_ms(NOW + ms)),
            spend_cap: cap.map(MicroCredits),
            has_quotas: false,
            batch: None,
        }
    }

    fn parse(body: &Value, caller: &Caller) -> Result<KeyRequest, (String, String)> {
        let parsed = body::fields(body.clone()).parse();
        let now = Timestamp::from_unix_ms(NOW);
        parsed.and_then(|request| KeyRequest::new(request, caller, now)).map_err(|error| {
            let problem = error.body().error;
            (problem.code, problem.param.unwrap_or_default())
        })
    }

    #[test]
    fn absent_fields_have_the_values_of_the_creating_key() {
        let request = parse(&json!({"name": "n"}), &caller("read,write", Some(9), None)).expect("request");
        assert_eq!((request.scopes, request.spend_cap), (Scopes::ALL, None));
        assert_eq!(request.expires_at, Some(Timestamp::from_unix_ms(NOW + 9)));
    }

    #[test]
    fn invalid_fields_are_named() {
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
            (json!({"name": "n", "tint": "red"}), "tint"),
        ] {
            assert_eq!(parse(&body, &caller), Err(("validation_error".into(), param.into())), "{body}");
        }
    }

    #[test]
    fn a_key_grants_no_more_than_it_has() {
        let refused = |body: Value, caller: Caller, param: &str| {
            assert_eq!(parse(&body, &caller), Err(("forbidden".into(), param.into())), "{body}");
        };
        refused(json!({"name": "n", "scopes": "read,write"}), caller("write", None, None), "scopes");
        let late = json!({"name": "n", "expires_at": "2100-01-01T00:00:00Z"});
        refused(late, caller("write", Some(1_000), None), "expires_at");
        refused(json!({"name": "n"}), caller("write", None, Some(5)), "spend_cap");
    }
}
