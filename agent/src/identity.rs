//! Who this Island is: an id and an Ed25519 key, made at the first start and kept for ever.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use island_daemon::files::write_atomic;
use island_protocol::{fabric::signed_bytes, ids::HostId};
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

const FILE: &str = "identity.json";
/// Held while an identity is made.
const LOCK: &str = "identity.lock";

/// An identity that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file does not hold an identity. It is never replaced: the account is tied to it.
    #[error("{path} does not hold an identity")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A new one cannot be stored.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
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
    /// Reads the identity in `folder`, or makes one with `fresh` and stores it for its owner's eyes only.
    pub fn load_or_make(folder: &Path, fresh: impl FnOnce() -> HostId) -> Result<Self, IdentityError> {
        let path = folder.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes).map_err(|source| IdentityError::Malformed { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(folder, path, fresh),
            Err(source) => Err(IdentityError::Read { path, source }),
        }
    }

    /// Makes one, unless another program has done so meanwhile: `enroll` may run beside the first start of the agent.
    fn make(folder: &Path, path: PathBuf, fresh: impl FnOnce() -> HostId) -> Result<Self, IdentityError> {
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

    /// Which Island this is.
    pub fn host_id(&self) -> HostId {
        self.host_id
    }

    /// The public key, `U…`.
    pub fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// Signs raw bytes, such as a server's nonce.
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.key.sign(bytes).expect("the key was made or loaded with its seed")
    }

    /// Base64 signature of a text.
    pub fn sign_text(&self, text: &str) -> String {
        BASE64.encode(self.sign(text.as_bytes()))
    }

    /// Base64 signature of a message for the fabric.
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

/// Whether `signature` (base64) is `public_key`'s over a fabric message.
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
    fn is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let id = HostId(uuid::Uuid::from_u128(7));
        let made = Identity::load_or_make(folder.path(), || id).expect("make");
        let again = Identity::load_or_make(folder.path(), || unreachable!("made already")).expect("load");
        assert_eq!((again.host_id(), again.public_key()), (made.host_id(), made.public_key()));
        let permissions = fs::metadata(folder.path().join(FILE)).expect("metadata").permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_broken_file_is_an_error_and_stays() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join(FILE), "{").expect("write");
        let error = Identity::load_or_make(folder.path(), || unreachable!("a file is there"));
        assert!(matches!(error, Err(IdentityError::Malformed { .. })));
        assert_eq!(fs::read(folder.path().join(FILE)).expect("read"), b"{");
    }

    #[test]
    fn signatures_cover_the_subject() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let identity = Identity::load_or_make(folder.path(), || HostId(uuid::Uuid::nil())).expect("make");
        let signature = identity.sign_message("a", b"payload");
        assert!(verifies(&identity.public_key(), "a", b"payload", &signature));
        assert!(!verifies(&identity.public_key(), "b", b"payload", &signature));
        assert!(!verifies(&identity.public_key(), "a", b"payloaD", &signature));
        assert!(!verifies("U123", "a", b"payload", &signature));
    }
}
