//! The coordinator's keys, read from the folder that `init` writes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use island_protocol::{ids::HostId, time::Timestamp};
use nkeys::KeyPair;

use super::{
    jwt::{self, Claims, MintError},
    permissions::{self, Permissions},
    signature,
};

/// Life of the credentials for the system account, seconds; clocks of the machines may differ by a part of it.
const SYSTEM_USER_S: i64 = 600;

/// Why a fabric's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read.
    #[error("read {path}; `island-coordinator init` writes it")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A seed is invalid.
    #[error("{path} has no valid NKey seed")]
    Seed {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: nkeys::error::Error,
    },
    /// A JWT cannot be signed.
    #[error(transparent)]
    Mint(#[from] MintError),
}

/// The account key, which signs users of the fabric, and the coordinators' shared user key.
#[derive(Clone)]
pub struct FabricKeys {
    account: Arc<KeyPair>,
    coordinator: Arc<KeyPair>,
    /// Present if the folder has the keys of the operator and of the system account.
    administration: Option<Arc<Administration>>,
}

/// Keys that change the account itself.
struct Administration {
    operator: KeyPair,
    system: KeyPair,
}

/// The right to change the account's JWT on the servers.
#[derive(Clone)]
pub struct Authority {
    administration: Arc<Administration>,
    user: Arc<KeyPair>,
    account: String,
}

impl std::fmt::Debug for FabricKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FabricKeys({})", self.account.public_key())
    }
}

impl FabricKeys {
    /// Reads the folder.
    pub fn load(dir: &Path) -> Result<Self, KeysError> {
        let (operator, system) = (dir.join("operator.seed"), dir.join("system.seed"));
        let administration = if operator.exists() && system.exists() {
            Some(Arc::new(Administration { operator: seed(&operator)?, system: seed(&system)? }))
        } else {
            None
        };
        Ok(Self {
            account: Arc::new(seed(&dir.join("account.seed"))?),
            coordinator: Arc::new(seed(&dir.join("coordinator.seed"))?),
            administration,
        })
    }

    /// The right to change the account, if the folder has the keys for it.
    pub fn authority(&self) -> Option<Authority> {
        let administration = self.administration.clone()?;
        Some(Authority { administration, user: self.coordinator.clone(), account: self.account.public_key() })
    }

    /// Public key that verifies assignments.
    pub fn coordinator_key(&self) -> String {
        self.coordinator.public_key()
    }

    /// Signs a fabric message.
    pub fn sign(&self, subject: &str, payload: &[u8]) -> Result<String, nkeys::error::Error> {
        signature::sign(&self.coordinator, subject, payload)
    }

    /// Signs the server's challenge.
    pub(crate) fn sign_nonce(&self, nonce: &[u8]) -> Result<Vec<u8>, nkeys::error::Error> {
        self.coordinator.sign(nonce)
    }

    /// The coordinator's JWT, which allows everything inside the account.
    pub(crate) fn coordinator_jwt(&self, now: Timestamp) -> Result<String, MintError> {
        let nats = serde_json::json!({
            "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
        });
        let subject = self.coordinator.public_key();
        let issued_at = now.unix_ms() / 1000;
        jwt::mint(
            &self.account,
            &Claims { subject: &subject, name: "coordinator", issued_at, expires_at: None, nats },
        )
    }

    /// A JWT that allows an Island its own subjects.
    pub fn island_jwt(
        &self,
        host: HostId,
        public_key: &str,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<String, MintError> {
        self.user_jwt(public_key, &format!("island-{host}"), &permissions::island(host), now, expires_at)
    }

    /// A JWT for the key of a user with these permissions.
    pub fn user_jwt(
        &self,
        public_key: &str,
        name: &str,
        permissions: &Permissions,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<String, MintError> {
        let claims = Claims {
            subject: public_key,
            name,
            issued_at: now.unix_ms() / 1000,
            expires_at: Some(expires_at.unix_ms() / 1000),
            nats: permissions.claims(),
        };
        jwt::mint(&self.account, &claims)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.account)
    }
}

impl Authority {
    /// Public key of the account.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Key that signs the account's JWT.
    pub(super) fn operator(&self) -> &KeyPair {
        &self.administration.operator
    }

    /// Signs the server's challenge.
    pub(super) fn sign_nonce(&self, nonce: &[u8]) -> Result<Vec<u8>, nkeys::error::Error> {
        self.user.sign(nonce)
    }

    /// A JWT for one short connection to the system account.
    pub(super) fn system_user_jwt(&self, now: Timestamp) -> Result<String, MintError> {
        let nats = serde_json::json!({
            "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
        });
        let issued_at = now.unix_ms() / 1000;
        let expires_at = Some(issued_at + SYSTEM_USER_S);
        let subject = self.user.public_key();
        let claims = Claims { subject: &subject, name: "coordinator", issued_at, expires_at, nats };
        jwt::mint(&self.administration.system, &claims)
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        let administration =
            Administration { operator: KeyPair::new_operator(), system: KeyPair::new_account() };
        let account = KeyPair::new_account().public_key();
        Self { administration: Arc::new(administration), user: Arc::new(KeyPair::new_user()), account }
    }
}

fn seed(path: &Path) -> Result<KeyPair, KeysError> {
    let text =
        fs::read_to_string(path).map_err(|source| KeysError::Read { path: path.to_owned(), source })?;
    KeyPair::from_seed(text.trim()).map_err(|source| KeysError::Seed { path: path.to_owned(), source })
}
