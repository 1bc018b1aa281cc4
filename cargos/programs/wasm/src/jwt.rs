//! Reads, verifies and signs JSON Web Tokens.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, dangerous, decode, decode_header, encode,
    errors::ErrorKind,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase")]
enum Input {
    /// Reads a token without believing it.
    Decode {
        token: String,
    },
    Verify(Check),
    Sign {
        claims: Map<String, Value>,
        secret: String,
        algorithm: Option<Algorithm>,
        key_id: Option<String>,
    },
}

#[derive(Deserialize)]
struct Check {
    token: String,
    /// For HS256, HS384 and HS512.
    secret: Option<String>,
    /// In PEM, for the others.
    public_key: Option<String>,
    /// What the token may be signed with; any that fits the key where it is missing.
    algorithms: Option<Vec<Algorithm>>,
    audience: Option<String>,
    issuer: Option<String>,
    #[serde(default)]
    leeway_s: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Read {
        header: Box<Header>,
        claims: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        valid: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Signed {
        token: String,
    },
}

/// Returns the key for an algorithm. A secret is never used as a public key or vice versa: the algorithm comes from the token's
/// header, which its author chose.
fn key(check: &Check, algorithm: Algorithm) -> Result<DecodingKey, Error> {
    let pem = || check.public_key.as_deref().or_invalid("a token of this algorithm needs public_key");
    match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
            let secret = check.secret.as_deref().or_invalid("a token of this algorithm needs secret")?;
            Ok(DecodingKey::from_secret(secret.as_bytes()))
        }
        Algorithm::ES256 | Algorithm::ES384 => {
            DecodingKey::from_ec_pem(pem()?.as_bytes()).or_invalid("public_key")
        }
        Algorithm::EdDSA => DecodingKey::from_ed_pem(pem()?.as_bytes()).or_invalid("public_key"),
        _ => DecodingKey::from_rsa_pem(pem()?.as_bytes()).or_invalid("public_key"),
    }
}

/// Whether the token can be believed, or why not.
fn verify(check: &Check, header: &Header) -> Result<Option<String>, Error> {
    let algorithm = header.alg;
    if check.algorithms.as_ref().is_some_and(|allowed| !allowed.contains(&algorithm)) {
        return Ok(Some(format!("{algorithm:?} is not among the algorithms")));
    }
    let mut rules = Validation::new(algorithm);
    rules.leeway = check.leeway_s;
    rules.validate_nbf = true;
    // `exp` is held to where it is there; tokens without one are of the issuer's choosing.
    rules.required_spec_claims.clear();
    match &check.audience {
        Some(audience) => rules.set_audience(&[audience]),
        None => rules.validate_aud = false,
    }
    if let Some(issuer) = &check.issuer {
        rules.set_issuer(&[issuer]);
        rules.required_spec_claims.insert("iss".to_owned());
    }
    if check.audience.is_some() {
        rules.required_spec_claims.insert("aud".to_owned());
    }
    match decode::<Value>(&check.token, &key(check, algorithm)?, &rules) {
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(reason(error.kind()))),
    }
}

fn reason(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::InvalidSignature => "the signature is wrong".to_owned(),
        ErrorKind::ExpiredSignature => "it has expired".to_owned(),
        ErrorKind::ImmatureSignature => "it is not valid yet".to_owned(),
        ErrorKind::InvalidAudience => "it is for another audience".to_owned(),
        ErrorKind::InvalidIssuer => "it is from another issuer".to_owned(),
        other => format!("{other:?}"),
    }
}

fn read(token: &str) -> Result<(Header, Value), Error> {
    // Rejects "none", which is not supported.
    let header = decode_header(token).or_invalid("token")?;
    let claims = dangerous::insecure_decode::<Value>(token).or_invalid("token")?.claims;
    Ok((header, claims))
}

fn work(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    match input {
        Input::Decode { token } => {
            let (header, claims) = read(&token)?;
            Ok(Answer::Read { header: Box::new(header), claims, valid: None, reason: None })
        }
        Input::Verify(check) => {
            let (header, claims) = read(&check.token)?;
            let reason = verify(&check, &header)?;
            Ok(Answer::Read { header: Box::new(header), claims, valid: Some(reason.is_none()), reason })
        }
        Input::Sign { claims, secret, algorithm, key_id } => {
            let algorithm = algorithm.unwrap_or(Algorithm::HS256);
            if !matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
                return Err(Error::invalid("tokens are signed with HS256, HS384 or HS512 only"));
            }
            let mut header = Header::new(algorithm);
            header.kid = key_id;
            Ok(Answer::Signed {
                token: encode(&header, &claims, &EncodingKey::from_secret(secret.as_bytes()))?,
            })
        }
    }
}

fn main() -> ExitCode {
    run(work)
}
