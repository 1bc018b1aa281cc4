//! Settings. Each section's defaults stand in its `Default`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use island_daemon::{config::ConfigError, telemetry::LogFormat};
use island_protocol::{cargo::RuntimeType, credits::MicroCredits};
use island_runtimes_worker::launch::ContainerRules;
use serde::{Deserialize, Serialize};

use crate::policy::{Rules, gpus::GpuRule};

/// Prefix of environment variables: `ISLAND_AGENT_WORKERS__MAX_JOBS`.
pub const ENV_PREFIX: &str = "ISLAND_AGENT_";

/// All settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where identity, spools and workers' folders lie.
    pub state_dir: PathBuf,
    /// Address of the coordinator.
    pub api_url: String,
    /// API key of the owner, for the first enrolment only. Better: `api_key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// File that holds the API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Fabric address that replaces the one the coordinator tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nats_url: Option<String>,
    /// Name that others see.
    pub name: String,
    /// Where this Island is, in its owner's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Run strangers' jobs even where this kernel cannot build every wall around a worker.
    pub allow_weak_sandbox: bool,
    /// Offer the scripted stand-in engine, for tests and demonstrations.
    pub simulated: bool,
    /// Try memory, disk and a job of its own at the first start, so that the network knows how fast this machine is.
    pub measure: bool,
    /// Seconds that running jobs get to finish when the agent is asked to stop.
    pub drain_s: u64,
    /// How logs look.
    pub log: LogFormat,
    /// The store of models.
    pub cache: CacheSection,
    /// Engines.
    pub workers: WorkersSection,
    /// What the owner keeps.
    pub memory: MemorySection,
    /// What the owner allows containers.
    pub containers: ContainerRules,
    /// Models fetched before jobs ask for them.
    pub preload: PreloadSection,
    /// When this machine works for others.
    pub policy: Rules,
    /// The owner's page on this machine.
    pub page: PageSection,
    /// Where numbers are sent.
    pub otlp: OtlpSection,
}

/// The owner's page on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageSection {
    /// Port on 127.0.0.1 where a browser and Prometheus find it; absent, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Models fetched before jobs ask for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreloadSection {
    /// Whether to ask at all.
    pub enabled: bool,
    /// Seconds between two questions, give or take a tenth.
    pub every_s: u64,
    /// Gigabytes that one round may fetch.
    pub max_gb: u64,
}

impl PreloadSection {
    /// Time between two questions.
    pub fn every(&self) -> Duration {
        Duration::from_secs(self.every_s)
    }
}

impl Default for PreloadSection {
    fn default() -> Self {
        Self { enabled: true, every_s: 900, max_gb: 20 }
    }
}

/// The store of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSection {
    /// Its folder; absent, `cache` in the state folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Gigabytes after which the least recently used files go.
    pub max_gb: u64,
    /// Gigabytes of the disk that are never taken.
    pub keep_free_gb: u64,
    /// Address of the model hub; absent, what `HF_ENDPOINT` says, or the public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_endpoint: Option<String>,
    /// File with a token for the hub, for models that need one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub_token_file: Option<PathBuf>,
    /// Home of other programs' hub files, so that nothing is fetched twice; absent, what `HF_HOME` says, or the usual
    /// place under the home folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hf_home: Option<PathBuf>,
    /// Never fetch.
    pub offline: bool,
    /// Megabits a second that all downloads together may take; absent, as fast as they come.
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
    /// Jobs at once on this Island, waiting ones included.
    pub max_jobs: u32,
    /// Processor threads of one worker; 0 takes all.
    pub threads: u32,
}

/// What the owner keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Megabytes of main memory that jobs never use.
    pub reserve_ram_mb: u64,
    /// Megabytes per GPU that jobs never use.
    pub reserve_vram_mb: u64,
}

/// Where to send numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpSection {
    /// Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`; absent, nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Seconds between two pages.
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
    /// Whether the values make sense together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, rule: &str| {
            if holds { Ok(()) } else { Err(ConfigError::Invalid(rule.to_owned())) }
        };
        require(!self.state_dir.as_os_str().is_empty(), "state_dir must not be empty")?;
        require(
            !self.name.trim().is_empty() && self.name.len() <= 100,
            "name must have 1 to 100 characters",
        )?;
        require(self.workers.max_jobs > 0, "workers.max_jobs must be at least 1")?;
        require(self.workers.slots_per_model > 0, "workers.slots_per_model must be at least 1")?;
        require(self.preload.every_s > 0, "preload.every_s must be at least 1")?;
        let known = |runtime: &RuntimeType| RuntimeType::ALL.contains(runtime);
        require(self.policy.runtimes.iter().all(known), "policy.runtimes names an engine that there is not")?;
        let says_nothing = |rule: &&GpuRule| {
            let limits = (rule.max_vram_mb, rule.max_temperature_c, rule.max_power_w);
            !rule.never && limits == (None, None, None)
        };
        if let Some(rule) = self.policy.gpu.iter().find(says_nothing) {
            let gpu = &rule.gpu;
            return Err(ConfigError::Invalid(format!("policy.gpu of {gpu} sets nothing: never, or a max_…")));
        }
        require(
            self.cache.max_mbit_s != Some(0),
            "cache.max_mbit_s must be at least 1; offline fetches nothing",
        )?;
        let asked = std::iter::once(&self.policy.asking.per_job).chain(self.policy.asking.cargos.values());
        require(asked.min() >= Some(&MicroCredits::ZERO), "policy.asking must not be negative")?;
        require(self.cache.max_gb > 0, "cache.max_gb must be at least 1")?;
        require(
            self.api_key.is_none() || self.api_key_file.is_none(),
            "api_key and api_key_file exclude each other",
        )
    }

    /// The API key, wherever it stands.
    pub fn read_api_key(&self) -> io::Result<Option<String>> {
        match &self.api_key_file {
            // A package lays an empty file where the owner may put a key.
            Some(file) => Ok(Some(fs::read_to_string(file)?.trim().to_owned()).filter(|key| !key.is_empty())),
            None => Ok(self.api_key.clone()),
        }
    }

    /// The hub's token, if there is one that can be read.
    pub fn read_hub_token(&self) -> Option<String> {
        let text = fs::read_to_string(self.cache.hub_token_file.as_ref()?);
        let text = text.inspect_err(|error| tracing::warn!(%error, "the hub's token cannot be read")).ok()?;
        Some(text.trim().to_owned())
    }

    /// These settings without their secret, for `config show`.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.api_key = self.api_key.map(|_| "(hidden)".to_owned());
        self
    }

    /// The cache's folder.
    pub fn cache_dir(&self) -> PathBuf {
        self.cache.dir.clone().unwrap_or_else(|| self.state_dir.join("cache"))
    }

    /// The model hub's address.
    pub fn hub_endpoint(&self) -> String {
        let set = self.cache.hub_endpoint.clone().or_else(|| std::env::var("HF_ENDPOINT").ok());
        set.unwrap_or_else(|| "https://huggingface.co".to_owned())
    }

    /// Where other programs keep hub files.
    pub fn hf_home(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/huggingface"));
        let told = || std::env::var_os("HF_HOME").map(PathBuf::from);
        self.cache.hf_home.clone().or_else(told).or_else(usual)
    }

    /// The folder with the workers' programs.
    pub fn bin_dir(&self) -> PathBuf {
        let own = || Some(std::env::current_exe().ok()?.parent()?.to_owned());
        self.workers.bin_dir.clone().or_else(own).unwrap_or_else(|| Path::new(".").to_owned())
    }

    /// Threads of one worker on a machine of `cores`.
    pub fn threads(&self, cores: u32) -> u32 {
        if self.workers.threads == 0 { cores.max(1) } else { self.workers.threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_toml() {
        let config = Config::default();
        config.validate().expect("valid");
        let text = island_daemon::config::show(&config);
        assert_eq!(toml::from_str::<Config>(&text).expect("parse"), config);
    }

    #[test]
    fn an_owner_says_where_containers_connect_to() {
        use island_protocol::egress::Egress;
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.containers.egress);
        assert_eq!(read("").expect("nothing said"), Egress::None);
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
    fn an_owner_says_what_holds_for_single_gpus() {
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
        assert!(read("[[policy.gpu]]\ngpu = 0").expect("syntax").validate().is_err(), "it sets nothing");
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = Config { api_key: Some("ak_secret".into()), ..Config::default() };
        assert!(!island_daemon::config::show(&config.without_secrets()).contains("ak_secret"));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut config = Config::default();
        config.workers.max_jobs = 0;
        assert!(config.validate().is_err());
        let both = Config { api_key: Some("a".into()), api_key_file: Some("b".into()), ..Config::default() };
        assert!(both.validate().is_err());
        assert!(toml::from_str::<Config>("nmae = 'x'").is_err());
    }
}
