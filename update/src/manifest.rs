//! A release: its files and its signatures.

use std::{collections::BTreeMap, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use island_protocol::digest::Digest;
use semver::Version;
use serde::{Deserialize, Serialize};

/// Maximum length of a manifest.
pub const MAX_BYTES: usize = 64 << 10;
/// Prefix of the signed bytes, so that no signature for another purpose is valid for a release.
const DOMAIN: &[u8] = b"island release 1\n";

/// A signed manifest as it is sent. The release remains the text that was signed: it is parsed only after verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// A [`Release`] as JSON.
    pub release: String,
    /// Signatures over it, by public key.
    pub signatures: BTreeMap<PublicKey, String>,
}

/// One release of one product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The product, such as `island-agent`.
    pub product: String,
    /// The channel, such as `stable`.
    pub channel: String,
    /// Counts releases of the channel; never decreases, even if the version does.
    pub number: u64,
    /// Its version.
    pub version: Version,
    /// Oldest version that may still run; nothing older is installed.
    pub floor: Version,
    /// Time of the release, seconds since 1970.
    pub issued_at: i64,
    /// Time after which it is not accepted as the newest release any more, seconds since 1970.
    pub expires_at: i64,
    /// Its files by kind of machine, such as `x86_64-deb`.
    pub files: BTreeMap<String, File>,
}

/// One file of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its address, relative to the manifest or absolute.
    pub url: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its hash.
    pub sha256: Digest,
}

/// An Ed25519 public key, 32 bytes in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

/// Not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 32 bytes in base64")]
pub struct BadKey;

impl Manifest {
    /// Creates a manifest signed by these keys.
    pub fn sign(release: &Release, keys: &[SigningKey]) -> Self {
        let release = serde_json::to_string(release).expect("text and numbers are valid JSON");
        let message = message(&release);
        let signature = |key: &SigningKey| BASE64.encode(key.sign(&message).to_bytes());
        let signatures =
            keys.iter().map(|key| (PublicKey(key.verifying_key().to_bytes()), signature(key))).collect();
        Self { release, signatures }
    }

    /// Whether this key signed it.
    pub fn is_signed_by(&self, key: PublicKey) -> bool {
        let verified = || {
            let bytes = BASE64.decode(self.signatures.get(&key)?).ok()?;
            let signature = Signature::from_slice(&bytes).ok()?;
            let key = VerifyingKey::from_bytes(&key.0).ok()?;
            key.verify_strict(&message(&self.release), &signature).ok()
        };
        verified().is_some()
    }
}

fn message(release: &str) -> Vec<u8> {
    [DOMAIN, release.as_bytes()].concat()
}

impl PublicKey {
    /// The public key of a secret key.
    pub fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key().to_bytes())
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        let bytes = BASE64.decode(text.trim()).map_err(|_| BadKey)?;
        bytes.try_into().map(Self).map_err(|_| BadKey)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = BadKey;
    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}
