//! Programs that attack the worker process that they share with others, including its sandbox: each ends as it must, another job beside it
//! loses no byte, and the worker continues.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use island_protocol::{
    event::AttemptEvent,
    host::SandboxLevel,
    ids::{AttemptKey, InstanceId},
    job::{Failure, FailureCode, Fault, Outcome},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, Exit, Worker},
    launch::{Launch, ProbeReport},
};
use serde_json::{Value, json};

use crate::programs::{Script, attempt, cargo, component, echo, module};

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-wasm");

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(2), future).await.expect("in time")
}

/// A worker for all programs, and the folder of their compiled files.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { dir: tempfile::tempdir().expect("a directory") };
        fs::create_dir(scene.folder()).expect("a folder");
        scene
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("derived")
    }

    /// Compiles a program in a separate process.
    async fn derive(&self, name: &str, program: &[u8], cpu_limit_s: u64) -> Result<PathBuf, Failure> {
        let source = self.dir.path().join(format!("{name}.wasm"));
        fs::write(&source, program).expect("write");
        let launch = Launch {
            artifacts: BTreeMap::from([("model".to_owned(), source)]),
            memory_limit_mb: 512,
            cpu_limit_s,
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo(&json!({})))
        };
        let dir = self.dir.path().join(name);
        let made = within(host::derive(Path::new(BINARY), &dir, &launch)).await.expect("it starts")?;
        let kept = self.folder().join(name);
        fs::rename(made, &kept).expect("it is there");
        Ok(kept)
    }

    async fn worker(&self) -> Worker {
        let launch = Launch {
            folders: vec![self.folder()],
            memory_limit_mb: 1024,
            slots: 4,
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo(&json!({})))
        };
        host::spawn(BINARY.as_ref(), &self.dir.path().join("worker"), &launch).await.expect("a worker")
    }
}

fn job(compiled: &Path, fields: &Value, input: Value) -> (AttemptKey, ToWorker) {
    let artifacts = BTreeMap::from([("model".to_owned(), compiled.to_owned())]);
    let request = Box::new(RunRequest {
        cargo: cargo(fields),
        input,
        artifacts,
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    });
    let key = attempt();
    (key, ToWorker::Run { key, first_event: 1, request, reports_steps: false })
}

/// The outcomes of the attempts `keys`.
async fn outcomes(worker: &mut Worker, keys: &[AttemptKey]) -> BTreeMap<AttemptKey, (String, Outcome)> {
    let (mut texts, mut ended) = (BTreeMap::<AttemptKey, String>::new(), BTreeMap::new());
    while ended.len() < keys.len() {
        let frame =
            within(worker.connection.frames.next()).await.expect("the worker lives").expect("a sound frame");
        let FromWorker::Events { key, events } = frame else { continue };
        for event in events {
            match event.event {
                AttemptEvent::Token { content, .. } => texts.entry(key).or_default().push_str(&content),
                AttemptEvent::Ended { outcome } => {
                    ended.insert(key, (texts.remove(&key).unwrap_or_default(), outcome));
                }
                _ => {}
            }
        }
    }
    ended
}

/// Writes its input two hundred times, with a little work in between.
fn talker() -> Vec<u8> {
    let mut script = Script::default();
    let (open, close) = (script.emit(r#"{"type":"token","content":"#), script.emit("}\n"));
    let body = format!(
        "(call $read) (local.set $n (i32.const 200))
        (loop $next (call $work (i32.const 300000)) {open} (call $input) {close}
            (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))"
    );
    let work = "(func $work (param $n i32) (loop $next (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))";
    script.module(work, &body)
}

/// Attacks, and how their jobs end.
fn attacks() -> Vec<(&'static str, Vec<u8>, FailureCode)> {
    let mut script = Script::default();
    let line = script.emit("{\"type\":\"token\",\"content\":\"more\"}\n");
    let (giant, noise) = (script.emit(&"x".repeat(4000)), script.write(1, &[0xff; 2000]));
    let complaint = script.write(2, &[b'!'; 4000]);
    let nested = "[".repeat(125) + &"]".repeat(125);
    let deep = script.emit(&format!("{{\"type\":\"result\",\"output\":{nested}}}\n"));
    let again = |what: &str| script.module("", &format!("(loop $more {what} (br $more))"));
    let sleep =
        "(i32.store (i32.const 48) (i32.const 1)) (i64.store (i32.const 56) (i64.const 3600000000000))
        (drop (call $poll_oneoff (i32.const 32) (i32.const 96) (i32.const 1) (i32.const 16)))";
    let table = "(drop (table.grow $t (ref.null func) (i32.const 10000)))";
    vec![
        ("endless-loop", module("(call $spin)"), FailureCode::DeadlineExceeded),
        ("long-sleep", module(sleep), FailureCode::DeadlineExceeded),
        ("complaints-without-end", again(&complaint), FailureCode::DeadlineExceeded),
        (
            "chance-without-end",
            again("(drop (call $random_get (i32.const 65536) (i32.const 400000)))"),
            FailureCode::DeadlineExceeded,
        ),
        ("memory-bomb", again("(drop (memory.grow (i32.const 16)))"), FailureCode::OutOfMemory),
        (
            "table-bomb",
            Script::default().module("(table $t 1 funcref)", &format!("(loop $more {table} (br $more))")),
            FailureCode::OutOfMemory,
        ),
        (
            "stack-overflow",
            Script::default().module("(func $deep (call $deep) (call $deep))", "(call $deep)"),
            FailureCode::OutOfMemory,
        ),
        ("output-flood", again(&line), FailureCode::OutputLimit),
        ("giant-line", again(&giant), FailureCode::OutputLimit),
        ("deep-result", script.module("", &deep), FailureCode::InvalidOutput),
        ("invalid-utf-8", again(&noise), FailureCode::OutputLimit),
        ("wild-read", module("(drop (i32.load offset=0xfffffff0 (i32.const -1)))"), FailureCode::CargoFailed),
        (
            "wild-pointers-to-the-host",
            module(
                "(drop (call $fd_read (i32.const 0) (i32.const -8) (i32.const 1) (i32.const -4))) (unreachable)",
            ),
            FailureCode::CargoFailed,
        ),
        ("trap", module("(unreachable)"), FailureCode::CargoFailed),
        ("exit-code", module("(call $exit (i32.const 134))"), FailureCode::CargoFailed),
    ]
}

#[tokio::test]
async fn attacks_fail_their_job_and_no_other() {
    let scene = Scene::new();
    let talker = scene.derive("talker", &talker(), 0).await.expect("it compiles");
    let mut attacks: Vec<_> =
        attacks().into_iter().map(|(name, program, code)| (name.to_owned(), program, code)).collect();
    let components =
        attacks.iter().map(|(name, program, code)| (format!("{name}-component"), component(program), *code));
    let components: Vec<_> = components.collect();
    attacks.extend(components);
    let mut worker = scene.worker().await;
    let pid = worker.process.pid();
    for (name, program, code) in attacks {
        let compiled =
            scene.derive(&name, &program, 0).await.unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        let seconds = if code == FailureCode::DeadlineExceeded { 1 } else { 60 };
        let limits = json!({"limits": {"timeout_s": seconds, "max_output_bytes": 1 << 20}});
        let (attack, run_attack) = job(&compiled, &limits, json!("attack"));
        let (witness, run_witness) = job(&talker, &json!({}), json!("wörd "));
        worker.connection.commands.send(run_witness).await.expect("send");
        worker.connection.commands.send(run_attack).await.expect("send");
        let mut ended = outcomes(&mut worker, &[attack, witness]).await;
        let (_, outcome) = ended.remove(&attack).expect("both ended");
        let Outcome::Failed { failure, .. } = outcome else { panic!("{name} got through: {outcome:?}") };
        assert_eq!((failure.code, failure.fault), (code, Fault::Job), "{name}: {failure:?}");
        let (text, outcome) = ended.remove(&witness).expect("both ended");
        assert!(matches!(outcome, Outcome::Completed { .. }), "beside {name}: {outcome:?}");
        assert_eq!(text, "wörd ".repeat(200), "beside {name}");
    }
    assert_eq!(worker.process.pid(), pid);
    worker.process.terminate().expect("terminate");
    drop(worker.connection);
    assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(0));
}

#[tokio::test]
async fn the_worker_has_a_full_sandbox() {
    let scene = Scene::new();
    let mut worker = scene.worker().await;
    let first =
        within(worker.connection.frames.next()).await.expect("it speaks first").expect("a sound frame");
    let FromWorker::Hello { sandbox, .. } = first else { panic!("no greeting: {first:?}") };
    if cfg!(target_os = "linux") {
        assert_eq!(
            sandbox.level,
            SandboxLevel::Full,
            "this kernel supports the full sandbox: {:?}",
            sandbox.missing
        );
    }
    worker.process.kill().expect("kill");
}

/// Many functions with much to do: a few megabytes that take long to compile.
fn compile_bomb() -> Vec<u8> {
    let step = "(local.set 0 (i64.xor (i64.mul (local.get 0) (local.get 1)) (i64.rotl (local.get 1) (local.get 0))))
        (if (i64.lt_u (local.get 0) (local.get 1)) (then (local.set 1 (i64.add (local.get 0) (local.get 1)))))";
    let body = step.repeat(60);
    let functions = format!("(func (param i64 i64) (result i64) {body} (local.get 0))").repeat(6000);
    module_with(&functions)
}

fn module_with(functions: &str) -> Vec<u8> {
    Script::default().module(functions, "")
}

#[tokio::test]
async fn programs_that_are_too_expensive_to_compile_are_rejected() {
    let scene = Scene::new();
    let functions = module_with(&"(func)".repeat(1_000_000));
    let failure = scene.derive("million", &functions, 10).await.expect_err("a million functions");
    assert_eq!((failure.code, failure.fault), (FailureCode::CompileLimit, Fault::Job), "{failure:?}");
    assert!(failure.message.contains("functions"), "{failure:?}");
    let failure =
        scene.derive("bomb", &compile_bomb(), 1).await.expect_err("it takes far longer than a second");
    assert_eq!((failure.code, failure.fault), (FailureCode::CompileLimit, Fault::Job), "{failure:?}");
    let large = [module(""), vec![0; 33 << 20]].concat();
    let failure = scene.derive("large", &large, 10).await.expect_err("more than 32 MiB");
    assert_eq!(failure.code, FailureCode::CompileLimit, "{failure:?}");
    let mut broken = echo();
    let middle = broken.len() / 2;
    broken[middle..].fill(0xfe);
    let failure = scene.derive("broken", &broken, 10).await.expect_err("no program");
    assert_eq!((failure.code, failure.fault), (FailureCode::ModelRejected, Fault::Job), "{failure:?}");
}

#[tokio::test]
async fn a_probe_names_the_version() {
    let output = within(tokio::process::Command::new(BINARY).arg("--probe").output()).await.expect("it runs");
    let report: ProbeReport = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report.unavailable, None);
    assert!(report.version.starts_with("wasmtime "), "{}", report.version);
}

#[tokio::test]
async fn a_check_rejects_a_program_that_does_not_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("program.wasm");
    for (program, is_sound, said) in [
        (echo(), true, "the model loads: wasmtime "),
        (component(&echo()), true, "the model loads: wasmtime "),
        (
            wat::parse_str("(module (memory (export \"memory\") 1))").expect("a module"),
            false,
            "no function `_start`",
        ),
        (
            wat::parse_str("(module (import \"env\" \"fly\" (func)))").expect("a module"),
            false,
            "it imports `env.fly`",
        ),
    ] {
        fs::write(&path, program).expect("write");
        let output = tokio::process::Command::new(BINARY).arg("--check").arg(&path).output();
        let output = within(output).await.expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), is_sound, "{text}");
        assert!(text.contains(said), "{text}");
    }
}
