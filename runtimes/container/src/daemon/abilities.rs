//! What a daemon supports, and whether that suffices to confine untrusted programs.

use std::collections::BTreeMap;

use bollard::models::{SystemInfo, SystemVersion};
use island_runtimes_api::Unavailable;

/// Oldest API that supports every field of the request: it introduced private cgroup namespaces.
const OLDEST_API: (u32, u32) = (1, 41);
/// First runc versions with fixes of the three container escapes of November 2025, by minor version.
const SAFE_RUNC: [(u32, u32, u32); 3] = [(1, 2, 8), (1, 3, 3), (1, 4, 0)];

/// Name of Podman among the components of a daemon.
const PODMAN: &str = "Podman Engine";
/// The runtime that every Docker Engine has.
const RUNC: &str = "runc";
/// Default runtimes that do nothing but start the container; a daemon may also not name its default.
const PLAIN_RUNTIMES: [&str; 3] = ["", RUNC, "crun"];
/// Beginnings of the names of runtimes that run a container on a kernel of its own: gVisor's and Kata's.
const SANDBOXES: [&str; 4] = ["runsc", "kata", "io.containerd.runsc.", "io.containerd.kata"];

/// Facts about a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Its name and version.
    pub version: String,
    /// Whether its runc is new enough to give GPUs to untrusted containers.
    pub gpu_safe: bool,
    /// Its processors, in thousandths; it refuses a container with more.
    pub milli_cpus: Option<u64>,
    /// The runtime to request, where the daemon's default is another one: such as NVIDIA's, which applies variables of images.
    runtime: Option<String>,
    /// The runtime to request for containers without GPUs and egress, where the daemon has one with a kernel of its own.
    sandbox: Option<String>,
    /// Whether the owner chose such a runtime for all containers.
    is_sandboxed: bool,
    /// For the owner.
    pub details: BTreeMap<String, String>,
}

impl Abilities {
    /// Checks a daemon; every missing part of the sandbox is named.
    pub fn of(version: &SystemVersion, info: &SystemInfo) -> Result<Self, Unavailable> {
        let options = info.security_options.clone().unwrap_or_default();
        let has = |name: &str| {
            options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")))
        };
        let unconfined =
            options.iter().any(|option| option.contains("seccomp") && option.contains("unconfined"));
        let api = version.api_version.clone().unwrap_or_default();
        let mut missing = Vec::new();
        let mut need = |holds: bool, what: &str| {
            if !holds {
                missing.push(what.to_owned());
            }
        };
        need(info.os_type.as_deref().unwrap_or("linux") == "linux", "it does not run Linux containers");
        need(has("seccomp"), "it has no seccomp");
        need(!unconfined, "its seccomp profile is 'unconfined'");
        need(info.memory_limit == Some(true), "it cannot limit memory");
        need(info.pids_limit == Some(true), "it cannot limit the number of processes");
        need(info.cpu_cfs_quota == Some(true), "it cannot limit processor time");
        need(numbers(&api) >= vec![OLDEST_API.0, OLDEST_API.1], "its API is older than 1.41");
        let default = info.default_runtime.as_deref().unwrap_or_default();
        let has_runc = info.runtimes.as_ref().is_some_and(|runtimes| runtimes.contains_key(RUNC));
        let is_plain = PLAIN_RUNTIMES.contains(&default);
        let is_sandboxed = is_sandbox(default);
        let unusual = format!("its default runtime is '{default}', and it has no runc");
        need(is_plain || is_sandboxed || has_runc, &unusual);
        let engine = engine(version);
        if !missing.is_empty() {
            return Err(Unavailable {
                reason: format!("{engine} cannot confine untrusted programs: {}", missing.join("; ")),
            });
        }
        let rootless = has("rootless");
        let runc = component(version, "runc");
        // Podman lists the runtimes that it knows, installed or not.
        let is_podman = component(version, PODMAN).is_some();
        let listed = info.runtimes.iter().flatten().map(|(name, _)| name).filter(|name| is_sandbox(name));
        let sandbox = listed.min().filter(|_| !is_podman && !is_sandboxed).cloned();
        let details = [
            ("api", Some(api)),
            ("rootless", Some(rootless.to_string())),
            ("user_namespace", Some((rootless || has("userns")).to_string())),
            ("cgroup", info.cgroup_version.map(|version| version.to_string())),
            ("swap_limit", info.swap_limit.map(|limit| limit.to_string())),
            ("security", Some(options.join(" "))),
            ("runc", runc.clone()),
            ("sandbox", if is_sandboxed { Some(default.to_owned()) } else { sandbox.clone() }),
            ("storage", info.driver.clone()),
        ];
        let details = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(Self {
            version: engine,
            gpu_safe: runc.is_some_and(|runc| is_safe_runc(&runc)),
            runtime: (!is_plain && !is_sandboxed).then(|| RUNC.to_owned()),
            sandbox,
            is_sandboxed,
            milli_cpus: info.ncpu.filter(|&count| count > 0).map(|count| count as u64 * 1000),
            details: details.collect(),
        })
    }

    /// The runtime to request for a container; `None` is the daemon's default. GPUs need hooks of the host, and egress a socket of the host:
    /// runtimes with a kernel of their own have neither, unless they are set up for it.
    pub fn runtime(&self, has_gpus: bool, has_egress: bool) -> Option<&str> {
        let sandbox = self.sandbox.as_deref().filter(|_| !has_gpus && !has_egress);
        sandbox.or(self.runtime.as_deref())
    }

    /// Why it gives untrusted containers no GPU, if so.
    pub fn gpu_problem(&self) -> Option<&'static str> {
        if self.is_sandboxed {
            return Some("this Island's default runtime has a kernel of its own, without GPUs");
        }
        (!self.gpu_safe).then_some("this Island's runc is too old to give a GPU to an untrusted container")
    }
}

/// Whether a runtime runs containers on a kernel of their own.
fn is_sandbox(runtime: &str) -> bool {
    SANDBOXES.iter().any(|start| runtime.starts_with(start))
}

fn engine(version: &SystemVersion) -> String {
    let podman = component(version, PODMAN);
    match (podman, &version.version) {
        (Some(podman), _) => format!("Podman {podman}"),
        (None, Some(docker)) => format!("Docker Engine {docker}"),
        (None, None) => "a container daemon of unknown version".to_owned(),
    }
}

fn component(version: &SystemVersion, name: &str) -> Option<String> {
    let components = version.components.as_deref().unwrap_or_default();
    components.iter().find(|component| component.name == name).map(|component| component.version.clone())
}

fn is_safe_runc(version: &str) -> bool {
    let [major, minor, patch] = *numbers(version).as_slice() else { return false };
    let line = SAFE_RUNC.iter().find(|safe| (safe.0, safe.1) == (major, minor));
    match line {
        // Release candidates of the first release of a line did not all have the fixes.
        Some(safe) => patch >= safe.2 && !version.contains("-rc"),
        None => (major, minor) > (1, 4),
    }
}

/// The leading numbers of a version, at most three.
fn numbers(version: &str) -> Vec<u32> {
    let core = version.split(['-', '+', '~']).next().unwrap_or_default();
    core.split('.').map_while(|part| part.parse().ok()).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn abilities_of(change: impl Fn(&mut Value, &mut Value)) -> Result<Abilities, Unavailable> {
        let mut version = json!({
            "Version": "28.1.0", "ApiVersion": "1.49",
            "Components": [{"Name": "Engine", "Version": "28.1.0"}, {"Name": "runc", "Version": "1.3.3"}],
        });
        let mut info = json!({
            "OSType": "linux", "MemoryLimit": true, "SwapLimit": true, "PidsLimit": true, "CpuCfsQuota": true,
            "CgroupVersion": "2", "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
        });
        change(&mut version, &mut info);
        let version = serde_json::from_value(version).expect("a version");
        Abilities::of(&version, &serde_json::from_value(info).expect("information"))
    }

    #[test]
    fn a_complete_daemon_is_used() {
        let abilities = abilities_of(|_, _| ()).expect("used");
        assert_eq!(abilities.version, "Docker Engine 28.1.0");
        assert!(abilities.gpu_safe);
        assert_eq!(abilities.details["cgroup"], "2");
        assert_eq!(abilities.details["rootless"], "false");
    }

    #[test]
    fn a_missing_part_of_the_sandbox_is_named() {
        let cases: [(&str, &str, Value); 6] = [
            ("seccomp", "SecurityOptions", json!(["name=cgroupns"])),
            ("unconfined", "SecurityOptions", json!(["name=seccomp,profile=unconfined"])),
            ("memory", "MemoryLimit", json!(false)),
            ("processes", "PidsLimit", json!(false)),
            ("processor time", "CpuCfsQuota", Value::Null),
            ("Linux", "OSType", json!("windows")),
        ];
        for (named, field, value) in cases {
            let refused = abilities_of(|_, info| info[field] = value.clone()).expect_err(named);
            assert!(refused.reason.contains(named), "{named}: {refused}");
        }
        assert!(abilities_of(|version, _| version["ApiVersion"] = json!("1.40")).is_err());
    }

    #[test]
    fn a_default_runtime_that_applies_variables_of_images_is_not_used() {
        let with = |default: &str, others: Value| {
            abilities_of(move |_, info| {
                (info["DefaultRuntime"], info["Runtimes"]) = (json!(default), others.clone());
            })
        };
        let both = json!({"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}});
        assert_eq!(with("runc", both.clone()).expect("used").runtime(true, true), None);
        assert_eq!(with("nvidia", both).expect("used").runtime(false, false), Some("runc"));
        let refused = with("nvidia", json!({"nvidia": {"path": "x"}})).expect_err("nothing else is there");
        assert!(refused.reason.contains("'nvidia'"), "{refused}");
    }

    #[test]
    fn a_runtime_with_a_kernel_of_its_own_is_preferred_and_never_replaced() {
        let with = |default: &str, others: &[&str], is_podman: bool| {
            let others: BTreeMap<_, _> = others.iter().map(|name| (*name, json!({"path": name}))).collect();
            let found = abilities_of(move |version, info| {
                (info["DefaultRuntime"], info["Runtimes"]) = (json!(default), json!(others));
                if is_podman {
                    version["Components"] = json!([{"Name": "Podman Engine", "Version": "5.4.0"}]);
                }
            });
            found.expect("used")
        };
        for sandbox in ["runsc", "kata-runtime", "io.containerd.runsc.v1", "io.containerd.kata.v2"] {
            // The owner's choice for all containers; it gives them no GPU.
            let chosen = with(sandbox, &["runc", "nvidia", sandbox], false);
            assert_eq!(
                (chosen.runtime(false, false), chosen.runtime(false, true)),
                (None, None),
                "{sandbox}"
            );
            assert!(chosen.gpu_problem().is_some_and(|problem| problem.contains("kernel")), "{sandbox}");
            for default in ["runc", "nvidia"] {
                let listed = with(default, &["runc", "nvidia", sandbox], false);
                assert_eq!(listed.runtime(false, false), Some(sandbox), "{default}");
                let otherwise = (default == "nvidia").then_some("runc");
                assert_eq!(listed.runtime(true, false), otherwise, "{default}");
                assert_eq!(listed.runtime(false, true), otherwise, "{default}");
                assert_eq!(listed.gpu_problem(), None, "{default}");
            }
            assert_eq!(with("crun", &["crun", sandbox], true).runtime(false, false), None, "not installed");
        }
    }

    #[test]
    fn podman_is_distinguished_from_docker() {
        let podman = json!([{"Name": "Podman Engine", "Version": "5.4.0"}]);
        let abilities = abilities_of(|version, _| version["Components"] = podman.clone()).expect("used");
        assert_eq!(abilities.version, "Podman 5.4.0");
        assert!(!abilities.gpu_safe, "its runtime is unknown");
    }

    #[test]
    fn gpus_require_a_runc_with_fixes() {
        for (version, safe) in [
            ("1.1.5+ds1", false),
            ("1.2.7", false),
            ("1.2.8", true),
            ("1.3.2", false),
            ("1.3.3", true),
            ("1.4.0-rc.2", false),
            ("1.4.0", true),
            ("1.5.0", true),
            ("2.0.0", true),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(is_safe_runc(version), safe, "{version}");
        }
    }
}
