//! `fabric init`: the keys of a new fabric and a complete `nats.conf` for it.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use island_daemon::files::write_atomic;
use island_protocol::{MAX_MESSAGE_BYTES, time::Timestamp};
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::{
    jwt::{self, Claims, MintError},
    keys::{FabricKeys, KeysError},
};

/// Maximum connections of Islands, watchers and coordinators to the server.
const MAX_CONNECTIONS: u32 = 16_384;

/// Settings of a new fabric.
#[derive(Debug, Clone)]
pub struct Fabric {
    /// Folder for keys and `nats.conf`.
    pub dir: PathBuf,
    /// Port of the server.
    pub port: u16,
    /// Folder of JetStream's files.
    pub store_dir: PathBuf,
    /// Maximum bytes of JetStream's files.
    pub max_store_bytes: u64,
    /// Address on which the server listens.
    pub host: IpAddr,
    /// Certificate and private key for TLS.
    pub tls: Option<Tls>,
}

/// Files for TLS, in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Certificate with its chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Why a fabric cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A new key has no seed.
    #[error("encode a seed")]
    Seed(#[source] nkeys::error::Error),
    /// An existing key cannot be read.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A JWT cannot be signed.
    #[error(transparent)]
    Mint(#[from] MintError),
}

/// Writes seeds, readable only by the user who runs this, credentials and `nats.conf`, and returns the path of the
/// latter.
///
/// Existing keys are retained, so a second run changes the server's settings but no identity.
pub fn init(fabric: &Fabric, now: Timestamp) -> Result<PathBuf, InitError> {
    let dir = &fabric.dir;
    for folder in [dir, &fabric.store_dir, &dir.join("resolver")] {
        fs::create_dir_all(folder).map_err(|source| InitError::Write { path: folder.clone(), source })?;
    }
    let operator = key(&dir.join("operator.seed"), KeyPair::new_operator)?;
    let system = key(&dir.join("system.seed"), KeyPair::new_account)?;
    let account = key(&dir.join("account.seed"), KeyPair::new_account)?;
    let user = key(&dir.join("coordinator.seed"), KeyPair::new_user)?;

    let issued_at = now.unix_ms() / 1000;
    let sign = |issuer: &KeyPair, subject: &KeyPair, name: &str, nats: Value| {
        let subject = subject.public_key();
        jwt::mint(issuer, &Claims { subject: &subject, name, issued_at, expires_at: None, nats })
    };
    let operator_claims = json!({"type": "operator", "version": 2, "system_account": system.public_key()});
    let operator_jwt = sign(&operator, &operator, "island", operator_claims)?;
    let system_jwt = sign(&operator, &system, "SYS", account_claims(None))?;
    let account_jwt = sign(&operator, &account, "ISLAND", account_claims(Some(fabric.max_store_bytes)))?;
    let coordinator_jwt = FabricKeys::load(dir)?.coordinator_jwt(now)?;
    let creds = creds(&coordinator_jwt, &user.seed().map_err(InitError::Seed)?);
    write(&dir.join("coordinator.creds"), &creds, 0o600)?;

    let preload = [(system.public_key(), system_jwt), (account.public_key(), account_jwt)];
    let conf = dir.join("nats.conf");
    write(&conf, &nats_conf(fabric, &operator_jwt, &system.public_key(), &preload), 0o600)?;
    Ok(conf)
}

fn key(path: &Path, make: fn() -> KeyPair) -> Result<KeyPair, InitError> {
    if let Ok(seed) = fs::read_to_string(path) {
        let path = path.to_owned();
        return Ok(KeyPair::from_seed(seed.trim()).map_err(|source| KeysError::Seed { path, source })?);
    }
    let pair = make();
    write(path, &format!("{}\n", pair.seed().map_err(InitError::Seed)?), 0o600)?;
    Ok(pair)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), InitError> {
    write_atomic(path, text.as_bytes(), mode)
        .map_err(|source| InitError::Write { path: path.to_owned(), source })
}

/// Account limits. JetStream is enabled only if `store` is given.
fn account_claims(store: Option<u64>) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": MAX_CONNECTIONS, "leaf": -1,
    });
    if let Some(bytes) = store {
        for (name, value) in [("mem_storage", json!(64 << 20)), ("disk_storage", json!(bytes))] {
            limits[name] = value;
        }
        for (name, value) in [("streams", 8), ("consumer", -1)] {
            limits[name] = json!(value);
        }
    }
    json!({"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2})
}

fn creds(jwt: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

fn tls_block(quoted: &impl Fn(&Path) -> String, tls: &Tls) -> String {
    let (certificate, key) = (quoted(&tls.certificate), quoted(&tls.key));
    format!("tls {{\n  cert_file: {certificate}\n  key_file: {key}\n  timeout: 5\n}}\n")
}

fn nats_conf(fabric: &Fabric, operator_jwt: &str, system: &str, preload: &[(String, String)]) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let accounts: Vec<String> =
        preload.iter().map(|(account, jwt)| format!("  {account}: {jwt}\n")).collect();
    let accounts = accounts.concat();
    format!(
        "# Written by `island-coordinator fabric init`; run it again to change the port or the store.\n\
         server_name: island\n\
         host: \"{host}\"\n\
         port: {port}\n\
         {tls}\
         # A client that does not read what it is sent is disconnected.\n\
         max_connections: {connections}\n\
         max_pending: 64MB\n\
         write_deadline: \"10s\"\n\
         # Inputs and outputs are sent in one message.\n\
         max_payload: {payload}\n\
         jetstream {{\n  store_dir: {store}\n  max_memory_store: 64MB\n  max_file_store: {bytes}\n}}\n\
         operator: {operator_jwt}\n\
         system_account: {system}\n\
         resolver: {{\n  type: full\n  dir: {resolver}\n  allow_delete: false\n  interval: \"2m\"\n}}\n\
         resolver_preload: {{\n{accounts}}}\n",
        host = fabric.host,
        port = fabric.port,
        tls = fabric.tls.as_ref().map(|tls| tls_block(&quoted, tls)).unwrap_or_default(),
        connections = MAX_CONNECTIONS,
        payload = MAX_MESSAGE_BYTES,
        store = quoted(&fabric.store_dir),
        bytes = fabric.max_store_bytes,
        resolver = quoted(&fabric.dir.join("resolver")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(tls: Option<Tls>) -> String {
        let fabric = Fabric {
            dir: "/fabric".into(),
            port: 4333,
            store_dir: "/store".into(),
            max_store_bytes: 1,
            host: "::".parse().expect("an address"),
            tls,
        };
        nats_conf(&fabric, "JWT", "SYS", &[])
    }

    #[test]
    fn the_server_is_limited_and_has_tls_if_wanted() {
        let plain = conf(None);
        for line in ["host: \"::\"", "port: 4333", "max_connections: 16384", "write_deadline: \"10s\""] {
            assert!(plain.lines().any(|found| found == line), "{line}\n{plain}");
        }
        assert!(!plain.contains("tls"));
        let tls = Tls { certificate: "/c.pem".into(), key: "/k.pem".into() };
        let secure = conf(Some(tls));
        assert!(secure.contains("tls {\n  cert_file: \"/c.pem\"\n  key_file: \"/k.pem\"\n"), "{secure}");
    }
}
