//! Settings: TOML sections, `ISLAND_COORDINATOR_<SECTION>__<KEY>` in the environment, flags.

mod address;
mod database;
mod nats;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use ipnet::IpNet;
use island_daemon::{config::ConfigError, telemetry::LogFormat};
use serde::{Deserialize, Serialize};

pub use address::client_address;
use address::is_encrypted;
pub use address::{InvalidPublicUrl, PublicUrl};
pub use database::{Database, DatabaseUrl, NotADatabaseUrl};
pub use nats::{NatsSettings, NodeName, RouteAddress};

/// Default name of the file of pins in the catalogue's folder.
pub(crate) const PINS_FILE: &str = "pins.toml";

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The HTTP API.
    pub http: Http,
    /// SQL.
    pub database: Database,
    /// The connection to NATS.
    pub fabric: FabricSettings,
    /// nats-server, as `init` sets it up.
    pub nats: NatsSettings,
    /// The Cargos.
    pub catalogue: CatalogueSettings,
    /// Limits of each account.
    pub limits: Limits,
    /// Execution of jobs.
    pub jobs: Jobs,
    /// How long the data of ended jobs is kept.
    pub retention: Retention,
    /// Files of accounts.
    pub files: Files,
    /// Batches.
    pub batches: Batches,
    /// Webhooks.
    pub webhooks: Webhooks,
    /// New accounts.
    pub accounts: Accounts,
    /// Sign-in with an OpenID Connect provider; not offered by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// The web console.
    pub console: Console,
    /// Logs.
    pub log: Log,
    /// Traces.
    pub otlp: Otlp,
}

/// The HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Seconds for which an orderly stop goes on serving while `/ready` answers 503, so that a load balancer sends clients elsewhere before
    /// connections are refused.
    pub unready_s: u64,
    /// Seconds for requests to finish after that.
    pub drain_s: u64,
    /// Maximum open connections; further ones wait.
    pub max_connections: u32,
    /// Maximum requests that are answered at one time, without the streams among them; further ones are answered with
    /// 503.
    pub max_requests: u32,
    /// Address of the metrics for Prometheus, at `/metrics`, which need no key; not served by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Address for consumers and Islands, `https://HOST` or `https://HOST:PORT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<PublicUrl>,
    /// Certificate for TLS, read again when its files change; without it, the API is served in plain text to a
    /// reverse proxy that ends TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Networks of proxies whose `X-Forwarded-For` names the client, as `10.0.0.0/8`.
    pub trusted_proxies: Vec<IpNet>,
    /// Origins of web pages that may use the API from a browser, as `https://app.example.org`; `*` for all.
    pub cors_origins: Vec<String>,
}

/// Files of a certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificate with its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            unready_s: 0,
            drain_s: 10,
            max_connections: 8192,
            max_requests: 2048,
            metrics: None,
            public_url: None,
            tls: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
        }
    }
}

/// NATS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FabricSettings {
    /// Address of the server, or those of a cluster, separated by commas.
    pub url: String,
    /// Address of the server for Islands and watchers. By default derived from `http.public_url`: `tls:` with
    /// `nats.tls`, otherwise by WebSocket if there is `nats.websocket`; else `fabric.url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Folder of the keys that `init` wrote.
    pub dir: PathBuf,
    /// Life of an Island's credentials in seconds, at most a day.
    pub island_credentials_s: u32,
    /// Life of a watcher's credentials in seconds, at most a day.
    pub watch_credentials_s: u32,
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".to_owned(),
            public_url: None,
            dir: "fabric".into(),
            island_credentials_s: 3600,
            watch_credentials_s: 900,
        }
    }
}

/// The Cargos.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogueSettings {
    /// Folder of `*.toml` files.
    pub dir: PathBuf,
    /// Whether its folder `fixtures` is served as well.
    pub fixtures: bool,
    /// File of the pins that `catalogue pin` writes; `pins.toml` in the folder by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pins: Option<PathBuf>,
}

impl CatalogueSettings {
    /// Path of the file of pins.
    pub fn pins(&self) -> PathBuf {
        self.pins.clone().unwrap_or_else(|| self.dir.join(PINS_FILE))
    }
}

impl Default for CatalogueSettings {
    fn default() -> Self {
        Self { dir: "cargos".into(), fixtures: false, pins: None }
    }
}

/// Limits of each account, the last one of each client; 0 means unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum requests in any minute.
    pub requests_per_minute: u32,
    /// Maximum open jobs, including chat.
    pub concurrent_jobs: u32,
    /// Maximum open streams, including chat.
    pub concurrent_streams: u32,
    /// Maximum Islands.
    pub islands: u32,
    /// Maximum requests with an invalid key in a minute from one address, if the addresses of clients are known: with
    /// `http.tls` or `http.trusted_proxies`.
    pub invalid_keys_per_minute: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_minute: 100,
            concurrent_jobs: 10,
            concurrent_streams: 5,
            islands: 1_000,
            invalid_keys_per_minute: 60,
        }
    }
}

/// Execution of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Milliseconds from the last renewal to the loss of an attempt.
    pub lease_ms: u64,
    /// Milliseconds between heartbeats; after three missed ones an Island gets no new work.
    pub heartbeat_ms: u64,
    /// Milliseconds beyond a heartbeat that decoding may make no progress.
    pub stall_ms: u64,
    /// Milliseconds that a download, a load or a prompt may make no progress.
    pub prepare_stall_ms: u64,
    /// Further attempts while nothing was delivered.
    pub retries: u32,
    /// Milliseconds without a heartbeat of a coordinator after which others take its jobs over.
    pub takeover_ms: u64,
    /// Seconds a chat request waits for an Island.
    pub chat_wait_s: u64,
    /// Seconds a job waits for an Island before it times out.
    pub max_wait_s: u32,
    /// MiB of memory for the inputs of open jobs; further jobs are answered with 503.
    pub max_input_mb: u32,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            lease_ms: 30_000,
            heartbeat_ms: 5_000,
            stall_ms: 3_000,
            prepare_stall_ms: 120_000,
            retries: 2,
            takeover_ms: 8_000,
            chat_wait_s: 30,
            max_wait_s: 3_600,
            max_input_mb: 1_024,
        }
    }
}

/// How long data is kept. Jobs themselves and the entries of the ledger are kept for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Days from the end of a job to the deletion of its input; 0 keeps it for ever, as for the next two.
    pub inputs_d: u32,
    /// The same for its output.
    pub outputs_d: u32,
    /// The same for its events, which its stream replays.
    pub events_d: u32,
    /// Days from the upload of a file, or from the end of the batch that wrote it, to its deletion; 0 keeps it until
    /// its account deletes it.
    pub files_d: u32,
    /// Days from the end of a delivery to a webhook to its deletion from the log; 0 keeps it as long as the webhook.
    pub deliveries_d: u32,
    /// Hours for which a request with the same `Idempotency-Key` gets the first answer again.
    pub idempotency_h: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { inputs_d: 30, outputs_d: 30, events_d: 7, files_d: 30, deliveries_d: 7, idempotency_h: 24 }
    }
}

/// Files of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Maximum MiB of an uploaded file.
    pub max_mb: u32,
    /// Maximum MiB of all files of an account, results of batches included; uploads beyond it are refused.
    pub account_mb: u32,
    /// Maximum files of an account, likewise.
    pub per_account: u32,
}

impl Default for Files {
    fn default() -> Self {
        Self { max_mb: 100, account_mb: 1_024, per_account: 500 }
    }
}

/// Batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Batches {
    /// Maximum requests of a batch.
    pub max_requests: u32,
    /// Maximum open batches of an account.
    pub per_account: u32,
    /// Maximum batches that this coordinator runs at one time; others wait, or run at another one.
    pub running: u32,
    /// Maximum requests of an account's batches that this coordinator runs at one time, and at most half of the account's open jobs, as which they
    /// count.
    pub concurrent_requests: u32,
    /// Maximum milliseconds between two tries of a request for which there is no Island.
    pub retry_ms: u32,
}

impl Default for Batches {
    fn default() -> Self {
        Self { max_requests: 50_000, per_account: 20, running: 64, concurrent_requests: 4, retry_ms: 30_000 }
    }
}

/// Webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Webhooks {
    /// Maximum webhooks of an account.
    pub per_account: u32,
    /// Maximum deliveries that this coordinator attempts at one time.
    pub concurrent: u32,
    /// Seconds for an answer.
    pub timeout_s: u32,
    /// Milliseconds from the first attempt to the second; each further pause is three times as long, up to six hours.
    pub first_retry_ms: u32,
    /// Hours after which a delivery is given up, and after which an address that has always failed is disabled.
    pub give_up_h: u32,
    /// Whether events may be sent to addresses of this machine and of private networks, to those of this machine
    /// without encryption as well.
    pub private_addresses: bool,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            per_account: 10,
            concurrent: 32,
            timeout_s: 15,
            first_retry_ms: 5_000,
            give_up_h: 72,
            private_addresses: false,
        }
    }
}

/// New accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Accounts {
    /// Credits of a new account, unless the command names another number.
    pub signup_credits: u32,
}

/// Sign-in with an OpenID Connect provider. The provider returns people to `/api/v1/login/callback` of
/// `http.public_url`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oidc {
    /// Address of the provider, as it names itself: `https://accounts.example.org`.
    pub issuer: String,
    /// Name of this network at the provider.
    pub client_id: String,
    /// File with the secret of this network; without it, the provider must allow public clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<PathBuf>,
    /// Domains of the e-mail addresses of people who may sign in; empty for everybody whom the provider confirms.
    #[serde(default)]
    pub email_domains: Vec<String>,
    /// Days after which the key of a sign-in expires; 0 for never.
    #[serde(default = "key_days")]
    pub key_days: u32,
}

fn key_days() -> u32 {
    30
}

/// The web console, at the address of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Console {
    /// Whether it is served; otherwise `/` leads to `/docs`.
    pub enabled: bool,
    /// Address of Grafana with the dashboards of this network, to which operators get links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grafana: Option<String>,
}

impl Default for Console {
    fn default() -> Self {
        Self { enabled: true, grafana: None }
    }
}

/// Logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `text` or `json`.
    pub format: LogFormat,
}

/// Where traces are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`; absent, nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The part of the requests without a `traceparent` that is recorded, from 0 to 1.
    pub sample: f64,
}

impl Default for Otlp {
    fn default() -> Self {
        Self { endpoint: None, sample: 1.0 }
    }
}

impl Config {
    /// Address of NATS for Islands and watchers.
    pub fn fabric_url(&self) -> String {
        if let Some(url) = &self.fabric.public_url {
            return url.clone();
        }
        match &self.http.public_url {
            Some(url) if self.nats.tls.is_some() => {
                format!("tls://{}:{}", url.host(), self.nats.listen.port())
            }
            Some(url) if self.nats.websocket.is_some() => url.websocket(),
            _ => self.fabric.url.clone(),
        }
    }

    /// Checks rules that concern several values or their range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let jobs = &self.jobs;
        let day = 24 * 3600;
        let own = [
            (jobs.heartbeat_ms >= 100, "jobs.heartbeat_ms must be at least 100"),
            (
                jobs.lease_ms >= 3 * jobs.heartbeat_ms,
                "jobs.lease_ms must be at least three jobs.heartbeat_ms",
            ),
            (
                (400..=jobs.lease_ms / 2).contains(&jobs.takeover_ms),
                "jobs.takeover_ms must be from 400 to half of jobs.lease_ms",
            ),
            (jobs.max_wait_s > 0, "jobs.max_wait_s must be above 0"),
            ((1..=1 << 20).contains(&jobs.max_input_mb), "jobs.max_input_mb must be from 1 to 1048576"),
            (self.http.max_connections > 0, "http.max_connections must be above 0"),
            (self.http.max_requests > 0, "http.max_requests must be above 0"),
            (self.database.connections >= 3, "database.connections must be at least 3"),
            (
                (1..=24 * 365).contains(&self.retention.idempotency_h),
                "retention.idempotency_h must be from 1 to 8760",
            ),
            ((1..=4_096).contains(&self.files.max_mb), "files.max_mb must be from 1 to 4096"),
            (
                (1..=1_000_000).contains(&self.batches.max_requests),
                "batches.max_requests must be from 1 to 1000000",
            ),
            (self.batches.running > 0, "batches.running must be above 0"),
            (self.batches.concurrent_requests > 0, "batches.concurrent_requests must be above 0"),
            (self.batches.retry_ms >= 100, "batches.retry_ms must be at least 100"),
            (self.webhooks.concurrent > 0, "webhooks.concurrent must be above 0"),
            ((1..=120).contains(&self.webhooks.timeout_s), "webhooks.timeout_s must be from 1 to 120"),
            (self.webhooks.first_retry_ms > 0, "webhooks.first_retry_ms must be above 0"),
            ((1..=72).contains(&self.webhooks.give_up_h), "webhooks.give_up_h must be from 1 to 72"),
            (
                (60..=day).contains(&self.fabric.island_credentials_s),
                "fabric.island_credentials_s must be from 60 to 86400",
            ),
            (
                (60..=day).contains(&self.fabric.watch_credentials_s),
                "fabric.watch_credentials_s must be from 60 to 86400",
            ),
            ((0.0..=1.0).contains(&self.otlp.sample), "otlp.sample must be from 0 to 1"),
            (
                self.otlp.endpoint.as_ref().is_none_or(|url| is_http(url)),
                "otlp.endpoint must be an address such as http://127.0.0.1:4318",
            ),
            (
                self.console.grafana.as_ref().is_none_or(|url| is_http(url)),
                "console.grafana must be an address such as https://grafana.example.org",
            ),
            (
                self.http.cors_origins.iter().all(|origin| is_origin(origin)),
                "http.cors_origins must be origins as https://app.example.org, or *",
            ),
            (
                self.oidc.is_none() || self.http.public_url.is_some(),
                "oidc needs http.public_url, to which the provider returns people",
            ),
            (
                self.oidc.as_ref().is_none_or(|oidc| is_encrypted(&oidc.issuer)),
                "oidc.issuer must be an address with https",
            ),
        ];
        let all = own.into_iter().chain(self.nats.rules());
        let broken: Vec<_> = all.filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect();
        if broken.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(broken.join("; "))) }
    }
}

fn is_http(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Whether browsers send this text as the origin of a page; `*` is for all of them.
fn is_origin(text: &str) -> bool {
    text == "*" || reqwest::Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_parse_as_shown() {
        let config = Config::default();
        config.validate().expect("valid");
        let shown = island_daemon::config::show(&config);
        assert_eq!(toml::from_str::<Config>(&shown).expect("parses"), config);
    }

    /// Names of the settings below `table`, from the message about one that does not exist.
    fn names(table: &str) -> Vec<String> {
        let error = toml::from_str::<Config>(&format!("{table}\nno_such_setting = 1")).expect_err("unknown");
        let (_, expected) = error.message().split_once("expected").expect("what there is");
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_names_every_setting_in_the_row_of_its_section() {
        let guide = include_str!("../../../docs/operators.md");
        let sections = names("");
        assert!(sections.len() > 10, "{sections:?}");
        for section in sections {
            let row = guide.lines().find(|line| line.starts_with(&format!("| `[{section}]` |")));
            let row = row.unwrap_or_else(|| panic!("docs/operators.md has no row for [{section}]"));
            for name in names(&format!("[{section}]")) {
                assert!(row.contains(&format!("`{name}`")), "{section}.{name} is missing in {row}");
            }
        }
    }

    #[test]
    fn a_lease_shorter_than_three_heartbeats_is_refused() {
        let mut config = Config::default();
        config.jobs.lease_ms = 10_000;
        assert!(config.validate().is_err());
    }

    #[test]
    fn every_broken_rule_is_named() {
        let mut config = Config::default();
        config.http.max_requests = 0;
        config.nats.replicas = 2;
        let error = config.validate().expect_err("two").to_string();
        assert!(error.contains("http.max_requests") && error.contains("nats.replicas"), "{error}");
    }

    #[test]
    fn the_address_for_islands_follows_from_the_public_one() {
        let mut config = Config::default();
        assert_eq!(config.fabric_url(), "nats://127.0.0.1:4222");
        config.http.public_url = Some("https://island.example.org".parse().expect("an address"));
        assert_eq!(config.fabric_url(), "nats://127.0.0.1:4222");
        config.nats.websocket = Some(([127, 0, 0, 1], 4223).into());
        assert_eq!(config.fabric_url(), "wss://island.example.org/nats");
        config.nats.tls = Some(Tls { certificate: "/c.pem".into(), key: "/k.pem".into() });
        assert_eq!(config.fabric_url(), "tls://island.example.org:4222");
        config.fabric.public_url = Some("tls://nats.example.org:4222".to_owned());
        assert_eq!(config.fabric_url(), "tls://nats.example.org:4222");
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for good in ["*", "https://app.example.org", "http://localhost:3000"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in ["", "app.example.org", "https://app.example.org/", "https://app.example.org/page", "null"]
        {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
