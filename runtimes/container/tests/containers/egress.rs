//! Programs that connect to what their Cargos declare, through the agent's proxy, and programs that try to connect elsewhere.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use island_protocol::{
    egress::Egress,
    job::{FailureCode, Fault},
};
use island_runtimes_api::{JobLog, Runtime};
use island_runtimes_container::{Containers, Settings, daemon::Daemon, labels::Maker};
use island_runtimes_egress::{Bounds, Gate, testing::Town};
use island_runtimes_worker::launch::{ContainerRules, egress_folder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use uuid::Uuid;

use crate::support::{Job, Played, World, with, within};

/// The forwarder, where `make cargos` puts it.
fn forwarder() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = own.parent()?.parent()?.join("../cargos/built/island-forwarder");
    path.is_file().then_some(path)
}

/// An Island that allows this, with its own outside: `good.test` is a server, `near.test` resolves to this machine.
struct Island {
    engine: Arc<Containers>,
    dir: TempDir,
    forwarder: PathBuf,
    town: Arc<Town>,
    /// Where `good.test` is.
    server: SocketAddr,
    /// A server that must receive no connection.
    near: TcpListener,
    _serving: JoinSet<()>,
}

impl Island {
    async fn start(world: &World, egress: Egress) -> Option<Self> {
        let Some(forwarder) = forwarder() else {
            island_testing::skip("egress of containers", "`make cargos` did not build island-forwarder");
            return None;
        };
        let dir = tempfile::tempdir().expect("a folder");
        let rules = ContainerRules {
            socket: Some(world.socket.clone()),
            max_tier: island_protocol::cargo::SandboxTier::Elevated,
            egress,
            ahead: 1,
            ..ContainerRules::default()
        };
        let maker = Maker {
            island: Uuid::now_v7().to_string(),
            worker: island_protocol::ids::InstanceId(Uuid::now_v7()),
        };
        let egress_dir = Some(dir.path().to_owned());
        let settings = Settings { rules, maker, slots: 4, egress_dir, gpus: Vec::new() };
        let daemon = Daemon::connect(&world.socket).await.expect("a daemon");
        let engine = Arc::new(Containers::start(daemon, settings));
        let (town, mut serving) = (Arc::new(Town::default()), JoinSet::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("an address");
        serving.spawn(serve(listener));
        let near = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let at_home = SocketAddr::from(([127, 0, 0, 1], near.local_addr().expect("an address").port()));
        town.publish(server);
        town.name("good.test", &[&[server]]);
        town.name("near.test", &[&[at_home]]);
        town.name("rebinds.test", &[&[server], &[at_home]]);
        Some(Self { engine, dir, forwarder, town, server, near, _serving: serving })
    }

    /// What a Cargo declares: every name that exists here.
    fn declared(&self) -> Vec<String> {
        let near = self.near.local_addr().expect("an address").port();
        let port = self.server.port();
        vec![format!("good.test:{port}"), format!("near.test:{near}"), format!("rebinds.test:{port}")]
    }

    /// A job of this script, and the gate that its agent would open.
    fn job(&self, world: &World, text: &str, bounds: Bounds) -> (Job, Gate, JobLog) {
        let declared = self.declared();
        let engine = json!({"command": ["/bin/sh", "-c", format!("{EMIT}{text}")], "egress": declared});
        let cargo = with(&json!({"sandbox_tier": "elevated", "engine": engine, "limits": {"timeout_s": 30}}));
        let (good, near) = (self.server.port(), self.near.local_addr().expect("an address").port());
        let job = Job::new(&world.image, cargo.clone(), json!({"good": good, "near": near}));
        let (folder, log) = (egress_folder(self.dir.path(), job.context.key), JobLog::default());
        let outside = Arc::<Town>::clone(&self.town);
        let places = cargo.egress().expect("places");
        let gate = Gate::open(folder, &self.forwarder, places, outside, bounds, log.clone());
        (job, gate.expect("a gate"), log)
    }

    async fn run(&self, world: &World, text: &str) -> (Played, String) {
        self.run_within(world, text, Bounds::default()).await
    }

    async fn run_within(&self, world: &World, text: &str, bounds: Bounds) -> (Played, String) {
        let (job, mut gate, log) = self.job(world, text, bounds);
        let played = tokio::select! {
            played = job.play(&self.engine) => played,
            never = gate.serve() => match never {},
        };
        drop(gate);
        (played, log.text())
    }
}

/// Echoes the first bytes of every connection.
async fn serve(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            let body = String::from_utf8_lossy(&bytes[..count]);
            let line = body.lines().next().unwrap_or_default().replace('"', "'");
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        });
    }
}

/// `emit`, the ports from the input, and `ask`: raw bytes to the proxy, and the status of its answer.
const EMIT: &str = r#"emit() { printf '{"type":"token","content":"%s"}\n' "$1"; }
input=$(cat); port() { printf %s "$input" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }; good=$(port good); near=$(port near)
ask() { printf "$1" | nc -w 5 127.0.0.1 3128 2>/dev/null | head -n 1 | cut -d ' ' -f 2; }
"#;

pub(crate) async fn a_program_reaches_what_its_cargo_declares(world: Arc<World>) {
    let Some(island) = Island::start(&world, Egress::Declared).await else { return };
    let port = island.server.port();
    // As every program does it: by the variables, without knowing the proxy.
    let (played, log) =
        island.run(&world, r#"emit "$(wget -q -O - http://good.test:$good/there?x=y)""#).await;
    assert_eq!(played.completed().text, "GET /there?x=y HTTP/1.1", "{log}");
    assert!(log.contains(&format!("egress: GET good.test:{port}: connected to 127.0.0.1:{port};")), "{log}");
    let tunnel = r#"emit "$( (printf "CONNECT good.test:$good HTTP/1.1\r\n\r\n"; sleep 0.3; echo through) | nc -w 5 127.0.0.1 3128 | tail -n 1)""#;
    let (played, log) = island.run(&world, tunnel).await;
    assert_eq!(played.completed().text, "through", "{log}");
    // It still has no network interface.
    let (played, _) = island.run(&world, "emit \"$(ls /sys/class/net | tr '\\n' ' ')\"").await;
    assert_eq!(played.completed().text, "lo ");
    assert!(std::fs::read_dir(island.dir.path()).expect("the folder").next().is_none(), "nothing is left");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}

/// Name, script. A script emits `refused`, or how it succeeded.
fn attacks() -> Vec<(&'static str, String)> {
    let asks = |request: &str, wanted: &str| {
        format!(
            r#"got=$(ask "{request}"); case $got in {wanted}) emit refused ;; *) emit "got $got" ;; esac"#
        )
    };
    let connects = |place: &str, wanted: &str| asks(&format!("CONNECT {place} HTTP/1.1\\r\\n\\r\\n"), wanted);
    let fetches =
        |place: &str, wanted: &str| asks(&format!("GET http://{place}/ HTTP/1.1\\r\\n\\r\\n"), wanted);
    vec![
        ("a host not declared", connects("other.test:$good", "403")),
        ("a wrong port", connects("good.test:$near", "403")),
        ("a declared name of this machine", connects("near.test:$near", "403")),
        ("the same, in plain HTTP", fetches("near.test:$near", "403")),
        ("an address", connects("127.0.0.1:$near", "400")),
        ("an address in hexadecimal", fetches("0x7f.1:$near", "400")),
        ("an address as one number", fetches("2130706433:$near", "400")),
        ("an address in IPv6", connects("[::ffff:127.0.0.1]:$near", "400")),
        ("the metadata service", fetches("169.254.169.254", "400")),
        ("the proxy, through the proxy", connects("127.0.0.1:3128", "400")),
        (
            "another host behind a declared one",
            asks("GET http://good.test:$good/ HTTP/1.1\\r\\nHost: near.test\\r\\nProxy-Connection: x\\r\\n\\r\\n", "200"),
        ),
        ("a line break in the request", asks("CONNECT good.test:$good\\r\\nX: near.test:$near HTTP/1.1\\r\\n\\r\\n", "400|''")),
        (
            "giant headers",
            r#"got=$( (printf "CONNECT good.test:$good HTTP/1.1\r\nX: "; head -c 1000000 /dev/zero | tr '\0' x) | nc -w 5 127.0.0.1 3128 2>/dev/null | head -n 1 | cut -d ' ' -f 2); case $got in 4??|'') emit refused ;; *) emit "got $got" ;; esac"#.into(),
        ),
        (
            "a name that leads elsewhere the second time",
            r#"one=$(ask "GET http://rebinds.test:$good/ HTTP/1.1\r\n\r\n"); two=$(ask "GET http://rebinds.test:$good/ HTTP/1.1\r\n\r\n"); [ "$one,$two" = 200,403 ] && emit refused || emit "got $one,$two""#.into(),
        ),
        ("without the proxy", "if nc -w 2 127.0.0.1 $near </dev/null 2>/dev/null; then emit through; else emit refused; fi".into()),
        ("others' sockets", r#"[ "$(find /.island | sort | tr '\n' ' ')" = "/.island /.island/f /.island/s " ] && emit refused || emit "$(find /.island)""#.into()),
        ("change the folder", "if (rm /.island/s || echo x >/.island/x || mv /.island/f /.island/g) 2>/dev/null; then emit through; else emit refused; fi".into()),
        ("other places of the host", "if (ls /.island/../../ | grep -q egress) 2>/dev/null; then emit through; else emit refused; fi".into()),
    ]
}

pub(crate) async fn a_program_reaches_nothing_else(world: Arc<World>) {
    let Some(island) = Island::start(&world, Egress::Declared).await else { return };
    let mut wrong = Vec::new();
    for (name, text) in attacks() {
        let (played, log) = island.run(&world, &text).await;
        println!("{name:<46} | {}", played.text);
        if played.text != "refused" {
            wrong.push(format!("{name}: {:?} {:?}\n{log}", played.text, played.outcome));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let came = tokio::time::timeout(std::time::Duration::from_millis(1), island.near.accept()).await;
    assert!(came.is_err(), "a connection to this machine was made");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn a_program_that_ends_its_forwarder_has_no_egress(world: Arc<World>) {
    let Some(island) = Island::start(&world, Egress::Declared).await else { return };
    let text = r#"for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = f ] && kill -9 ${p#/proc/}; done; while nc -w 1 127.0.0.1 3128 </dev/null 2>/dev/null; do sleep 0.1; done
        wget -q -T 2 -O - http://good.test:$good/ 2>/dev/null && emit through || emit cut"#;
    let (played, log) = island.run(&world, text).await;
    assert_eq!(played.completed().text, "cut", "{log}");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn more_connections_than_allowed_are_refused(world: Arc<World>) {
    let Some(island) = Island::start(&world, Egress::Declared).await else { return };
    // A request before both are through would use a slot of one of them.
    let text = r#"hold() { (printf "CONNECT good.test:$good HTTP/1.1\r\n\r\n"; sleep 60) | nc 127.0.0.1 3128 >"/tmp/$1" & }
        hold one; hold two; until grep -q ' 200' /tmp/one && grep -q ' 200' /tmp/two; do sleep 0.1; done
        emit "$(ask "CONNECT good.test:$good HTTP/1.1\r\n\r\n")""#;
    let (played, log) = island.run_within(&world, text, Bounds { at_once: 2, ..Bounds::default() }).await;
    assert_eq!(played.completed().text, "503", "{log}");
    assert!(log.contains("more than 2 connections at once"), "{log}");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn egress_ends_with_a_cancelled_run(world: Arc<World>) {
    let Some(island) = Island::start(&world, Egress::Declared).await else { return };
    let text = r#"(printf "CONNECT good.test:$good HTTP/1.1\r\n\r\n"; sleep 60) | nc 127.0.0.1 3128 >/dev/null & emit open; wait"#;
    let (mut job, mut gate, log) = island.job(&world, text, Bounds::default());
    let cancel = job.context.cancel.clone();
    let run = Box::pin(island.engine.run(job.request, job.context));
    let stop = async {
        assert!(within(job.events.recv()).await.is_some());
        cancel.cancel();
    };
    let both = async { tokio::join!(run, stop) };
    let (outcome, ()) = within(async {
        tokio::select! { both = both => both, never = gate.serve() => match never {} }
    })
    .await;
    drop(gate);
    let island_protocol::job::Outcome::Failed { failure, .. } = outcome else { panic!("it completed") };
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Interrupted, FailureCode::CancelledByUser),
        "{}",
        log.text()
    );
    assert!(std::fs::read_dir(island.dir.path()).expect("the folder").next().is_none(), "nothing is left");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn egress_that_the_owner_does_not_allow_is_refused(world: Arc<World>) {
    let none: Value = json!("none");
    let other: Value = json!(["other.test"]);
    for rule in [none, other] {
        let egress: Egress = serde_json::from_value(rule).expect("a rule");
        let Some(island) = Island::start(&world, egress).await else { return };
        let (played, log) = island.run(&world, "emit ran").await;
        let failure = played.failure();
        assert_eq!((failure.fault, failure.code), (Fault::Host, FailureCode::NoIslandAvailable), "{log}");
        assert!(failure.message.contains("does not allow containers to connect to good.test"), "{failure:?}");
        island.engine.shutdown().await;
    }
    world.settle(None, 0).await;
}

/// The forwarder is not secret, and a folder without one is a failure of the host.
pub(crate) async fn a_missing_forwarder_is_the_hosts_fault(world: Arc<World>) {
    let Some(mut island) = Island::start(&world, Egress::Declared).await else { return };
    island.forwarder = world.file("no-program", b"nothing to run");
    let (played, _) = island.run(&world, "emit ran").await;
    assert_eq!(played.failure().fault, Fault::Host, "{played:?}");
    island.engine.shutdown().await;
    world.settle(None, 0).await;
}
