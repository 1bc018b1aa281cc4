//! The identity of this Island: an id and an Ed25519 key, generated at the first start and never replaced.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use island_daemon::files::write_atomic;
use island_protocol::{
    fabric::signed_bytes,
    ids::{AccountId, HostId, Nonce},
    time::Timestamp,
};
use island_protocol_api::{
    Enroll,
    claim::{ClaimVerb, IslandRequest},
};
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

const FILE: &str = "identity.json";
/// Locked while an identity is generated.
const LOCK: &str = "identity.lock";

/// An identity that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: io::Error,
    },
    /// The file contains no identity. It is never replaced: the account is tied to it.
    #[error("{path} contains no valid identity")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is invalid.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A new identity cannot be stored.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        #[source]
        source: io::Error,
    },
}

/// Id and key of this Island.
#[derive(Debug)]
pub struct Identity {
    host_id: HostId,
    key: KeyPair,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    host_id: HostId,
    seed: String,
}

impl Identity {
    /// Reads the identity in `folder`, or generates one with the id that `fresh` returns. Its file is readable only by the user
    /// of this program.
    pub fn load_or_create(folder: &Path, fresh: impl FnOnce() -> HostId) -> Result<Self, IdentityError> {
        let path = folder.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes).map_err(|source| IdentityError::Malformed { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(folder, path, fresh),
            Err(source) => Err(IdentityError::Read { path, source }),
        }
    }

    /// Whether `folder` contains an identity: this machine was enrolled, or its agent was started.
    pub fn exists(folder: &Path) -> Result<bool, IdentityError> {
        let path = folder.join(FILE);
        path.try_exists().map_err(|source| IdentityError::Read { path, source })
    }

    /// Generates an identity, unless another program has just done so: `enroll` may run beside the first start of the agent.
    fn create(folder: &Path, path: PathBuf, fresh: impl FnOnce() -> HostId) -> Result<Self, IdentityError> {
        let failed = |source| IdentityError::Write { path: path.clone(), source };
        let lock = fs::File::create(folder.join(LOCK)).map_err(failed)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        if let Ok(bytes) = fs::read(&path) {
            return Self::parse(&bytes).map_err(|source| IdentityError::Malformed { path, source });
        }
        let made = Self { host_id: fresh(), key: KeyPair::new_user() };
        made.store(&path).map_err(failed)?;
        Ok(made)
    }

    /// The id of this Island.
    pub fn host_id(&self) -> HostId {
        self.host_id
    }

    /// The public key, `U…`.
    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Signs raw bytes, such as a server's nonce.
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.key.sign(bytes).expect("the key has its seed")
    }

    fn sign_text(&self, text: &str) -> String {
        BASE64.encode(self.sign(text.as_bytes()))
    }

    /// Signs a request for `verb` as an Island of `account_id`, if it knows its account. Accepted once.
    pub fn request(
        &self,
        verb: ClaimVerb,
        account_id: Option<AccountId>,
        sent_at: Timestamp,
    ) -> IslandRequest {
        let mut request = IslandRequest {
            host_id: self.host_id,
            account_id,
            nonce: nonce(),
            sent_at,
            signature: String::new(),
        };
        request.signature = self.sign_text(&request.claim(verb).to_string());
        request
    }

    /// Signs a request to be added to an account under this name. Accepted once.
    pub fn introduction(&self, verb: ClaimVerb, name: &str, sent_at: Timestamp) -> Enroll {
        let mut enroll = Enroll {
            host_id: self.host_id,
            public_key: self.public_key(),
            name: name.to_owned(),
            nonce: nonce(),
            sent_at,
            signature: String::new(),
        };
        enroll.signature = self.sign_text(&enroll.claim(verb).to_string());
        enroll
    }

    /// Base64 signature of a message on the fabric.
    pub fn sign_message(&self, subject: &str, payload: &[u8]) -> String {
        BASE64.encode(self.sign(&signed_bytes(subject, payload)))
    }

    fn parse(bytes: &[u8]) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let stored: Stored = serde_json::from_slice(bytes)?;
        Ok(Self { host_id: stored.host_id, key: KeyPair::from_seed(&stored.seed)? })
    }

    fn store(&self, path: &Path) -> io::Result<()> {
        let seed = self.key.seed().map_err(io::Error::other)?;
        let stored = Stored { host_id: self.host_id, seed };
        write_atomic(path, &serde_json::to_vec(&stored).map_err(io::Error::other)?, 0o600)
    }
}

fn nonce() -> Nonce {
    Nonce(uuid::Uuid::new_v4())
}

/// Whether `signature` (base64) is `public_key`'s signature of a message on the fabric.
pub fn verifies(public_key: &str, subject: &str, payload: &[u8], signature: &str) -> bool {
    let (Ok(key), Ok(signature)) = (KeyPair::from_public_key(public_key), BASE64.decode(signature)) else {
        return false;
    };
    key.verify(&signed_bytes(subject, payload), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn is_created_once_and_private() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let id = HostId(uuid::Uuid::from_u128(7));
        let made = Identity::load_or_create(folder.path(), || id).expect("create");
        let again = Identity::load_or_create(folder.path(), || unreachable!("it exists")).expect("load");
        assert_eq!((again.host_id(), again.public_key()), (made.host_id(), made.public_key()));
        let permissions = fs::metadata(folder.path().join(FILE)).expect("metadata").permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
    }

    #[test]
    fn an_invalid_file_is_an_error_and_is_not_replaced() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join(FILE), "{").expect("write");
        let error = Identity::load_or_create(folder.path(), || unreachable!("a file exists"));
        assert!(matches!(error, Err(IdentityError::Malformed { .. })));
        assert_eq!(fs::read(folder.path().join(FILE)).expect("read"), b"{");
    }

    #[test]
    fn signatures_cover_the_subject() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let identity = Identity::load_or_create(folder.path(), || HostId(uuid::Uuid::nil())).expect("create");
        let signature = identity.sign_message("a", b"payload");
        assert!(verifies(&identity.public_key(), "a", b"payload", &signature));
        assert!(!verifies(&identity.public_key(), "b", b"payload", &signature));
        assert!(!verifies(&identity.public_key(), "a", b"payloaD", &signature));
        assert!(!verifies("U123", "a", b"payload", &signature));
    }

    #[test]
    fn requests_are_signed_for_one_verb_and_never_twice_with_one_nonce() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let identity = Identity::load_or_create(folder.path(), || HostId(uuid::Uuid::nil())).expect("create");
        let (account, now) = (AccountId(uuid::Uuid::from_u128(1)), Timestamp::from_unix_ms(5));
        let request = identity.request(ClaimVerb::Credentials, Some(account), now);
        let key = KeyPair::from_public_key(&identity.public_key()).expect("a key");
        let signature = BASE64.decode(&request.signature).expect("base64");
        let verifies = |claim: island_protocol_api::claim::Claim| {
            key.verify(claim.to_string().as_bytes(), &signature).is_ok()
        };
        assert!(verifies(request.claim(ClaimVerb::Credentials)));
        assert!(!verifies(request.claim(ClaimVerb::Leave)));
        let other = IslandRequest { account_id: None, ..request.clone() };
        assert!(!verifies(other.claim(ClaimVerb::Credentials)));
        let again = identity.request(ClaimVerb::Credentials, Some(account), now);
        assert_ne!((request.nonce, &request.signature), (again.nonce, &again.signature));
    }
}
