//! The text of `nats.conf`. Pure.

use std::{
    fmt::{self, Write as _},
    path::{Path, PathBuf},
};

use island_protocol::MAX_MESSAGE_BYTES;

use island_coordinator_domain::config::{NatsSettings, NodeName, Tls};

/// Who may use the server, as it reads it.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// JWT of the operator.
    pub operator: String,
    /// Public key of the system account.
    pub system: String,
    /// Public key and JWT of each account.
    pub accounts: [(String, String); 2],
    /// Password of the routes between nodes.
    pub route_password: String,
}

/// Folders of one server.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// JetStream's files.
    pub store: PathBuf,
    /// JWTs that coordinators send to the server.
    pub resolver: PathBuf,
    /// The operator's own additions, in `nats.conf`'s folder.
    pub local: &'static str,
}

/// The text for a node of the cluster, or for a single server.
pub(super) fn nats_conf(
    settings: &NatsSettings,
    identity: &Identity,
    folders: &Folders,
    node: Option<&NodeName>,
) -> String {
    let mut text = String::new();
    write(&mut text, settings, identity, folders, node).expect("writing to a String does not fail");
    text
}

fn write(
    text: &mut String,
    settings: &NatsSettings,
    identity: &Identity,
    folders: &Folders,
    node: Option<&NodeName>,
) -> fmt::Result {
    let name = node.map_or_else(|| "island".to_owned(), ToString::to_string);
    writeln!(
        text,
        "# Written by `island-coordinator init` from [nats] of its settings. Your additions belong in {}.",
        folders.local
    )?;
    writeln!(text, "server_name: {name:?}")?;
    writeln!(text, "listen: \"{}\"", settings.listen)?;
    text.push_str(&tls_block("", settings.tls.as_ref()));
    writeln!(text, "# A client that does not read what it is sent is disconnected.")?;
    writeln!(text, "max_connections: {}", settings.max_connections)?;
    writeln!(text, "max_pending: {}MB", settings.max_pending_mb)?;
    writeln!(text, "write_deadline: \"{}s\"", settings.write_deadline_s)?;
    writeln!(text, "# Inputs and outputs are sent in one message.")?;
    writeln!(text, "max_payload: {MAX_MESSAGE_BYTES}")?;
    if let Some(websocket) = settings.websocket {
        writeln!(text, "websocket {{\n  listen: \"{websocket}\"")?;
        // A reverse proxy on this machine ends TLS, also where other connections use a certificate.
        match settings.tls.as_ref().filter(|_| !websocket.ip().is_loopback()) {
            Some(tls) => text.push_str(&tls_block("  ", Some(tls))),
            None => writeln!(text, "  # The reverse proxy ends TLS.\n  no_tls: true")?,
        }
        writeln!(text, "}}")?;
    }
    let store = quoted(&folders.store);
    let bytes = u64::from(settings.max_store_mb) << 20;
    writeln!(
        text,
        "jetstream {{\n  store_dir: {store}\n  max_memory_store: 64MB\n  max_file_store: {bytes}\n}}"
    )?;
    if let Some(own) = node.and_then(|node| settings.nodes.get(node)) {
        let password = &identity.route_password;
        writeln!(text, "cluster {{\n  name: \"island\"\n  port: {}", own.port)?;
        // Clients reach the cluster by the addresses of `fabric.public_url` alone.
        writeln!(text, "  no_advertise: true")?;
        writeln!(text, "  authorization {{ user: \"route\", password: \"{password}\", timeout: 5 }}")?;
        text.push_str(&tls_block("  ", settings.tls.as_ref()));
        let others = settings.nodes.iter().filter(|(name, _)| Some(*name) != node);
        let routes = others.map(|(_, address)| format!("\"nats://route:{password}@{address}\""));
        writeln!(text, "  routes: [{}]\n}}", routes.collect::<Vec<_>>().join(", "))?;
    }
    writeln!(text, "operator: {}\nsystem_account: {}", identity.operator, identity.system)?;
    let resolver = quoted(&folders.resolver);
    writeln!(
        text,
        "resolver: {{\n  type: full\n  dir: {resolver}\n  allow_delete: false\n  interval: \"2m\"\n}}"
    )?;
    writeln!(text, "resolver_preload: {{")?;
    for (account, jwt) in &identity.accounts {
        writeln!(text, "  {account}: {jwt}")?;
    }
    writeln!(text, "}}\ninclude \"{}\"", folders.local)
}

fn tls_block(indent: &str, tls: Option<&Tls>) -> String {
    let Some(tls) = tls else { return String::new() };
    let (certificate, key) = (quoted(&tls.certificate), quoted(&tls.key));
    format!(
        "{indent}tls {{\n{indent}  cert_file: {certificate}\n{indent}  key_file: {key}\n{indent}  timeout: 5\n{indent}}}\n"
    )
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
