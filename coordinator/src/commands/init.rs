//! `init`: sets a network up, or changes the settings of one.

use std::{
    fmt::Write as _,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Args;
use island_daemon::{config, files::write_atomic};
use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, Table};

use super::{ENV_PREFIX, Settings, overlay, print};
use island_coordinator_domain::{
    clock::Clock,
    config::{Config, NodeName, PublicUrl, RouteAddress},
};
use island_coordinator_fabric as fabric;

/// File of settings, unless `--config` names one.
const CONFIG_FILE: &str = "coordinator.toml";
/// Where the package has the catalogue.
const PACKAGED_CATALOGUE: &str = "/usr/share/island/cargos";
/// Port for NATS.
const NATS_PORT: u16 = 4222;
/// Port for NATS over WebSocket, which the reverse proxy of the API passes on.
const WEBSOCKET_PORT: u16 = 4223;

#[derive(Debug, Args)]
pub(super) struct Init {
    /// Address of the API for consumers and Islands, `https://island.example.org`.
    #[arg(long, value_name = "URL")]
    public_url: Option<PublicUrl>,
    /// Address of NATS for Islands; derived from `--public-url` by default.
    #[arg(long, value_name = "URL")]
    nats_public_url: Option<String>,
    /// Certificate with its chain, PEM, with which API and NATS serve TLS themselves. Without it, a reverse proxy such
    /// as Caddy ends TLS, and Islands reach NATS by WebSocket through it.
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, requires = "tls_certificate", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Certificate with its chain, PEM, of NATS alone; the API has another one, or a reverse proxy ends TLS for it. Islands then connect to NATS
    /// directly.
    #[arg(long, requires = "nats_tls_key", value_name = "FILE")]
    nats_tls_certificate: Option<PathBuf>,
    /// Private key of that certificate, PEM.
    #[arg(long, requires = "nats_tls_certificate", value_name = "FILE")]
    nats_tls_key: Option<PathBuf>,
    /// Address on which nats-server listens.
    #[arg(long, value_name = "ADDRESS")]
    nats_listen: Option<SocketAddr>,
    /// Address on which nats-server listens for WebSockets.
    #[arg(long, value_name = "ADDRESS")]
    nats_websocket: Option<SocketAddr>,
    /// Folder of nats.conf and of the server's files.
    #[arg(long, value_name = "DIR")]
    nats_dir: Option<PathBuf>,
    /// A node of the NATS cluster and the address at which the others reach it; once for each node.
    #[arg(long = "nats-node", value_name = "NAME=HOST:PORT", value_parser = node)]
    nats_nodes: Vec<(NodeName, RouteAddress)>,
    /// Folder of JetStream's files.
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// Maximum MiB of JetStream's files on each node.
    #[arg(long, value_name = "MIB")]
    max_store_mb: Option<u32>,
    /// Nodes that keep the events of a job.
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<u8>,
    /// Address at which the coordinator serves metrics for Prometheus, without a key; Prometheus itself usually has port 9090.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
}

fn node(text: &str) -> Result<(NodeName, RouteAddress), String> {
    let (name, address) = text.split_once('=').ok_or("a node is NAME=HOST:PORT")?;
    let name = name.parse().map_err(|error| format!("{error}"))?;
    let address = address.parse().map_err(|error| format!("{error}"))?;
    Ok((name, address))
}

/// Writes what the options state into the file of settings, and leaves everything else in it as it is; then keys and
/// nats-server's settings.
pub(super) fn run(settings: &Settings, options: &Init) -> anyhow::Result<ExitCode> {
    let file = std::path::absolute(settings.config.as_deref().unwrap_or(Path::new(CONFIG_FILE)))?;
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
    };
    let mut document: DocumentMut = text.parse().with_context(|| format!("read {}", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let given = given(settings, options)?;
    for (section, keys) in &given {
        let Value::Object(keys) = keys else { continue };
        for (key, value) in keys {
            set(&mut document, section, key, value)?;
        }
    }
    let public_url =
        options.public_url.clone().or_else(|| entered(&document, "http", "public_url")?.parse().ok());
    for (section, key, value) in
        missing(folder, options, public_url.as_ref(), has(&document, "database", "url"))
    {
        if !has(&document, section, key) {
            set(&mut document, section, key, &value)?;
        }
    }
    let changed = document.to_string();
    let config: Config = config::load_text(&changed, ENV_PREFIX)?;
    config.validate()?;
    if changed != text {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        write_atomic(&file, changed.as_bytes(), mode(&file))
            .with_context(|| format!("write {}", file.display()))?;
    }
    let confs = fabric::init::init(&config.fabric.dir, &config.nats, Clock::System.now())?;
    print(&next_steps(&file, &config, &confs));
    Ok(ExitCode::SUCCESS)
}

/// Settings that the command line states, as sections of keys.
fn given(settings: &Settings, options: &Init) -> anyhow::Result<Map<String, Value>> {
    let Value::Object(mut given) = serde_json::to_value(overlay(settings))? else {
        unreachable!("an overlay is an object")
    };
    let mut set = |section: &str, key: &str, value: Option<Value>| {
        if let Some(value) = value {
            given.entry(section).or_insert_with(|| json!({}))[key] = value;
        }
    };
    let path = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose();
    set("http", "public_url", options.public_url.as_ref().map(|url| json!(url)));
    set("http", "metrics", options.metrics.map(|address| json!(address)));
    set("fabric", "public_url", options.nats_public_url.as_ref().map(|url| json!(url)));
    if let (Some(certificate), Some(key)) = (path(&options.tls_certificate)?, path(&options.tls_key)?) {
        let tls = json!({"certificate": certificate, "key": key});
        set("http", "tls", Some(tls.clone()));
        set("nats", "tls", Some(tls));
    }
    if let (Some(certificate), Some(key)) =
        (path(&options.nats_tls_certificate)?, path(&options.nats_tls_key)?)
    {
        set("nats", "tls", Some(json!({"certificate": certificate, "key": key})));
    }
    set("nats", "listen", options.nats_listen.map(|address| json!(address)));
    set("nats", "websocket", options.nats_websocket.map(|address| json!(address)));
    set("nats", "dir", path(&options.nats_dir)?.map(|path| json!(path)));
    set("nats", "store_dir", path(&options.store_dir)?.map(|path| json!(path)));
    set("nats", "max_store_mb", options.max_store_mb.map(|number| json!(number)));
    set("nats", "replicas", options.replicas.map(|number| json!(number)));
    if !options.nats_nodes.is_empty() {
        let nodes = options.nats_nodes.iter().map(|(name, address)| (name.to_string(), json!(address)));
        set("nats", "nodes", Some(Value::Object(nodes.collect())));
    }
    // Relative paths would depend on the folder that the service starts in.
    for (section, key) in [("database", "path"), ("fabric", "dir"), ("catalogue", "dir")] {
        if let Some(value) = given.get_mut(section).and_then(|section| section.get_mut(key))
            && let Some(path) = value.as_str()
        {
            *value = json!(std::path::absolute(path)?);
        }
    }
    Ok(given)
}

/// Settings that a network needs, for those that the file lacks.
fn missing(
    folder: &Path,
    options: &Init,
    public_url: Option<&PublicUrl>,
    has_database_url: bool,
) -> Vec<(&'static str, &'static str, Value)> {
    let mut missing = vec![("fabric", "dir", json!(folder.join("fabric")))];
    if !has_database_url {
        missing.push(("database", "path", json!(folder.join("island.db"))));
    }
    if Path::new(PACKAGED_CATALOGUE).is_dir() {
        missing.push(("catalogue", "dir", json!(PACKAGED_CATALOGUE)));
    }
    let has_own_tls = options.tls_certificate.is_some();
    let nats_has_tls = has_own_tls || options.nats_tls_certificate.is_some();
    let everywhere = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    // The nodes of a cluster, and coordinators, are on other machines.
    if nats_has_tls || !options.nats_nodes.is_empty() {
        missing.push(("nats", "listen", json!(SocketAddr::new(everywhere, NATS_PORT))));
    }
    if nats_has_tls {
        // The certificate has the name by which Islands connect, not an address of loopback.
        let port = options.nats_listen.map_or(NATS_PORT, |address| address.port());
        let public = options.nats_public_url.as_ref().filter(|url| url.starts_with("tls://"));
        let url = public.cloned().or_else(|| Some(format!("tls://{}:{port}", public_url?.host())));
        missing.extend(url.map(|url| ("fabric", "url", json!(url))));
    } else if let Some(listen) = options.nats_listen {
        let ip = if listen.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { listen.ip() };
        missing.push(("fabric", "url", json!(format!("nats://{}", SocketAddr::new(ip, listen.port())))));
    }
    let Some(url) = &options.public_url else { return missing };
    if has_own_tls {
        missing.push(("http", "listen", json!(SocketAddr::new(everywhere, url.port()))));
    } else if !url.is_loopback() {
        if !nats_has_tls {
            let websocket = SocketAddr::from((Ipv4Addr::LOCALHOST, WEBSOCKET_PORT));
            missing.push(("nats", "websocket", json!(websocket)));
        }
        missing.push(("http", "trusted_proxies", json!(["127.0.0.0/8", "::1/128"])));
    }
    missing
}

/// The text that a key has in the file.
fn entered<'a>(document: &'a DocumentMut, section: &str, key: &str) -> Option<&'a str> {
    document.get(section)?.as_table_like()?.get(key)?.as_str()
}

fn has(document: &DocumentMut, section: &str, key: &str) -> bool {
    document.get(section).and_then(Item::as_table_like).is_some_and(|table| table.contains_key(key))
}

/// Sets a key and retains the comments around it.
fn set(document: &mut DocumentMut, section: &str, key: &str, value: &Value) -> anyhow::Result<()> {
    let item = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
    let table = item.as_table_like_mut().with_context(|| format!("{section} is not a table"))?;
    let new = toml_edit::ser::ValueSerializer::new();
    let mut new = serde::Serialize::serialize(value, new).with_context(|| format!("{section}.{key}"))?;
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
    Ok(())
}

/// The file's mode; a new file may be read by its owner only.
fn mode(file: &Path) -> u32 {
    fs::metadata(file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777)
}

/// What to start, in the order of its start.
fn next_steps(file: &Path, config: &Config, confs: &[PathBuf]) -> String {
    let mut text = format!("settings: {}\n", file.display());
    for conf in confs {
        let _ = writeln!(text, "next: nats-server -c {}", conf.display());
    }
    let _ = writeln!(text, "next: island-coordinator --config {}", file.display());
    if let Some(url) = &config.http.public_url {
        let _ = writeln!(text, "then: island-agent enroll --coordinator {url}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_and_comments_remain() {
        let text = "# Mine.\n[http]\nlisten = \"127.0.0.1:8080\" # local\n# No limit.\ndrain_s = 3\n";
        let mut document: DocumentMut = text.parse().expect("TOML");
        set(&mut document, "http", "listen", &json!("0.0.0.0:1")).expect("set");
        set(&mut document, "nats", "replicas", &json!(3)).expect("set");
        set(&mut document, "nats", "nodes", &json!({"n1": "a:1"})).expect("set");
        let changed = document.to_string();
        assert_eq!(
            changed,
            "# Mine.\n[http]\nlisten = \"0.0.0.0:1\" # local\n# No limit.\ndrain_s = 3\n\n[nats]\nreplicas = 3\nnodes = { n1 = \"a:1\" }\n"
        );
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        init: Init,
    }

    /// The settings that are added for these options, by name.
    fn added(arguments: &[&str], public_url: Option<&str>) -> Map<String, Value> {
        let line =
            <Line as clap::Parser>::try_parse_from(std::iter::once("init").chain(arguments.iter().copied()));
        let init = line.expect("options").init;
        let entered = public_url.map(|url| url.parse::<PublicUrl>().expect("an address"));
        let url = init.public_url.clone().or(entered);
        let added = missing(Path::new("/x"), &init, url.as_ref(), true);
        added.into_iter().map(|(section, key, value)| (format!("{section}.{key}"), value)).collect()
    }

    #[test]
    fn a_certificate_of_nats_alone_leaves_the_api_to_the_proxy() {
        let own = ["--nats-tls-certificate", "/c.pem", "--nats-tls-key", "/k.pem"];
        let with = |more: &[&'static str]| [&own[..], more].concat();
        let proxied = added(&with(&["--public-url", "https://a.example.org"]), None);
        assert_eq!(proxied["fabric.url"], "tls://a.example.org:4222");
        assert_eq!(proxied["nats.listen"], "[::]:4222");
        assert!(proxied.contains_key("http.trusted_proxies"));
        assert!(
            !proxied.contains_key("nats.websocket") && !proxied.contains_key("http.listen"),
            "{proxied:?}"
        );
        let named = added(
            &with(&[
                "--public-url",
                "https://a.example.org",
                "--nats-public-url",
                "tls://nats.example.org:4333",
            ]),
            None,
        );
        assert_eq!(named["fabric.url"], "tls://nats.example.org:4333");
        // A network that has an address already.
        let later = added(&with(&["--nats-listen", "0.0.0.0:4444"]), Some("https://a.example.org"));
        assert_eq!(later["fabric.url"], "tls://a.example.org:4444");
        let both = added(
            &with(&[
                "--tls-certificate",
                "/a.pem",
                "--tls-key",
                "/b.pem",
                "--public-url",
                "https://a.example.org",
            ]),
            None,
        );
        assert_eq!(both["http.listen"], "[::]:443");
        let none = added(&["--public-url", "https://a.example.org"], None);
        assert_eq!((none["nats.websocket"].as_str(), none.get("fabric.url")), (Some("127.0.0.1:4223"), None));
        let cluster = added(&["--nats-node", "n1=nats-1:6222"], None);
        assert_eq!(cluster["nats.listen"], "[::]:4222", "others connect to a node");
        assert!(!cluster.contains_key("fabric.url"), "{cluster:?}");
        let alone = ["init", "--nats-tls-certificate", "/c.pem"];
        assert!(<Line as clap::Parser>::try_parse_from(alone).is_err(), "the key is missing");
    }

    #[test]
    fn nodes_are_read() {
        let (name, address) = node("n1=10.0.0.1:6222").expect("a node");
        assert_eq!((name.to_string(), address.to_string()), ("n1".to_owned(), "10.0.0.1:6222".to_owned()));
        for bad in ["n1", "N1=a:1", "n1=a"] {
            assert!(node(bad).is_err(), "{bad}");
        }
    }
}
