//! Programs that try to break out, to reach others and to exhaust the host, next to a job that must stream on undisturbed.
//!
//! An attack that is refused proves something only if it would succeed without the sandbox, so each runs in a container without one, too.

use std::{
    process::Stdio,
    sync::{Arc, atomic::Ordering},
};

use bollard::{
    Docker,
    exec::{StartExecOptions, StartExecResults},
    models::{ContainerCreateBody, ExecConfig, HostConfig},
    query_parameters::{
        CreateContainerOptions, CreateImageOptionsBuilder, RemoveContainerOptionsBuilder,
        StartContainerOptions,
    },
};
use futures::TryStreamExt as _;
use island_protocol::job::{FailureCode, Fault, Outcome};
use island_runtimes_api::Runtime;
use island_runtimes_container::{
    Containers,
    testing::{BRIDGE_ADDRESS, HOST_ADDRESSES},
};
use serde_json::json;

use crate::support::{Job, Played, World, play, script, with, within};
use Expect::{Ended, Refused};

/// Expected result of an attack.
enum Expect {
    /// The program finds that it cannot, and prints `refused`.
    Refused,
    /// The program is ended.
    Ended(FailureCode),
}

/// Where an attack must succeed, as a proof that it is one.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    /// In a container with every capability that this test has, and the network, processes and devices of the host.
    Privileged,
    /// In a container with Docker's defaults: on the daemon's bridge.
    Bridge,
    /// Nowhere: it would change or exhaust the machine that runs the test, or it attempts nothing.
    None,
}

/// A script prints `got through` if its attack succeeds.
struct Attack {
    name: &'static str,
    script: String,
    expect: Expect,
    control: Control,
}

/// What attacks aim at.
struct Targets {
    /// A port on every address of the host.
    port: u16,
    /// A process of the host.
    pid: u32,
    /// The daemon's socket.
    socket: String,
}

fn attacks(targets: &Targets) -> Vec<Attack> {
    [exhaustion(), network(targets), processes(targets.pid), privileges(), files()]
        .into_iter()
        .flatten()
        .collect()
}

fn tries(command: &str) -> String {
    format!("cat >/dev/null; if {command}; then emit 'got through'; else emit refused; fi")
}

fn refused(control: Control, name: &'static str, command: &str) -> Attack {
    Attack { name, script: tries(command), expect: Refused, control }
}

fn ended(name: &'static str, script: &str, code: FailureCode) -> Attack {
    Attack { name, script: script.to_owned(), expect: Ended(code), control: Control::None }
}

fn exhaustion() -> Vec<Attack> {
    vec![
        // Processes started next to the bomb fail sooner or later, so the program itself only waits.
        ended("fork bomb", "(b() { b | b & }; b) & exec sleep 100", FailureCode::DeadlineExceeded),
        ended(
            "a thousand processes",
            "i=0; while [ $i -lt 1000 ]; do sleep 20 & i=$((i+1)); done; emit 'got through'",
            FailureCode::CargoFailed,
        ),
        ended("memory bomb", "exec tail /dev/zero", FailureCode::OutOfMemory),
        refused(
            Control::Privileged,
            "memory bomb in shared memory",
            "dd if=/dev/zero of=/dev/shm/x bs=1M count=512 2>/dev/null && rm /dev/shm/x",
        ),
        refused(
            Control::None,
            "fill the scratch folder",
            "dd if=/dev/zero of=/tmp/x bs=1M count=4096 2>/dev/null",
        ),
        refused(
            Control::None,
            "a million files",
            "(i=0; while [ $i -lt 2000000 ]; do echo > /tmp/$i || exit 1; i=$((i+1)); done) 2>/dev/null",
        ),
        ended(
            "output flood",
            r#"yes '{"type":"token","content":"xxxxxxxxxxxxxxxx"}'"#,
            FailureCode::OutputLimit,
        ),
        ended("giant line", "head -c 1000000000 /dev/zero | tr '\\0' x", FailureCode::OutputLimit),
        Attack {
            name: "flood of the debug log",
            script: "head -c 100000000 /dev/zero | tr '\\0' x >&2; emit refused".to_owned(),
            expect: Refused,
            control: Control::None,
        },
        ended("endless loop", "while :; do :; done", FailureCode::DeadlineExceeded),
        ended(
            "ignored signals",
            "trap '' TERM INT HUP; while :; do sleep 1; done",
            FailureCode::DeadlineExceeded,
        ),
        // Raising a limit needs a capability that the test may lack.
        refused(Control::None, "raise limits", "ulimit -n 100000 2>/dev/null"),
    ]
}

fn network(targets: &Targets) -> Vec<Attack> {
    let connects = |control, name, host: &str| {
        refused(control, name, &format!("nc -w 2 {host} {} </dev/null >/dev/null 2>&1", targets.port))
    };
    let [private, metadata] = HOST_ADDRESSES;
    vec![
        connects(Control::Privileged, "reach this host", "127.0.0.1"),
        connects(Control::Privileged, "reach this host, IPv6", "::1"),
        connects(Control::Bridge, "reach this host on the bridge", BRIDGE_ADDRESS),
        connects(Control::Bridge, "reach the owner's network", private),
        connects(Control::Bridge, "reach the metadata service", metadata),
        refused(Control::Bridge, "find an interface", "ls /sys/class/net | grep -qv '^lo$'"),
        refused(Control::Privileged, "raw packets", "ping -c 1 -W 1 127.0.0.1 >/dev/null 2>&1"),
        refused(
            Control::Privileged,
            "Docker's socket",
            &format!("ls /run/docker.sock /var/run/docker.sock {} 2>/dev/null | grep -q .", targets.socket),
        ),
    ]
}

fn processes(pid: u32) -> Vec<Attack> {
    vec![
        refused(Control::Privileged, "see other processes", "[ $(ls -d /proc/[0-9]* | wc -l) -gt 8 ]"),
        refused(
            Control::Privileged,
            "read a process's memory",
            &format!(
                "a=$(sed -n '1s/-.*//p' /proc/{pid}/maps 2>/dev/null) && [ -n \"$a\" ] && \
                 dd if=/proc/{pid}/mem bs=4096 skip=$((0x$a / 4096)) count=1 2>/dev/null | grep -q ."
            ),
        ),
        refused(Control::Privileged, "signal a process", &format!("kill -CONT {pid} 2>/dev/null")),
        refused(Control::Privileged, "read the kernel's log", "dmesg 2>/dev/null | grep -q ."),
        refused(
            Control::Privileged,
            "read the kernel's symbols",
            "grep -v '^0*[ ]' /proc/kallsyms 2>/dev/null | grep -q .",
        ),
        // Few kernels let even root read it.
        refused(Control::None, "read the host's memory", "head -c 1 /proc/kcore 2>/dev/null | grep -q ."),
    ]
}

fn privileges() -> Vec<Attack> {
    let attack = |name, command| refused(Control::Privileged, name, command);
    vec![
        attack("become root", "su root -c true 2>/dev/null"),
        attack("be root already", "[ $(id -u) = 0 ]"),
        attack("change owner", "(touch /tmp/o && chown 0 /tmp/o) 2>/dev/null"),
        attack("capabilities", "grep '^Cap' /proc/self/status | grep -qv '0000000000000000$'"),
        attack("new privileges", "grep -q 'NoNewPrivs:.0' /proc/self/status"),
        attack("no filter", "grep -q 'Seccomp:.0' /proc/self/status"),
        attack("new namespaces", "unshare -r true 2>/dev/null || unshare -m true 2>/dev/null"),
        attack("mount", "mount -t tmpfs none /tmp 2>/dev/null"),
        attack("mount again, to write", "mount -o remount,rw / 2>/dev/null"),
        attack("change root", "chroot / true 2>/dev/null"),
        attack("make a device", "mknod /tmp/d b 254 0 2>/dev/null"),
        attack("open a disk", "ls /dev | grep -qE '^(sd|vd|nvme|mem|kmsg)'"),
        // The clock is the host's.
        refused(
            Control::None,
            "set the clock",
            "date -s 200001010000 >/dev/null 2>&1; [ $(date +%Y) = 2000 ]",
        ),
        attack("rename the host", "(unshare -u hostname other || hostname other) 2>/dev/null"),
    ]
}

fn files() -> Vec<Attack> {
    let attack = |name, command| refused(Control::Privileged, name, command);
    vec![
        attack(
            "write the root",
            "echo x 2>/dev/null >/x || echo x 2>/dev/null >/bin/x || echo x 2>/dev/null >/etc/passwd",
        ),
        attack(
            "link out of the scratch folder",
            "(mkdir -p /tmp/l && ln -s / /tmp/l/out && ln -s ../../.. /tmp/l/up && (echo x >/tmp/l/out/etc/x || echo x >/tmp/l/up/x)) \
             2>/dev/null",
        ),
        attack(
            "run what it wrote",
            "(cp /bin/busybox /tmp/busybox && chmod 755 /tmp/busybox && /tmp/busybox true) 2>/dev/null",
        ),
        // A setting of the container's own namespace: written without a sandbox, it changes nothing else.
        attack("write kernel settings", "cat /proc/sys/kernel/msgmax 2>/dev/null >/proc/sys/kernel/msgmax"),
        refused(
            Control::None,
            "write the host's settings",
            "echo x 2>/dev/null >/proc/sys/kernel/core_pattern",
        ),
        refused(
            Control::None,
            "write its own limits",
            "(for f in /sys/fs/cgroup/*/* /sys/fs/cgroup/*; do echo 1 >$f && exit 0; done; exit 1) 2>/dev/null",
        ),
        refused(Control::None, "trigger a crash", "echo c 2>/dev/null >/proc/sysrq-trigger"),
    ]
}

const EMIT: &str = r#"emit() { printf '{"type":"token","content":"%s"}\n' "$1"; }; "#;

pub(crate) async fn every_attack_is_refused(world: Arc<World>) {
    let mut victim = tokio::process::Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("a process to attack");
    let targets = Targets {
        port: world.open_port,
        pid: victim.id().expect("it runs"),
        socket: world.socket.display().to_string(),
    };
    let engine = Arc::new(world.engine(0).await);
    // A well-behaved job that runs all the time.
    let patient =
        with(&json!({"sandbox_tier": "elevated", "engine": {"command": ["/bin/sh", "-c", COUNTER]}}));
    let counter = Job::new(&world.image, patient, json!({}));
    let stop = counter.context.cancel.clone();
    let beside = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { counter.play(&engine).await })
    };
    let mut wrong = Vec::new();
    println!("{:<34} | {:<9} | how", "attack", "result");
    println!("{:-<34}-|-{:-<9}-|-{:-<60}", "", "", "");
    let attacks = attacks(&targets);
    for attack in &attacks {
        let (refused, how) = judge(&run(&world, &engine, &attack.script).await, &attack.expect);
        println!("{:<34} | {:<9} | {how}", attack.name, if refused { "refused" } else { "THROUGH" });
        if !refused {
            wrong.push(attack.name);
        }
    }
    stop.cancel();
    let counter = beside.await.expect("the counter");
    assert_eq!(wrong, Vec::<&str>::new(), "these got through");
    assert!(victim.try_wait().expect("its state").is_none(), "the attacked process still runs");
    assert_eq!(
        counter.failure().fault,
        Fault::Interrupted,
        "it ran until it was cancelled: {:?}",
        counter.outcome
    );
    let lines: Vec<_> = counter.text.split_terminator(' ').collect();
    let expected: Vec<_> = (0..lines.len()).map(|line| line.to_string()).collect();
    assert_eq!(lines, expected, "the counter's stream");
    assert!(lines.len() > 100, "it streamed all the time");
    println!("meanwhile a well-behaved job streamed {} tokens without a gap", lines.len());
    assert_eq!(world.connections.load(Ordering::Relaxed), 0, "nothing connected");
    engine.shutdown().await;
    world.settle(None, 0).await;

    let hollow = without_a_sandbox(&world, &attacks).await;
    assert_eq!(hollow, Vec::<String>::new(), "these fail without a sandbox too, and so prove nothing");
    assert_ne!(world.connections.load(Ordering::Relaxed), 0, "without a sandbox, the port can be reached");
}

/// Counts without end.
const COUNTER: &str =
    r#"i=0; while :; do printf '{"type":"token","content":"%s "}\n' $i; i=$((i+1)); sleep 0.02; done"#;

async fn run(world: &World, engine: &Containers, text: &str) -> Played {
    let mut cargo = script(&format!("{EMIT}{text}"));
    cargo.limits.timeout_s = 8;
    play(world, engine, cargo, json!({})).await
}

fn judge(played: &Played, expect: &Expect) -> (bool, String) {
    let through = played.text.contains("got through");
    match (&played.outcome, expect) {
        (Outcome::Completed { .. }, Expect::Refused) => {
            let refused = !through && played.text.contains("refused");
            (
                refused,
                if refused { "it was refused".into() } else { format!("its output: {:?}", played.text) },
            )
        }
        (Outcome::Failed { failure, .. }, Expect::Ended(code)) => {
            (!through && failure.code == *code, format!("{}: {}", failure.code, failure.message))
        }
        (other, _) => (false, format!("{other:?}, its output: {:?}", played.text)),
    }
}

/// Runs the attacks in containers without a sandbox. Returns those that do not succeed there, with their output.
async fn without_a_sandbox(world: &World, attacks: &[Attack]) -> Vec<String> {
    let image = import(world).await;
    let open = HostConfig {
        // Not `privileged`, which fails for a daemon that has fewer capabilities than the kernel knows.
        cap_add: Some(capabilities()),
        security_opt: Some(vec!["seccomp=unconfined".to_owned(), "apparmor=unconfined".to_owned()]),
        masked_paths: Some(Vec::new()),
        readonly_paths: Some(Vec::new()),
        network_mode: Some("host".to_owned()),
        pid_mode: Some("host".to_owned()),
        shm_size: Some(1 << 30),
        binds: Some(vec![format!("{0}:{0}", world.socket.display()), "/dev:/dev".to_owned()]),
        ..HostConfig::default()
    };
    let mut hollow = Vec::new();
    for (control, host) in [(Control::Privileged, open), (Control::Bridge, HostConfig::default())] {
        let container = start(&world.docker, &image, host).await;
        for attack in attacks.iter().filter(|attack| attack.control == control) {
            let script = format!("{EMIT}{}", attack.script);
            let output = within(execute(&world.docker, &container, &script)).await;
            if !output.contains("got through") {
                hollow.push(format!("{}: {output:?}", attack.name));
            }
        }
        let force = RemoveContainerOptionsBuilder::new().force(true).build();
        world.docker.remove_container(&container, Some(force)).await.expect("remove the container");
    }
    hollow
}

/// Names of the capabilities that this process may pass on, in the order of their numbers in Linux. Older
/// daemons do not know those after `AUDIT_READ`.
fn capabilities() -> Vec<String> {
    const NAMES: [&str; 38] = [
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "WAKE_ALARM",
        "BLOCK_SUSPEND",
        "AUDIT_READ",
    ];
    let status = std::fs::read_to_string("/proc/self/status").expect("this process's status");
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("the bounding set");
    let bounds = u64::from_str_radix(bounds.trim(), 16).expect("a mask");
    let held = NAMES.iter().enumerate().filter(|(bit, _)| bounds >> bit & 1 == 1);
    held.map(|(_, name)| (*name).to_owned()).collect()
}

async fn import(world: &World) -> String {
    let rootfs = std::fs::read(&world.image).expect("the image");
    let options = CreateImageOptionsBuilder::new().from_src("-").repo("control").tag("latest").build();
    let created = world.docker.create_image(Some(options), Some(bollard::body_full(rootfs.into())), None);
    created.try_collect::<Vec<_>>().await.expect("import the image");
    "control:latest".to_owned()
}

async fn start(docker: &Docker, image: &str, host: HostConfig) -> String {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(vec!["/bin/sleep".to_owned(), "1000".to_owned()]),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    };
    let container =
        docker.create_container(None::<CreateContainerOptions>, body).await.expect("create a container").id;
    docker.start_container(&container, None::<StartContainerOptions>).await.expect("start the container");
    container
}

async fn execute(docker: &Docker, container: &str, script: &str) -> String {
    let config = ExecConfig {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec()),
        ..ExecConfig::default()
    };
    let exec = docker.create_exec(container, config).await.expect("create an exec");
    let started = docker.start_exec(&exec.id, None::<StartExecOptions>).await.expect("start it");
    let StartExecResults::Attached { output, .. } = started else { panic!("its output is attached") };
    let lines: Vec<_> = output.try_collect().await.expect("its output");
    lines.iter().map(ToString::to_string).collect()
}
