//! Revokes users of the fabric before their JWTs expire: the list of revoked users is part of the account's JWT. A
//! server that gets a new one disconnects those users and refuses them until they have a newer JWT.

use std::time::Duration;

use async_nats::ConnectOptions;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use island_protocol::{address::fabric_servers, time::Timestamp};
use serde_json::{Map, Value};

use super::{
    jwt::{self, Claims, MintError},
    keys::Authority,
};

/// Maximum time for a reply of the server.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A revoked user: JWTs that were issued until then are not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub public_key: String,
    /// Unix seconds.
    pub until: i64,
}

/// Why the fabric has no new list.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    #[error(transparent)]
    Mint(#[from] MintError),
    #[error("connect to the fabric's system account")]
    Connect(#[source] async_nats::ConnectError),
    #[error("send a request to the fabric's system account")]
    Request(#[source] async_nats::RequestError),
    #[error("the fabric has no readable JWT of the account")]
    Account,
    #[error("the fabric refused the account's JWT: {0}")]
    Refused(String),
}

/// Sends the account's JWT with this list of revoked users to the servers.
pub async fn update(
    url: &str,
    authority: &Authority,
    revoked: &[Revoked],
    now: Timestamp,
) -> Result<(), RevocationError> {
    let signer = authority.clone();
    let sign = move |nonce: Vec<u8>| {
        let signer = signer.clone();
        async move { signer.sign_nonce(&nonce).map_err(async_nats::AuthError::new) }
    };
    let client = ConnectOptions::with_jwt(authority.system_user_jwt(now)?, sign)
        .name("island-coordinator revocations")
        .request_timeout(Some(TIMEOUT))
        .connect(fabric_servers(url))
        .await
        .map_err(RevocationError::Connect)?;
    let sent = async {
        let lookup = format!("$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP", authority.account());
        let current = client.request(lookup, "".into()).await.map_err(RevocationError::Request)?;
        let claims = payload(&current.payload).ok_or(RevocationError::Account)?;
        let jwt = with_revocations(authority, &claims, revoked, now)?;
        let reply = client.request("$SYS.REQ.CLAIMS.UPDATE", jwt.into()).await;
        accepted(&reply.map_err(RevocationError::Request)?.payload)
    };
    let sent = sent.await;
    // The next try makes a connection of its own.
    let _ = client.drain().await;
    sent
}

/// The claims of a JWT that the server itself has checked.
fn payload(jwt: &[u8]) -> Option<Map<String, Value>> {
    let part = std::str::from_utf8(jwt).ok()?.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// The account's JWT with another list. It is not older than the current one, which a server would retain.
fn with_revocations(
    authority: &Authority,
    current: &Map<String, Value>,
    revoked: &[Revoked],
    now: Timestamp,
) -> Result<String, RevocationError> {
    let mut nats = current.get("nats").cloned().ok_or(RevocationError::Account)?;
    let list: Map<String, Value> =
        revoked.iter().map(|user| (user.public_key.clone(), user.until.into())).collect();
    nats["revocations"] = list.into();
    let issued_at = current.get("iat").and_then(Value::as_i64).unwrap_or(0).max(now.unix_ms() / 1000);
    let name = current.get("name").and_then(Value::as_str).unwrap_or_default();
    let claims = Claims { subject: authority.account(), name, issued_at, expires_at: None, nats };
    Ok(jwt::mint(authority.operator(), &claims)?)
}

fn accepted(reply: &[u8]) -> Result<(), RevocationError> {
    let reply: Value = serde_json::from_slice(reply).unwrap_or_default();
    if reply["data"]["code"] == 200 {
        return Ok(());
    }
    let description = reply["error"]["description"].as_str().unwrap_or("it gave no reason");
    Err(RevocationError::Refused(description.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_new_jwt_retains_everything_else_and_is_not_older() {
        let authority = Authority::for_tests();
        let current = json!({"iat": 2000, "name": "ISLAND", "nats": {"limits": {"conn": 7}, "revocations": {"UOLD": 1}}});
        let revoked = [Revoked { public_key: "UNEW".to_owned(), until: 9 }];
        for (now, issued_at) in [(1_000_000, 2000), (3_000_000, 3000)] {
            let current = current.as_object().expect("an object");
            let now = Timestamp::from_unix_ms(now);
            let jwt = with_revocations(&authority, current, &revoked, now).expect("a JWT");
            let claims = payload(jwt.as_bytes()).expect("claims");
            assert_eq!(claims["nats"], json!({"limits": {"conn": 7}, "revocations": {"UNEW": 9}}));
            assert_eq!((&claims["iat"], &claims["name"]), (&json!(issued_at), &json!("ISLAND")));
            assert_eq!(claims["sub"], authority.account());
        }
    }

    #[test]
    fn a_refusal_has_its_reason() {
        assert!(accepted(br#"{"data": {"code": 200}}"#).is_ok());
        let error = accepted(br#"{"error": {"description": "jwt update failed"}}"#).expect_err("refused");
        assert!(error.to_string().ends_with("jwt update failed"));
        assert!(accepted(b"?").is_err());
    }
}
