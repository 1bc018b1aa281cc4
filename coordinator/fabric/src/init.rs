//! Keys of a network's fabric, and the settings of its servers.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use island_daemon::files::{give_to_owner_of_folder, write_atomic};
use island_protocol::time::Timestamp;
use nkeys::KeyPair;
use rand::RngExt as _;
use serde_json::{Value, json};

use super::{
    jwt::{self, Claims, MintError},
    keys::{FabricKeys, KeysError},
    nats_conf::{Folders, Identity, nats_conf},
};
use island_coordinator_domain::config::{NatsSettings, NodeName};

/// File of an operator's own settings of nats-server, which is written once and never changed.
const LOCAL_CONF: &str = "nats.local.conf";

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

/// Writes keys and credentials into `dir`, and for each server a file of settings, whose paths are returned.
///
/// What exists is kept: keys always, JWTs unless their claims change, files unless their text changes. Files are
/// readable by the owner of their folder only, whom they belong to if the superuser runs this.
pub fn init(dir: &Path, nats: &NatsSettings, now: Timestamp) -> Result<Vec<PathBuf>, InitError> {
    let nats_dir = nats.dir.as_deref().unwrap_or(dir);
    make_folder(dir)?;
    make_folder(nats_dir)?;
    let identity = identity(dir, nats, now)?;
    let local = nats_dir.join(LOCAL_CONF);
    if !local.exists() {
        write(
            &local,
            "# Settings of nats-server that `island-coordinator init` does not know; it never changes this file.\n",
        )?;
    }
    if nats.nodes.is_empty() {
        return Ok(vec![server(nats_dir, nats, &identity, None)?]);
    }
    nats.nodes.keys().map(|node| server(nats_dir, nats, &identity, Some(node))).collect()
}

/// Writes the settings of one server. Nodes on one machine have separate folders.
fn server(
    dir: &Path,
    nats: &NatsSettings,
    identity: &Identity,
    node: Option<&NodeName>,
) -> Result<PathBuf, InitError> {
    let suffix = node.map(|node| format!("-{node}")).unwrap_or_default();
    let store = nats.store_dir.clone().unwrap_or_else(|| dir.join("jetstream"));
    let folders = Folders {
        store: PathBuf::from(format!("{}{suffix}", store.display())),
        resolver: dir.join(format!("resolver{suffix}")),
        local: LOCAL_CONF,
    };
    make_folder(&folders.store)?;
    make_folder(&folders.resolver)?;
    let conf = dir.join(format!("nats{suffix}.conf"));
    write(&conf, &nats_conf(nats, identity, &folders, node))?;
    Ok(conf)
}

fn identity(dir: &Path, nats: &NatsSettings, now: Timestamp) -> Result<Identity, InitError> {
    let operator = key(&dir.join("operator.seed"), KeyPair::new_operator)?;
    let system = key(&dir.join("system.seed"), KeyPair::new_account)?;
    let account = key(&dir.join("account.seed"), KeyPair::new_account)?;
    let user = key(&dir.join("coordinator.seed"), KeyPair::new_user)?;
    let issued_at = now.unix_ms() / 1000;
    let sign = |file: &str, subject: &KeyPair, name: &str, nats: Value| {
        let subject = subject.public_key();
        let claims = Claims { subject: &subject, name, issued_at, expires_at: None, nats };
        kept_jwt(&dir.join(file), &operator, claims)
    };
    let claims = json!({"type": "operator", "version": 2, "system_account": system.public_key()});
    let operator_jwt = sign("operator.jwt", &operator, "island", claims)?;
    let system_jwt = sign("system.jwt", &system, "SYS", account_claims(nats, false))?;
    let account_jwt = sign("account.jwt", &account, "ISLAND", account_claims(nats, true))?;

    let creds_file = dir.join("coordinator.creds");
    if !creds_file.exists() {
        let jwt = FabricKeys::load(dir)?.coordinator_jwt(now)?;
        write(&creds_file, &creds(&jwt, &user.seed().map_err(InitError::Seed)?))?;
    }
    Ok(Identity {
        operator: operator_jwt,
        system: system.public_key(),
        accounts: [(system.public_key(), system_jwt), (account.public_key(), account_jwt)],
        route_password: route_password(&dir.join("route.password"))?,
    })
}

/// The JWT in `file` if it has these claims, but for the time of its issue; otherwise a new one. A server that has an
/// account's JWT prefers the newer one, so a needless new one would undo revocations.
fn kept_jwt(file: &Path, issuer: &KeyPair, claims: Claims<'_>) -> Result<String, InitError> {
    if let Ok(kept) = fs::read_to_string(file)
        && let Some(issued_at) = issued_at(&kept)
    {
        // Signatures are deterministic.
        let same = jwt::mint(issuer, &Claims { nats: claims.nats.clone(), issued_at, ..claims })?;
        if same == kept.trim() {
            return Ok(same);
        }
    }
    let jwt = jwt::mint(issuer, &claims)?;
    write(file, &format!("{jwt}\n"))?;
    Ok(jwt)
}

fn issued_at(jwt: &str) -> Option<i64> {
    let body = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Value>(&body).ok()?["iat"].as_i64()
}

fn key(path: &Path, make: fn() -> KeyPair) -> Result<KeyPair, InitError> {
    let path = path.to_owned();
    match fs::read_to_string(&path) {
        Ok(seed) => Ok(KeyPair::from_seed(seed.trim()).map_err(|source| KeysError::Seed { path, source })?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pair = make();
            write(&path, &format!("{}\n", pair.seed().map_err(InitError::Seed)?))?;
            Ok(pair)
        }
        Err(source) => Err(KeysError::Read { path, source }.into()),
    }
}

fn route_password(path: &Path) -> Result<String, InitError> {
    match fs::read_to_string(path) {
        Ok(password) => Ok(password.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let password = URL_SAFE_NO_PAD.encode(rand::rng().random::<[u8; 32]>());
            write(path, &format!("{password}\n"))?;
            Ok(password)
        }
        Err(source) => Err(KeysError::Read { path: path.to_owned(), source }.into()),
    }
}

/// Creates a folder that only its owner may use.
fn make_folder(path: &Path) -> Result<(), InitError> {
    if path.is_dir() {
        return Ok(());
    }
    let made = fs::create_dir_all(path).and_then(|()| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        give_to_owner_of_folder(path)
    });
    made.map_err(|source| InitError::Write { path: path.to_owned(), source })
}

/// Writes a file unless it has this text.
fn write(path: &Path, text: &str) -> Result<(), InitError> {
    if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    write_atomic(path, text.as_bytes(), 0o600)
        .and_then(|()| give_to_owner_of_folder(path))
        .map_err(|source| InitError::Write { path: path.to_owned(), source })
}

/// Limits of an account, which hold for all nodes together. JetStream is enabled with `store`.
fn account_claims(nats: &NatsSettings, store: bool) -> Value {
    let nodes = nats.nodes.len().max(1) as u64;
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": u64::from(nats.max_connections) * nodes, "leaf": -1,
    });
    if store {
        limits["mem_storage"] = json!(64 << 20);
        limits["disk_storage"] = json!((u64::from(nats.max_store_mb) << 20) * nodes);
        limits["streams"] = json!(8);
        limits["consumer"] = json!(-1);
    }
    json!({"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2})
}

fn creds(jwt: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use island_coordinator_domain::config::Tls;

    fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries
            .filter(|path| path.is_file())
            .map(|path| (path.clone(), fs::read(path).expect("a file")))
            .collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1000)
    }

    #[test]
    fn a_second_run_changes_nothing_and_settings_change_what_they_concern() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("fabric");
        let mut nats = NatsSettings::default();
        let conf = init(&dir, &nats, at(1)).expect("init");
        assert_eq!(conf, [dir.join("nats.conf")]);
        let first = files(&dir);
        fs::write(dir.join(LOCAL_CONF), "debug: true\n").expect("write");
        init(&dir, &nats, at(2)).expect("init");
        let mut second = files(&dir);
        assert_eq!(second.remove(&dir.join(LOCAL_CONF)).expect("kept"), b"debug: true\n");
        assert!(second.iter().all(|(path, text)| first.get(path) == Some(text)));

        nats.max_store_mb = 5_000;
        init(&dir, &nats, at(3)).expect("init");
        let changed: Vec<String> = files(&dir)
            .into_iter()
            .filter(|(path, text)| second.get(path).is_some_and(|old| old != text))
            .map(|(path, _)| path.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        assert_eq!(changed, ["account.jwt", "nats.conf"]);

        (nats.max_connections, nats.max_pending_mb, nats.write_deadline_s) = (77, 9, 5);
        init(&dir, &nats, at(4)).expect("init");
        let conf = fs::read_to_string(dir.join("nats.conf")).expect("nats.conf");
        for line in ["max_connections: 77", "max_pending: 9MB", "write_deadline: \"5s\""] {
            assert!(conf.lines().any(|known| known == line), "{line} is not in {conf}");
        }
    }

    #[test]
    fn each_node_has_routes_to_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut nats = NatsSettings { dir: Some(folder.path().join("nats")), ..NatsSettings::default() };
        for name in ["n1", "n2", "n3"] {
            let address = format!("{name}.internal:6222").parse().expect("an address");
            nats.nodes.insert(name.parse().expect("a name"), address);
        }
        nats.tls = Some(Tls { certificate: "/c.pem".into(), key: "/k.pem".into() });
        let confs = init(&folder.path().join("fabric"), &nats, at(1)).expect("init");
        assert_eq!(confs.len(), 3);
        let text = fs::read_to_string(&confs[1]).expect("text");
        assert!(text.contains("server_name: \"n2\"") && text.contains("jetstream-n2"), "{text}");
        let routes = text.lines().find(|line| line.contains("routes:")).expect("routes");
        assert!(routes.contains("@n1.internal:6222") && routes.contains("@n3.internal:6222"), "{routes}");
        assert!(!routes.contains("@n2.internal"), "{routes}");
        assert_eq!(text.matches("cert_file: \"/c.pem\"").count(), 2, "server and routes: {text}");
    }

    #[test]
    fn a_websocket_for_the_reverse_proxy_has_no_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let tls = Some(Tls { certificate: "/c.pem".into(), key: "/k.pem".into() });
        for (websocket, certificates) in [("127.0.0.1:4223", 1), ("0.0.0.0:443", 2)] {
            let websocket = Some(websocket.parse().expect("an address"));
            let nats = NatsSettings { tls: tls.clone(), websocket, ..NatsSettings::default() };
            let conf = init(&folder.path().join("fabric"), &nats, at(1)).expect("init").remove(0);
            let text = fs::read_to_string(conf).expect("text");
            assert_eq!(text.matches("cert_file: \"/c.pem\"").count(), certificates, "{text}");
            assert_eq!(text.contains("no_tls: true"), certificates == 1, "{text}");
        }
    }

    #[test]
    fn keys_that_cannot_be_read_are_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        fs::write(dir.join("operator.seed"), "?").expect("write");
        let error = init(dir, &NatsSettings::default(), at(1)).expect_err("not a seed");
        assert!(matches!(error, InitError::Keys(KeysError::Seed { .. })), "{error:?}");
        assert_eq!(fs::read(dir.join("operator.seed")).expect("a file"), b"?");
    }
}
