//! Strangers' programs that try to get out, to get at others and to use up the host, while an honest job beside them streams on.

use std::sync::Arc;

use island_protocol::job::{FailureCode, Fault, Outcome};
use island_runtimes_api::Runtime;
use island_runtimes_container::Containers;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Job, Played, World, play, script, with};
use Expect::{Ended, Refused};

/// What must come of an attack.
enum Expect {
    /// The program finds that it cannot: it says `refused`.
    Refused,
    /// The program is ended for it.
    Ended(FailureCode),
}

/// Name, script, what must come of it. A script says `got through` where its attack works.
type Attack = (&'static str, String, Expect);

fn attacks(port: u16, pid: u32, socket: &str) -> Vec<Attack> {
    [using_up(), reaching(port, socket), spying(pid), becoming(), writing()].into_iter().flatten().collect()
}

fn tries(command: &str) -> String {
    format!("cat >/dev/null; if {command}; then say 'got through'; else say refused; fi")
}

/// What there is to use up.
fn using_up() -> Vec<Attack> {
    vec![
        // Whoever forks beside the bomb fails, sooner or later; so the program itself only waits.
        ("fork bomb", "(b() { b | b & }; b) & exec sleep 100".into(), Ended(FailureCode::DeadlineExceeded)),
        (
            "a thousand processes",
            "i=0; while [ $i -lt 1000 ]; do sleep 20 & i=$((i+1)); done; say 'got through'".into(),
            Ended(FailureCode::CargoFailed),
        ),
        ("memory bomb", "exec tail /dev/zero".into(), Ended(FailureCode::OutOfMemory)),
        (
            "memory bomb in shared memory",
            tries("dd if=/dev/zero of=/dev/shm/x bs=1M count=512 2>/dev/null"),
            Refused,
        ),
        ("fill the scratch folder", tries("dd if=/dev/zero of=/tmp/x bs=1M count=4096 2>/dev/null"), Refused),
        (
            "a million files",
            tries(
                "(i=0; while [ $i -lt 2000000 ]; do echo > /tmp/$i || exit 1; i=$((i+1)); done) 2>/dev/null",
            ),
            Refused,
        ),
        (
            "output flood",
            r#"yes '{"type":"token","content":"xxxxxxxxxxxxxxxx"}'"#.into(),
            Ended(FailureCode::OutputLimit),
        ),
        ("giant line", "head -c 1000000000 /dev/zero | tr '\\0' x".into(), Ended(FailureCode::OutputLimit)),
        (
            "flood of the debug log",
            "head -c 100000000 /dev/zero | tr '\\0' x >&2; say refused".into(),
            Refused,
        ),
        ("endless loop", "while :; do :; done".into(), Ended(FailureCode::DeadlineExceeded)),
        (
            "deaf to signals",
            "trap '' TERM INT HUP; while :; do sleep 1; done".into(),
            Ended(FailureCode::DeadlineExceeded),
        ),
        ("raise limits", tries("ulimit -n 100000 2>/dev/null"), Refused),
    ]
}

/// Whom there is to reach.
fn reaching(port: u16, socket: &str) -> Vec<Attack> {
    let connects = |host: &str| tries(&format!("nc -w 2 {host} {port} </dev/null >/dev/null 2>&1"));
    vec![
        ("reach this host", connects("127.0.0.1"), Refused),
        ("reach this host, IPv6", connects("::1"), Refused),
        ("reach the owner's network", connects("10.0.0.1"), Refused),
        ("reach the metadata service", connects("169.254.169.254"), Refused),
        ("find an interface", tries("ls /sys/class/net | grep -qv '^lo$'"), Refused),
        ("raw packets", tries("ping -c 1 -W 1 127.0.0.1 >/dev/null 2>&1"), Refused),
        (
            "Docker's socket",
            tries(&format!("ls /run/docker.sock /var/run/docker.sock {socket} 2>/dev/null | grep -q .")),
            Refused,
        ),
    ]
}

/// Whose processes there are to get at, and what the kernel tells.
fn spying(pid: u32) -> Vec<Attack> {
    vec![
        ("see others' processes", tries("[ $(ls -d /proc/[0-9]* | wc -l) -gt 8 ]"), Refused),
        ("kill this test", tries(&format!("kill -9 {pid} 2>/dev/null")), Refused),
        (
            "read this test's memory",
            tries(&format!("head -c 1 /proc/{pid}/mem 2>/dev/null | grep -q .")),
            Refused,
        ),
        ("read the kernel's log", tries("dmesg >/dev/null 2>&1"), Refused),
        (
            "read the kernel's symbols",
            tries("grep -v '^0*[ ]' /proc/kallsyms 2>/dev/null | grep -q ."),
            Refused,
        ),
        ("read the host's memory", tries("head -c 1 /proc/kcore 2>/dev/null | grep -q ."), Refused),
    ]
}

/// What there is to become.
fn becoming() -> Vec<Attack> {
    vec![
        ("become root", tries("su root -c true 2>/dev/null"), Refused),
        ("be root already", tries("[ $(id -u) = 0 ]"), Refused),
        ("change owner", tries("(touch /tmp/o && chown 0 /tmp/o) 2>/dev/null"), Refused),
        ("capabilities", tries("grep '^Cap' /proc/self/status | grep -qv '0000000000000000$'"), Refused),
        ("new privileges", tries("grep -q 'NoNewPrivs:.0' /proc/self/status"), Refused),
        ("no filter", tries("grep -q 'Seccomp:.0' /proc/self/status"), Refused),
        ("new namespaces", tries("unshare -r true 2>/dev/null || unshare -m true 2>/dev/null"), Refused),
        ("mount", tries("mount -t tmpfs none /tmp 2>/dev/null"), Refused),
        ("mount again, to write", tries("mount -o remount,rw / 2>/dev/null"), Refused),
        ("change root", tries("chroot / true 2>/dev/null"), Refused),
        ("make a device", tries("mknod /tmp/d b 254 0 2>/dev/null"), Refused),
        ("open a disk", tries("ls /dev | grep -qE '^(sd|vd|nvme|mem|kmsg)'"), Refused),
        ("set the clock", tries("date -s 200001010000 >/dev/null 2>&1; [ $(date +%Y) = 2000 ]"), Refused),
        ("rename the host", tries("hostname other 2>/dev/null"), Refused),
    ]
}

/// What there is to write.
fn writing() -> Vec<Attack> {
    vec![
        (
            "write the root",
            tries("echo x 2>/dev/null >/x || echo x 2>/dev/null >/bin/x || echo x 2>/dev/null >/etc/passwd"),
            Refused,
        ),
        (
            "link out of the scratch folder",
            tries(
                "(ln -s / /tmp/out && ln -s ../../.. /tmp/up && (echo x >/tmp/out/etc/x || echo x >/tmp/up/x)) 2>/dev/null",
            ),
            Refused,
        ),
        (
            "run what it wrote",
            tries("(cp /bin/busybox /tmp/sh && chmod 755 /tmp/sh && /tmp/sh true) 2>/dev/null"),
            Refused,
        ),
        ("write kernel settings", tries("echo x 2>/dev/null >/proc/sys/kernel/core_pattern"), Refused),
        (
            "write its own limits",
            tries(
                "(for f in /sys/fs/cgroup/*/* /sys/fs/cgroup/*; do echo 1 >$f && exit 0; done; exit 1) 2>/dev/null",
            ),
            Refused,
        ),
        ("trigger a crash", tries("echo c 2>/dev/null >/proc/sysrq-trigger"), Refused),
    ]
}

const SAY: &str = r#"say() { printf '{"type":"token","content":"%s"}\n' "$1"; }; "#;

pub(crate) async fn every_attack_is_refused(world: Arc<World>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.expect("a listener that would answer");
    let port = listener.local_addr().expect("an address").port();
    let engine = Arc::new(world.engine(0).await);
    // An honest job that goes on all the while.
    let patient =
        with(&json!({"sandbox_tier": "elevated", "engine": {"command": ["/bin/sh", "-c", HONEST]}}));
    let honest = Job::new(&world.image, patient, json!({}));
    let stop = honest.context.cancel.clone();
    let beside = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { honest.play(&engine).await })
    };
    let socket = world.socket.display().to_string();
    let mut wrong = Vec::new();
    println!("{:<34} | {:<9} | how", "attack", "result");
    println!("{:-<34}-|-{:-<9}-|-{:-<60}", "", "", "");
    for (name, text, expect) in attacks(port, std::process::id(), &socket) {
        let (refused, how) = judge(&attack(&world, &engine, &text).await, &expect);
        println!("{name:<34} | {:<9} | {how}", if refused { "refused" } else { "THROUGH" });
        if !refused {
            wrong.push(name);
        }
    }
    stop.cancel();
    let honest = beside.await.expect("the honest job");
    assert_eq!(wrong, Vec::<&str>::new(), "these got through");
    assert_eq!(honest.failure().fault, Fault::Interrupted, "it would have gone on: {:?}", honest.outcome);
    let lines: Vec<_> = honest.text.split_terminator(' ').collect();
    let expected: Vec<_> = (0..lines.len()).map(|line| line.to_string()).collect();
    assert_eq!(lines, expected, "the honest job's stream");
    assert!(lines.len() > 100, "it streamed all the while");
    println!("beside all that, an honest job streamed {} tokens without a gap", lines.len());
    let none = tokio::time::timeout(std::time::Duration::from_millis(1), listener.accept()).await;
    assert!(none.is_err(), "somebody connected");
    engine.shutdown().await;
    world.settle(None, 0).await;
}

/// Counts for ever.
const HONEST: &str =
    r#"i=0; while :; do printf '{"type":"token","content":"%s "}\n' $i; i=$((i+1)); sleep 0.02; done"#;

async fn attack(world: &World, engine: &Containers, text: &str) -> Played {
    let mut cargo = script(&format!("{SAY}{text}"));
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
                if refused { "the program was told no".into() } else { format!("it said {:?}", played.text) },
            )
        }
        (Outcome::Failed { failure, .. }, Expect::Ended(code)) => {
            (!through && failure.code == *code, format!("{}: {}", failure.code, failure.message))
        }
        (other, _) => (false, format!("{other:?}, said {:?}", played.text)),
    }
}
