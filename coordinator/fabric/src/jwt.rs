//! JWTs in nats-server's form, signed with `nkeys`.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use data_encoding::BASE32_NOPAD;
use nkeys::KeyPair;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512_256};

/// A key that cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("sign a JWT")]
pub struct MintError(#[source] nkeys::error::Error);

/// Claims of a JWT apart from its `nats` part.
#[derive(Debug)]
pub(crate) struct Claims<'a> {
    /// Public key of the subject.
    pub subject: &'a str,
    pub name: &'a str,
    /// Unix seconds.
    pub issued_at: i64,
    /// Unix seconds; `None` for never.
    pub expires_at: Option<i64>,
    /// The part that depends on the kind of JWT, including `type` and `version`.
    pub nats: Value,
}

/// Signs the claims with the issuer's key.
pub(crate) fn mint(issuer: &KeyPair, claims: &Claims<'_>) -> Result<String, MintError> {
    let mut body = Map::new();
    if let Some(expires_at) = claims.expires_at {
        body.insert("exp".into(), json!(expires_at));
    }
    body.insert("iat".into(), json!(claims.issued_at));
    body.insert("iss".into(), json!(issuer.public_key()));
    body.insert("name".into(), json!(claims.name));
    body.insert("sub".into(), json!(claims.subject));
    body.insert("nats".into(), claims.nats.clone());
    let unsigned = Value::Object(body.clone()).to_string();
    body.insert("jti".into(), json!(BASE32_NOPAD.encode(&Sha512_256::digest(unsigned.as_bytes()))));

    let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let payload = URL_SAFE_NO_PAD.encode(Value::Object(body).to_string());
    let signed = format!("{header}.{payload}");
    let signature = issuer.sign(signed.as_bytes()).map_err(MintError)?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_verifies_under_its_issuer() {
        let issuer = KeyPair::new_account();
        let claims = Claims {
            subject: "UABC",
            name: "x",
            issued_at: 1,
            expires_at: Some(2),
            nats: json!({"type": "user", "version": 2}),
        };
        let jwt = mint(&issuer, &claims).expect("mint");
        let (signed, signature) = jwt.rsplit_once('.').expect("three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
        issuer.verify(signed.as_bytes(), &signature).expect("valid signature");
        let body = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).expect("payload")).expect("base64");
        let body: Value = serde_json::from_slice(&body).expect("json");
        assert_eq!(
            (&body["sub"], &body["exp"], &body["iss"]),
            (&json!("UABC"), &json!(2), &json!(issuer.public_key()))
        );
    }
}
