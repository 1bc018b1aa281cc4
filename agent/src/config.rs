//! Settings. The defaults of each section are in its `Default`.

use std::{
    collections::BTreeSet,
    error::Error,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::ConnectOptions;
use island_coordinator_client::{Client, ClientError, transport};
use island_daemon::{config::ConfigError, telemetry::LogFormat};
use island_protocol::{cargo::RuntimeType, credits::MicroCredits};
use island_runtimes_worker::launch::ContainerRules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::owner::policy::{Rules, gpus::GpuRule};

/// Prefix of environment variables: `ISLAND_AGENT_WORKERS__MAX_JOBS`.
pub const ENV_PREFIX: &str = "ISLAND_AGENT_";

/// The settings of the service, as the package installs them.
pub const SERVICE_FILE: &str = "/etc/island/agent.toml";

/// Returns the file to read: the one that was named, or the service's if it exists. A state folder that was named is that of another agent
/// than the service.
pub fn file_for(named: Option<&Path>, names_state_dir: bool, service: &Path) -> Option<PathBuf> {
    let service = || Some(service.to_owned()).filter(|file| !names_state_dir && file.is_file());
    named.map(Path::to_owned).or_else(service)
}

/// The keys whose values differ, such as `policy.schedule`.
pub fn differences(one: &Config, other: &Config) -> Vec<String> {
    fn compare(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
        match (one, other) {
            (Value::Object(one), Value::Object(other)) => {
                let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                for key in keys {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let of = |values: &Map<String, Value>| values.get(key).cloned().unwrap_or_default();
                    compare(&path, &of(one), &of(other), found);
                }
            }
            _ if one != other => found.push(path.to_owned()),
            _ => {}
        }
    }
    let value = |config| serde_json::to_value(config).unwrap_or_default();
    let mut found = Vec::new();
    compare("", &value(one), &value(other), &mut found);
    found
}

/// A file with an API key that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("read the API key from {file}")]
pub struct ApiKeyError {
    /// The file that `api_key_file` names.
    pub file: PathBuf,
    /// Why it cannot be read.
    #[source]
    pub source: io::Error,
}

/// What helps if an error was caused by missing permissions; `None` for all other errors.
pub fn permission_hint(error: &(dyn Error + 'static), state_dir: &Path) -> Option<String> {
    let is_refused = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.downcast_ref().is_some_and(is_refused)).then(|| {
        format!(
            "use sudo if the state folder {} belongs to the service, or a folder of your own: --state-dir \
             ~/.local/state/island. Settings are read from options, {ENV_PREFIX}* variables and --config FILE; without a folder \
             of your own and a FILE, from {SERVICE_FILE}",
            state_dir.display()
        )
    })
}

fn is_http(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Folder of identity, spools and workers.
    pub state_dir: PathBuf,
    /// Address of the coordinator.
    pub api_url: String,
    /// API key of the owner, only to enroll. Better: `api_key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// File that contains the API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Fabric address that overrides the one that the coordinator sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nats_url: Option<String>,
    /// Use addresses of other machines without encryption: keys, prompts and replies can be read on the way.
    pub allow_plaintext: bool,
    /// Name that others see.
    pub name: String,
    /// Region of this Island, as its owner describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Run jobs of other accounts even if this kernel cannot sandbox workers completely.
    pub allow_weak_sandbox: bool,
    /// Offer the scripted engine, for tests and demonstrations.
    pub simulated: bool,
    /// Measure memory, disk and one test job at the first start, so that placement knows the speed of this machine.
    pub measure: bool,
    /// Seconds that running jobs have to finish when the agent is stopped.
    pub drain_s: u64,
    /// Format of the log.
    pub log: LogFormat,
    /// The model cache.
    pub cache: CacheSection,
    /// Engines.
    pub workers: WorkersSection,
    /// Memory that jobs never use.
    pub memory: MemorySection,
    /// Rules for containers.
    pub containers: ContainerRules,
    /// Models downloaded before jobs need them.
    pub preload: PreloadSection,
    /// When this machine runs jobs.
    pub policy: Rules,
    /// The owner's page on this machine.
    pub page: PageSection,
    /// Orders of the owner's account.
    pub control: ControlSection,
    /// Where metrics and traces are sent.
    pub otlp: OtlpSection,
}

/// Orders of the owner's account, from the console or the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlSection {
    /// Whether the account may pause, drain and resume this Island remotely. Commands on this machine override it.
    pub allow_remote: bool,
}

/// The owner's page on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageSection {
    /// Port on 127.0.0.1 for a browser and Prometheus; absent, there is no page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Models downloaded before jobs need them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadSection {
    /// Whether models are preloaded.
    pub enabled: bool,
    /// Seconds between two rounds, with a jitter of a tenth.
    pub every_s: u64,
    /// Gigabytes that one round may download.
    pub max_gb: u64,
}

/// Gigabytes as bytes. More than fits into a number of bytes is as much as fits.
pub fn gigabytes(count: u64) -> u64 {
    count.saturating_mul(1 << 30)
}

impl PreloadSection {
    /// Time between two rounds.
    pub fn every(&self) -> Duration {
        Duration::from_secs(self.every_s)
    }

    /// Bytes that one round may download.
    pub fn max_bytes(&self) -> u64 {
        gigabytes(self.max_gb)
    }
}

impl Default for PreloadSection {
    fn default() -> Self {
        Self { enabled: true, every_s: 900, max_gb: 20 }
    }
}

/// The model cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSection {
    /// Its folder; absent, `cache` in the state folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Size in gigabytes; beyond it the least recently used files are removed.
    pub max_gb: u64,
    /// Gigabytes of the disk that stay free.
    pub keep_free_gb: u64,
    /// Address of the model hub; absent, the variable `HF_ENDPOINT`, or the public hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_endpoint: Option<String>,
    /// File with a token for the hub, for models that require one; absent, the variable `HF_TOKEN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_token_file: Option<PathBuf>,
    /// Folder of other programs for the hub, whose folder `hub` has files, so that nothing is downloaded twice; absent, what the variables
    /// `HF_HUB_CACHE` and `HF_HOME` state, or the usual folder in the home folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hf_home: Option<PathBuf>,
    /// Download nothing.
    pub offline: bool,
    /// Megabits per second of all downloads together; absent, no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_mbit_s: Option<u64>,
}

/// Engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkersSection {
    /// Folder with the `island-worker-…` programs; absent, the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bin_dir: Option<PathBuf>,
    /// Jobs at once in one loaded model.
    pub slots_per_model: u32,
    /// Jobs at once on this Island, including queued ones.
    pub max_jobs: u32,
    /// Processor threads of one worker; 0 means all.
    pub threads: u32,
}

/// Memory that jobs never use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Megabytes of main memory that jobs never use.
    pub reserve_ram_mb: u64,
    /// Megabytes per GPU that jobs never use.
    pub reserve_vram_mb: u64,
}

/// Where metrics, and traces that a coordinator records, are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpSection {
    /// Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`; absent, nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Seconds between two exports of metrics.
    pub every_s: u64,
}

impl Default for OtlpSection {
    fn default() -> Self {
        Self { endpoint: None, every_s: 30 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: "/var/lib/island-agent".into(),
            api_url: "http://127.0.0.1:8080".into(),
            api_key: None,
            api_key_file: None,
            nats_url: None,
            allow_plaintext: false,
            name: "island".into(),
            region: None,
            allow_weak_sandbox: false,
            simulated: false,
            measure: true,
            drain_s: 30,
            log: LogFormat::Text,
            cache: CacheSection::default(),
            workers: WorkersSection::default(),
            memory: MemorySection::default(),
            containers: ContainerRules::default(),
            preload: PreloadSection::default(),
            policy: Rules::default(),
            page: PageSection::default(),
            control: ControlSection::default(),
            otlp: OtlpSection::default(),
        }
    }
}

impl Default for CacheSection {
    fn default() -> Self {
        Self {
            dir: None,
            max_gb: 100,
            keep_free_gb: 2,
            hub_endpoint: None,
            hub_token_file: None,
            hf_home: None,
            offline: false,
            max_mbit_s: None,
        }
    }
}

impl Default for WorkersSection {
    fn default() -> Self {
        Self { bin_dir: None, slots_per_model: 8, max_jobs: 16, threads: 0 }
    }
}

impl Default for MemorySection {
    fn default() -> Self {
        Self { reserve_ram_mb: 512, reserve_vram_mb: 256 }
    }
}

impl Config {
    /// Returns an error that lists all [`problems`](Self::problems).
    pub fn validate(&self) -> Result<(), ConfigError> {
        let problems = self.problems();
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(problems.join("; "))) }
    }

    /// Every value that cannot be used, alone or together with others. Reads no file.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, rule: &str| {
            if !holds {
                problems.push(rule.to_owned());
            }
        };
        require(!self.state_dir.as_os_str().is_empty(), "state_dir must not be empty");
        require(!self.name.trim().is_empty() && self.name.len() <= 100, "name must have 1 to 100 characters");
        require(self.workers.max_jobs > 0, "workers.max_jobs must be at least 1");
        require(self.workers.slots_per_model > 0, "workers.slots_per_model must be at least 1");
        require(self.preload.every_s > 0, "preload.every_s must be at least 1");
        require(self.otlp.every_s > 0, "otlp.every_s must be at least 1");
        require(
            self.cache.max_mbit_s != Some(0),
            "cache.max_mbit_s must be at least 1; cache.offline disables downloads",
        );
        let prices = std::iter::once(&self.policy.asking.per_job).chain(self.policy.asking.cargos.values());
        require(prices.min() >= Some(&MicroCredits::ZERO), "policy.asking must not be negative");
        require(self.cache.max_gb > 0, "cache.max_gb must be at least 1");
        require(
            self.api_key.is_none() || self.api_key_file.is_none(),
            "api_key and api_key_file exclude each other",
        );
        let addresses = [
            ("api_url", Some(&self.api_url)),
            ("cache.hub_endpoint", self.cache.hub_endpoint.as_ref()),
            ("otlp.endpoint", self.otlp.endpoint.as_ref()),
        ];
        for (key, url) in addresses {
            if let Some(url) = url.filter(|url| !is_http(url)) {
                problems.push(format!("{key} must be an address such as https://example.org, not `{url}`"));
            }
        }
        if let Some(url) = self.nats_url.as_ref().filter(|url| url.parse::<async_nats::ServerAddr>().is_err())
        {
            problems
                .push(format!("nats_url must be an address such as nats://example.org:4222, not `{url}`"));
        }
        problems.extend(self.plaintext_problems());
        for runtime in &self.policy.runtimes {
            if !RuntimeType::ALL.contains(runtime) {
                let known = RuntimeType::ALL.map(|known| known.to_string()).join(", ");
                problems.push(format!(
                    "policy.runtimes: there is no engine `{runtime}`; the engines are {known}"
                ));
            }
        }
        let has_no_effect = |rule: &&GpuRule| {
            let limits = (rule.max_vram_mb, rule.max_temperature_c, rule.max_power_w);
            !rule.never && limits == (None, None, None)
        };
        for rule in self.policy.gpu.iter().filter(has_no_effect) {
            problems.push(format!("[[policy.gpu]] for {} sets neither `never` nor a limit", rule.gpu));
        }
        problems
    }

    /// Addresses that would be used without encryption although the owner does not allow it.
    fn plaintext_problems(&self) -> Vec<String> {
        if self.allow_plaintext {
            return Vec::new();
        }
        let hub = self.hub_endpoint();
        let http = [("api_url", self.api_url.as_str()), ("cache.hub_endpoint", hub.as_str())];
        let http = http.into_iter().filter_map(|(key, url)| Some((key, transport::check_http(url).err()?)));
        let nats = self.nats_url.as_ref();
        let nats = nats.and_then(|url| transport::fabric(ConnectOptions::new(), url, false).err());
        http.chain(nats.map(|error| ("nats_url", error)))
            .map(|(key, error)| format!("{key}: {error}; allow_plaintext = true permits it"))
            .collect()
    }

    /// The API key, from its file or from the settings. An error names the file.
    pub fn read_api_key(&self) -> Result<Option<String>, ApiKeyError> {
        let Some(file) = &self.api_key_file else { return Ok(self.api_key.clone()) };
        let text = fs::read_to_string(file).map_err(|source| ApiKeyError { file: file.clone(), source })?;
        // The package installs an empty file into which the owner may put a key.
        Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty()))
    }

    /// The hub's token, if there is one that can be read: in the file, or in the variable `HF_TOKEN`.
    pub fn read_hub_token(&self) -> Option<String> {
        let token = match &self.cache.hub_token_file {
            Some(file) => fs::read_to_string(file)
                .inspect_err(|error| tracing::warn!(%error, "the hub's token cannot be read"))
                .ok()?,
            None => std::env::var("HF_TOKEN").ok()?,
        };
        Some(token.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// These settings without their secrets, for `config show`.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.api_key = self.api_key.map(|_| "(hidden)".to_owned());
        self
    }

    /// A client of the coordinator at `url` that sends no key.
    pub fn client_of(&self, url: &str) -> Result<Client, ClientError> {
        Client::builder(url).allow_plaintext(self.allow_plaintext).build()
    }

    /// The folder of the model cache.
    pub fn cache_dir(&self) -> PathBuf {
        self.cache.dir.clone().unwrap_or_else(|| self.state_dir.join("cache"))
    }

    /// The address of the model hub.
    pub fn hub_endpoint(&self) -> String {
        let set = self.cache.hub_endpoint.clone().or_else(|| std::env::var("HF_ENDPOINT").ok());
        set.unwrap_or_else(|| "https://huggingface.co".to_owned())
    }

    /// The folder in which other programs store hub files, one folder for each repository.
    pub fn hub_files(&self) -> Option<PathBuf> {
        hub_files(self.cache.hf_home.as_deref(), variable)
    }

    /// The folder with the workers' programs.
    pub fn bin_dir(&self) -> PathBuf {
        let own = || Some(programs_beside(std::env::current_exe().ok()?.parent()?));
        self.workers.bin_dir.clone().or_else(own).unwrap_or_else(|| Path::new(".").to_owned())
    }

    /// Threads of one worker on a machine of `cores`.
    pub fn threads(&self, cores: u32) -> u32 {
        if self.workers.threads == 0 { cores.max(1) } else { self.workers.threads }
    }
}

/// The folder with workers' programs for an agent in `own`: that folder, or `../lib/island` as in the package, if only that has some.
fn programs_beside(own: &Path) -> PathBuf {
    let has_programs = |folder: &Path| {
        let mut names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_str().is_some_and(|name| name.starts_with("island-worker-")))
    };
    let packaged = own.parent().map(|prefix| prefix.join("lib/island"));
    packaged.filter(|packaged| !has_programs(own) && has_programs(packaged)).unwrap_or_else(|| own.to_owned())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The folder with hub files in this folder of other programs, or in the one that the variables state, as those programs read them.
fn hub_files(hf_home: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let files = || folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE"));
    if let (None, Some(files)) = (hf_home, files()) {
        return Some(files);
    }
    let caches = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let usual = || Some(caches()?.join("huggingface"));
    let home = hf_home.map(Path::to_owned).or_else(|| folder("HF_HOME")).or_else(usual)?;
    Some(home.join("hub"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_services_file_is_read_without_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let service = folder.path().join("agent.toml");
        assert_eq!(file_for(None, false, &service), None, "it is not installed");
        fs::write(&service, "").expect("write");
        assert_eq!(file_for(None, false, &service).as_ref(), Some(&service));
        assert_eq!(file_for(None, true, &service), None, "another agent than the service");
        let other = Path::new("other.toml");
        assert_eq!(file_for(Some(other), false, &service).as_deref(), Some(other));
    }

    #[test]
    fn differing_settings_are_named_by_their_keys() {
        let config = |text: &str| toml::from_str::<Config>(text).expect("settings");
        let (one, other) =
            (config("[policy]\nyield_gpu = true"), config("name = 'attic'\n[page]\nport = 9464"));
        assert_eq!(differences(&one, &other), ["name", "page.port", "policy.yield_gpu"]);
        assert!(differences(&one, &one.clone()).is_empty());
    }

    #[test]
    fn workers_are_found_as_the_package_installs_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (bin, lib) = (folder.path().join("bin"), folder.path().join("lib/island"));
        fs::create_dir_all(&bin).and_then(|()| fs::create_dir_all(&lib)).expect("folders");
        assert_eq!(programs_beside(&bin), bin);
        fs::write(lib.join("island-worker-llmcpp"), "").expect("write");
        assert_eq!(programs_beside(&bin), lib);
        fs::write(bin.join("island-worker-wasm"), "").expect("write");
        assert_eq!(programs_beside(&bin), bin, "those of a build folder");
    }

    #[test]
    fn hub_files_are_where_other_programs_look_for_them() {
        let of = |setting: Option<&str>, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let found = hub_files(setting.map(Path::new), variable);
            found.map(|path| path.to_str().expect("UTF-8").to_owned())
        };
        let home = ("HOME", "/home/o");
        for (setting, variables, expected) in [
            (None, vec![], None),
            (None, vec![home], Some("/home/o/.cache/huggingface/hub")),
            (None, vec![home, ("XDG_CACHE_HOME", "/c")], Some("/c/huggingface/hub")),
            (None, vec![home, ("HF_HOME", "/h")], Some("/h/hub")),
            (None, vec![home, ("HF_HOME", "/h"), ("HF_HUB_CACHE", "/files")], Some("/files")),
            (None, vec![home, ("HF_HUB_CACHE", "")], Some("/home/o/.cache/huggingface/hub")),
            (None, vec![home, ("HUGGINGFACE_HUB_CACHE", "/files")], Some("/files")),
            (Some("/set"), vec![home, ("HF_HUB_CACHE", "/files")], Some("/set/hub")),
        ] {
            assert_eq!(of(setting, &variables).as_deref(), expected, "{setting:?} {variables:?}");
        }
    }

    #[test]
    fn a_limit_beyond_all_disks_does_not_wrap_around() {
        assert_eq!((gigabytes(2), gigabytes(0)), (2 << 30, 0));
        assert_eq!(gigabytes(1 << 34), u64::MAX, "not zero, which would keep nothing free");
        let section = PreloadSection { max_gb: u64::MAX, ..PreloadSection::default() };
        assert_eq!(section.max_bytes(), u64::MAX);
    }

    #[test]
    fn defaults_are_valid_and_survive_toml() {
        let config = Config::default();
        config.validate().expect("valid");
        let text = island_daemon::config::show(&config);
        assert_eq!(toml::from_str::<Config>(&text).expect("parse"), config);
    }

    #[test]
    fn egress_is_none_declared_or_a_list() {
        use island_protocol::egress::Egress;
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.containers.egress);
        assert_eq!(read("").expect("empty"), Egress::None);
        assert_eq!(read("containers.egress = 'declared'").expect("all"), Egress::Declared);
        let listed = "containers.egress = ['a.org', 'b.org:80']";
        let config: Config = toml::from_str(listed).expect("some");
        let shown = island_daemon::config::show(&config);
        assert_eq!(toml::from_str::<Config>(&shown).expect("read again"), config);
        for wrong in ["true", "'all'", "['10.0.0.1']", "['*']", "['localhost']", "['a.org:x']"] {
            let error = read(&format!("containers.egress = {wrong}")).expect_err(wrong);
            assert!(error.to_string().contains("egress"), "{error}");
        }
    }

    #[test]
    fn rules_for_single_gpus_are_read() {
        let read = |text: &str| toml::from_str::<Config>(text);
        let config = read(
            "[[policy.gpu]]\ngpu = 1\nmax_vram_mb = 4000\n[[policy.gpu]]\ngpu = '0000:03:00.0'\nnever = true",
        );
        let config = config.expect("rules");
        config.validate().expect("valid");
        let shown = island_daemon::config::show(&config);
        assert_eq!(read(&shown).expect("read again"), config);
        for wrong in
            ["gpu = 'card0'", "gpu = -1", "gpu = 'GPU-1'", "max_vram_mb = 1", "gpu = 0\nmax_vram = 1"]
        {
            assert!(read(&format!("[[policy.gpu]]\n{wrong}")).is_err(), "{wrong}");
        }
        assert!(read("[[policy.gpu]]\ngpu = 0").expect("syntax").validate().is_err(), "it has no effect");
    }

    /// The package's file: its examples are valid settings, none of them a default, and they cover every section.
    #[test]
    fn the_examples_of_the_package_are_valid_and_change_something() {
        const FILE: &str = include_str!("../../packaging/debian/settings/agent.toml");
        let examples: String = FILE
            .lines()
            .map(|line| {
                line.strip_prefix("# ")
                    .filter(|line| line.starts_with('[') || line.contains(" = "))
                    .unwrap_or(line)
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let config: Config =
            toml::from_str(&examples).unwrap_or_else(|error| panic!("{error} in {examples}"));
        assert_eq!(config.problems(), Vec::<String>::new());
        let flat = |config: &Config| toml::Value::try_from(config).expect("TOML");
        let (shown, defaults) = (flat(&config), flat(&Config::default()));
        for (section, values) in examples.parse::<toml::Table>().expect("TOML") {
            let Some(values) = values.as_table() else {
                assert_ne!(shown.get(&section), defaults.get(&section), "{section} is a default");
                continue;
            };
            for key in values.keys() {
                let of =
                    |config: &toml::Value| config.get(&section).and_then(|section| section.get(key)).cloned();
                assert_ne!(of(&shown), of(&defaults), "{section}.{key} is a default");
            }
        }
        for section in defaults.as_table().expect("a table").iter().filter(|(_, value)| value.is_table()) {
            assert!(FILE.contains(&format!("\n[{}]\n", section.0)), "{} is missing", section.0);
        }
    }

    /// Names of the settings below `table`, from the message about one that does not exist.
    fn names(table: &str) -> Vec<String> {
        let error = toml::from_str::<Config>(&format!("{table}\nno_such_setting = 1")).expect_err("unknown");
        let (_, expected) = error.message().split_once("expected").expect("what there is");
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_names_every_setting() {
        const GUIDE: &str = include_str!("../../docs/owners.md");
        let code = GUIDE.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let is_other = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let named: BTreeSet<&str> = code.flat_map(|code| code.split(is_other)).collect();
        let defaults = toml::Value::try_from(Config::default()).expect("TOML");
        let sections = defaults.as_table().expect("a table").iter().filter(|(_, value)| value.is_table());
        let tables = sections.map(|(section, _)| format!("[{section}]")).chain([String::new()]);
        let all: Vec<String> = tables.flat_map(|table| names(&table)).collect();
        assert!(all.len() > 40, "{all:?}");
        // The scripted engine is for tests.
        let missing: Vec<&String> =
            all.iter().filter(|name| !named.contains(name.as_str()) && *name != "simulated").collect();
        assert!(missing.is_empty(), "docs/owners.md does not name {missing:?}");
    }

    #[test]
    fn missing_permissions_have_a_hint() {
        #[derive(Debug, thiserror::Error)]
        #[error("load")]
        struct LoadError(#[source] io::Error);
        let refused = |kind| LoadError(io::Error::from(kind));
        let hint = |kind| permission_hint(&refused(kind), Path::new("/var/lib/island-agent"));
        let text = hint(io::ErrorKind::PermissionDenied).expect("a hint");
        for part in ["sudo", "/var/lib/island-agent", "--state-dir", "--config FILE", "ISLAND_AGENT_"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(hint(io::ErrorKind::NotFound), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = Config { api_key: Some("ak_secret".into()), ..Config::default() };
        assert!(!island_daemon::config::show(&config.without_secrets()).contains("ak_secret"));
    }

    #[test]
    fn addresses_of_other_machines_need_encryption() {
        let config = |allow: bool, key: &str, url: &str| {
            let text = format!("allow_plaintext = {allow}\n{key} = '{url}'");
            toml::from_str::<Config>(&text).expect("settings").problems()
        };
        for (key, url) in [
            ("api_url", "http://island.example.org"),
            ("api_url", "http://192.168.1.2:8080"),
            ("cache.hub_endpoint", "http://mirror.example.org"),
            ("nats_url", "ws://nats.example.org"),
        ] {
            let problems = config(false, key, url);
            assert!(problems.len() == 1 && problems[0].starts_with(key), "{url}: {problems:?}");
            assert!(problems[0].contains("allow_plaintext"), "{problems:?}");
            assert_eq!(config(true, key, url), Vec::<String>::new(), "{url}");
        }
        for (key, url) in [
            ("api_url", "http://127.0.0.1:8080"),
            ("api_url", "https://island.example.org"),
            ("cache.hub_endpoint", "http://localhost:8080"),
            ("nats_url", "wss://nats.example.org/nats"),
            // TLS is required of this server when it is connected to.
            ("nats_url", "nats://nats.example.org"),
        ] {
            assert_eq!(config(false, key, url), Vec::<String>::new(), "{url}");
        }
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let mut config = Config::default();
        config.workers.max_jobs = 0;
        assert!(config.validate().is_err());
        let both = Config { api_key: Some("a".into()), api_key_file: Some("b".into()), ..Config::default() };
        assert!(both.validate().is_err());
        assert!(toml::from_str::<Config>("nmae = 'x'").is_err());
    }
}
