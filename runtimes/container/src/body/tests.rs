use std::time::Duration;

use island_protocol::ids::{AttemptKey, InstanceId, JobId};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::labels::Maker;

fn maker() -> Maker {
    Maker { island: "ours".to_owned(), worker: InstanceId(uuid::Uuid::nil()) }
}

fn limits(gpus: bool) -> ResourceLimits {
    ResourceLimits {
        memory_bytes: 256 << 20,
        milli_cpus: 1000,
        pids: 64,
        scratch_bytes: 128 << 20,
        time: Duration::from_mins(1),
        gpus,
    }
}

fn body(image: &str, command: &[String], limits: &ResourceLimits) -> Value {
    with_egress_mount(image, command, limits, None)
}

fn with_egress_mount(
    image: &str,
    command: &[String],
    limits: &ResourceLimits,
    egress_mount: Option<&str>,
) -> Value {
    let key = AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 2, epoch: 3 };
    let maker = maker();
    let spec = Spec {
        image: image.to_owned(),
        cleared: ["LD_LIBRARY_PATH", "NVIDIA_IMEX_CHANNELS", "NVIDIA_VISIBLE_DEVICES"]
            .map(str::to_owned)
            .to_vec(),
        command: command.to_vec(),
        limits: *limits,
        gpus: if limits.gpus { vec!["GPU-1".to_owned()] } else { Vec::new() },
        egress_mount: egress_mount.map(Into::into),
    };
    let body = create_body(
        &spec,
        &ContainerLabels { maker: &maker, key: Some(key), lifetime: Duration::from_mins(31) },
    );
    serde_json::to_value(body).expect("JSON")
}

#[test]
fn exactly_this_is_requested_of_a_daemon() {
    let command = ["/bin/x", "--flag"].map(str::to_owned);
    let expected = json!({
        "Image": "sha256:abc",
        "Entrypoint": ["/bin/x", "--flag"],
        "Cmd": [],
        "User": "65534:65534",
        "Hostname": "cargo",
        "Env": ["HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8", "NVIDIA_VISIBLE_DEVICES=void", "LD_PRELOAD=", "LD_AUDIT=",
            "LD_LIBRARY_PATH=", "NVIDIA_IMEX_CHANNELS="],
        "WorkingDir": "/",
        "Labels": {
            "island.island": "ours",
            "island.worker": "00000000-0000-0000-0000-000000000000",
            "island.job": "00000000-0000-0000-0000-000000000000",
            "island.attempt": "2",
            "island.epoch": "3",
            "island.lifetime": "1860",
        },
        "AttachStdin": true, "AttachStdout": true, "AttachStderr": true,
        "OpenStdin": true, "StdinOnce": true, "Tty": false,
        "NetworkDisabled": true,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": true,
            "Privileged": false,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "Tmpfs": {"/tmp": "rw,noexec,nosuid,nodev,mode=1777,size=134217728"},
            "ShmSize": 64 << 20,
            "Memory": 256 << 20,
            "MemorySwap": 256 << 20,
            "NanoCpus": 1_000_000_000,
            "PidsLimit": 64,
            "Ulimits": [
                {"Name": "nofile", "Soft": 1024, "Hard": 1024},
                {"Name": "core", "Soft": 0, "Hard": 0},
                {"Name": "cpu", "Soft": 120, "Hard": 120},
            ],
            "OomScoreAdj": 500,
            "Init": true,
            "LogConfig": {"Type": "none"},
        },
    });
    assert_eq!(body("sha256:abc", &command, &limits(false)), expected);
    let gpu = body("sha256:abc", &command, &limits(true));
    let request = json!([{"Driver": "nvidia", "DeviceIDs": ["GPU-1"], "Capabilities": [["gpu", "compute", "utility"]]}]);
    assert_eq!(gpu["HostConfig"]["DeviceRequests"], request);
    assert_eq!(
        gpu["Env"],
        json!([
            "HOME=/tmp",
            "TMPDIR=/tmp",
            "LANG=C.UTF-8",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            "LD_PRELOAD=",
            "LD_AUDIT=",
            "LD_LIBRARY_PATH=",
            "NVIDIA_IMEX_CHANNELS=",
        ]),
        "the daemon names the GPU"
    );
}

#[test]
fn egress_is_one_read_only_folder_and_no_network() {
    let (plain, limits) = (body("sha256:abc", &[], &limits(false)), limits(false));
    let mut out = with_egress_mount("sha256:abc", &[], &limits, Some("/state/egress/1-1-1"));
    let mounts = json!([{
        "Target": "/.island",
        "Source": "/state/egress/1-1-1",
        "Type": "bind",
        "ReadOnly": true,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": true, "CreateMountpoint": false},
    }]);
    assert_eq!(out["HostConfig"].as_object_mut().expect("a host config").remove("Mounts"), Some(mounts));
    let env = out["Env"].as_array_mut().expect("an environment").split_off(8);
    let named: Vec<_> = env.iter().map(|pair| pair.as_str().expect("a text")).collect();
    let proxy = "http://127.0.0.1:3128";
    let variables = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let expected = variables.iter().map(|name| format!("{name}={proxy}"));
    let none = ["NO_PROXY", "no_proxy"].map(|name| format!("{name}=localhost,127.0.0.1,::1"));
    assert_eq!(named, expected.chain(none).collect::<Vec<_>>());
    assert_eq!(out, plain, "nothing else differs");
}

#[test]
fn without_a_command_the_images_own_runs() {
    let body = body("sha256:abc", &[], &limits(false));
    assert!(body.get("Entrypoint").is_none() && body.get("Cmd").is_none());
}

/// Fields that would weaken the sandbox with any value.
const FORBIDDEN: [&str; 33] = [
    "Binds",
    "VolumesFrom",
    "VolumeDriver",
    "Devices",
    "DeviceCgroupRules",
    "CapAdd",
    "GroupAdd",
    "PidMode",
    "UTSMode",
    "UsernsMode",
    "CgroupParent",
    "Cgroup",
    "Sysctls",
    "Runtime",
    "MaskedPaths",
    "ReadonlyPaths",
    "PortBindings",
    "PublishAllPorts",
    "Links",
    "ExtraHosts",
    "Dns",
    "DnsOptions",
    "DnsSearch",
    "StorageOpt",
    "OomKillDisable",
    "RestartPolicy",
    "AutoRemove",
    "Annotations",
    "ContainerIDFile",
    "CpuRealtimeRuntime",
    "CpuRealtimePeriod",
    "Isolation",
    "MemorySwappiness",
];

proptest! {
    #[test]
    fn no_arguments_of_a_cargo_weaken_the_request(
        image in ".{0,80}",
        command in proptest::collection::vec(".{0,40}", 0..6),
        memory_mb in 16_u64..8192,
        pids in 1_u64..512,
        gpus: bool,
        leaves: bool,
    ) {
        let limits = ResourceLimits { memory_bytes: memory_mb << 20, pids, ..limits(gpus) };
        let whole = with_egress_mount(&image, &command, &limits, leaves.then_some("/x"));
        let host = whole["HostConfig"].as_object().expect("a host config");
        prop_assert_eq!(host.get("Mounts").map(|mounts| mounts.as_array().map(Vec::len)), leaves.then_some(Some(1)));
        for field in FORBIDDEN {
            prop_assert!(!host.contains_key(field), "{field} is set");
        }
        for field in ["Volumes", "ExposedPorts", "MacAddress", "NetworkingConfig", "StopSignal", "Shell"] {
            prop_assert!(whole.get(field).is_none(), "{field} is set");
        }
        prop_assert_eq!(&whole["User"], "65534:65534");
        prop_assert_eq!(&host["NetworkMode"], "none");
        prop_assert_eq!(&host["ReadonlyRootfs"], true);
        prop_assert_eq!(&host["Privileged"], false);
        prop_assert_eq!(&host["CapDrop"], &json!(["ALL"]));
        prop_assert_eq!(&host["SecurityOpt"], &json!(["no-new-privileges"]));
        prop_assert_eq!(&host["MemorySwap"], &host["Memory"]);
        prop_assert!(host["PidsLimit"].as_u64() == Some(pids) && host["NanoCpus"].as_u64() > Some(0));
        prop_assert_eq!(host.contains_key("DeviceRequests"), gpus);
    }
}
