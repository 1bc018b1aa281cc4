//! The request to create a container. One pure function whose result no Cargo can weaken: a Cargo chooses the arguments of a command, the
//! rest is Pod Security "restricted".

use std::{collections::HashMap, path::Path};

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType,
    ResourcesUlimits,
};

use crate::{egress_mount, labels::ContainerLabels, resource_limits::ResourceLimits, start::Spec};

/// User and group `nobody`: never root, whatever the image specifies.
pub const USER: &str = "65534:65534";
/// The only folder that can be written.
const SCRATCH: &str = "/tmp";
/// Maximum number of open files.
const OPEN_FILES: i64 = 1024;
/// Bytes of shared memory, which counts as the container's own.
const SHARED_MEMORY: i64 = 64 << 20;
/// A container ends before other processes when the host runs out of memory.
const OOM_SCORE: i64 = 500;

/// The container of one job. The Cargo's command replaces the image's own unless it is empty.
pub fn create_body(spec: &Spec, labels: &ContainerLabels) -> ContainerCreateBody {
    let Spec { image, cleared, command, limits, gpus, egress_mount } = spec;
    let egress_mount = egress_mount.as_deref();
    let given = !command.is_empty();
    let mut env = vec![format!("HOME={SCRATCH}"), format!("TMPDIR={SCRATCH}"), "LANG=C.UTF-8".to_owned()];
    // An image can request GPUs and drivers by these variables, where NVIDIA's runtime is the daemon's default or with an owner's GPU.
    let own = if gpus.is_empty() {
        "NVIDIA_VISIBLE_DEVICES=void"
    } else {
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    };
    env.push(own.to_owned());
    // Hooks of the host run with the environment of a container in some versions of toolkits: an image must not load code into them.
    env.extend(["LD_PRELOAD=", "LD_AUDIT=", "LD_LIBRARY_PATH="].map(str::to_owned));
    let is_set = |name: &str| env.iter().any(|set| set.split('=').next() == Some(name));
    // With a GPU, the daemon names it by this variable.
    let is_daemons = |name: &str| !gpus.is_empty() && name == "NVIDIA_VISIBLE_DEVICES";
    let cleared: Vec<String> = cleared
        .iter()
        .filter(|name| !is_set(name) && !is_daemons(name))
        .map(|name| format!("{name}="))
        .collect();
    env.extend(cleared);
    env.extend(egress_mount.into_iter().flat_map(|_| egress_mount::variables()));
    ContainerCreateBody {
        image: Some(image.clone()),
        entrypoint: given.then(|| command.clone()),
        cmd: given.then(Vec::new),
        user: Some(USER.to_owned()),
        // Not the image's: by a folder such as /proc/self/fd/8 a program got out of a container in old versions of runc.
        working_dir: Some("/".to_owned()),
        // Every container has the same host name, so that a program cannot learn where it runs.
        hostname: Some("cargo".to_owned()),
        env: Some(env),
        labels: Some(labels.labels()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(false),
        network_disabled: Some(true),
        // Disables the health check of the image, which would run a command periodically.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(host_config(limits, gpus, egress_mount)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(limits: &ResourceLimits, gpus: &[String], egress_mount: Option<&Path>) -> HostConfig {
    let memory = limits.memory_bytes as i64;
    HostConfig {
        network_mode: Some("none".to_owned()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        // Without a profile, the daemon's default stays in force.
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        tmpfs: Some(HashMap::from([(
            SCRATCH.to_owned(),
            format!("rw,noexec,nosuid,nodev,mode=1777,size={}", limits.scratch_bytes),
        )])),
        shm_size: Some(SHARED_MEMORY.min(memory / 2)),
        memory: Some(memory),
        // Memory and swap together: no swap.
        memory_swap: Some(memory),
        nano_cpus: Some(limits.milli_cpus as i64 * 1_000_000),
        pids_limit: Some(limits.pids as i64),
        ulimits: Some(vec![limit("nofile", OPEN_FILES), limit("core", 0), limit("cpu", cpu_seconds(limits))]),
        oom_score_adj: Some(OOM_SCORE),
        // Reaps orphaned processes and forwards signals.
        init: Some(true),
        // Its output is only streamed; a log on the host could fill the disk.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        mounts: egress_mount.map(|folder| vec![mount(folder)]),
        device_requests: (!gpus.is_empty()).then(|| {
            vec![DeviceRequest {
                driver: Some("nvidia".to_owned()),
                device_ids: Some(gpus.to_vec()),
                capabilities: Some(vec![["gpu", "compute", "utility"].map(str::to_owned).to_vec()]),
                ..DeviceRequest::default()
            }]
        }),
        ..HostConfig::default()
    }
}

/// The only folder of the host that a container may access, read-only: connecting to a socket is possible all the same.
fn mount(folder: &Path) -> Mount {
    Mount {
        target: Some(egress_mount::FOLDER.to_owned()),
        source: Some(folder.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(true),
            create_mountpoint: Some(false),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Processor time of each process: as much as it can use until the job's deadline, and a minute. It ends programs that compute even if
/// nobody is left who removes the container.
fn cpu_seconds(limits: &ResourceLimits) -> i64 {
    let seconds = limits.time.as_secs().saturating_mul(limits.milli_cpus.div_ceil(1000).max(1));
    i64::try_from(seconds.saturating_add(60)).unwrap_or(i64::MAX)
}

fn limit(name: &str, most: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(most), hard: Some(most) }
}

#[cfg(test)]
mod tests;
