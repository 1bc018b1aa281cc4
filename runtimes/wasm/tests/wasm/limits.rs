//! What a program may not do, and how its job ends when it tries.

use std::time::Duration;

use island_protocol::job::{FailureCode, Fault, Outcome};
use island_runtimes_wasm::compile::compile;
use serde_json::json;

use crate::programs::{Script, component, module, play::run};

async fn fails(body: &str, code: FailureCode, said: &str) {
    let module = module(body);
    let seconds = if code == FailureCode::DeadlineExceeded { 1 } else { 60 };
    for program in [module.clone(), component(&module)] {
        let ran = run(&program, json!({"limits": {"timeout_s": seconds}})).await;
        let failure = ran.failure();
        assert_eq!((failure.code, failure.fault), (code, Fault::Job), "{body}: {failure:?}");
        assert!(failure.message.contains(said), "{body}: {failure:?}");
        // Far above a deadline of one second, far below hanging.
        assert!(ran.took < Duration::from_secs(20), "{body}: took {:?}", ran.took);
    }
}

#[tokio::test]
async fn an_endless_loop_meets_its_deadline() {
    fails("(call $spin)", FailureCode::DeadlineExceeded, "1 s").await;
}

/// A subscription to a clock event in an hour.
const SLEEP: &str = "(i32.store8 (i32.const 40) (i32.const 0))
    (i32.store (i32.const 48) (i32.const 1))
    (i64.store (i32.const 56) (i64.const 3600000000000))
    (drop (call $poll_oneoff (i32.const 32) (i32.const 96) (i32.const 1) (i32.const 16)))";

#[tokio::test]
async fn a_host_function_that_waits_ends_at_the_deadline() {
    fails(SLEEP, FailureCode::DeadlineExceeded, "1 s").await;
}

#[tokio::test]
async fn a_memory_bomb_is_out_of_memory() {
    fails(
        "(loop $more (drop (memory.grow (i32.const 16))) (br $more))",
        FailureCode::OutOfMemory,
        "its Cargo allows 16 MB",
    )
    .await;
}

#[tokio::test]
async fn a_stack_overflow_has_a_name() {
    let endless = Script::default().module("(func $deep (call $deep) (call $deep))", "(call $deep)");
    for program in [endless.clone(), component(&endless)] {
        let ran = run(&program, json!({})).await;
        assert_eq!(ran.failure().code, FailureCode::OutOfMemory, "{:?}", ran.failure());
        assert!(ran.failure().message.contains("512 KB"), "{:?}", ran.failure());
    }
}

#[tokio::test]
async fn a_table_bomb_is_out_of_memory() {
    let program = Script::default().module(
        "(table $t 1 funcref)",
        "(loop $more (drop (table.grow $t (ref.null func) (i32.const 10000))) (br $more))",
    );
    let ran = run(&program, json!({})).await;
    assert_eq!(ran.failure().code, FailureCode::OutOfMemory, "{:?}", ran.failure());
    assert!(ran.failure().message.contains("table"), "{:?}", ran.failure());
}

#[tokio::test]
async fn exit_codes_are_reported_as_they_are() {
    for code in [3, 126, 127, 255, -1] {
        let mut script = Script::default();
        let result = script.emit("{\"type\":\"result\",\"output\":1}\n");
        let program = script.module("", &format!("{result} (call $exit (i32.const {code}))"));
        let ran = run(&program, json!({})).await;
        let message = format!("the Cargo's program ended with exit code {code}");
        assert_eq!((ran.failure().code, &ran.failure().message), (FailureCode::CargoFailed, &message));
    }
    // A component exits with success or failure.
    fails("(call $exit (i32.const 255))", FailureCode::CargoFailed, "exit code").await;
}

#[tokio::test]
async fn a_known_line_that_is_invalid_fails_the_job() {
    for (line, reason) in [
        (br#"{"type":"result","output":{"x":NaN}}"#.as_slice(), "result: NaN is not JSON"),
        (br#"{"type":"token","content":"\udc80"}"#, "token: lone leading surrogate"),
        (b"{\"type\":\"token\",\"content\":\"gr\xe4\"}", "token: byte 30 is not UTF-8"),
        (br#"{"type":"token","content":"b","count":-1}"#, "token: invalid value"),
        (b"\xef\xbb\xbf{\"type\":\"result\",\"output\":1}", "result: a byte order mark"),
        (br#"{"type":"error"}"#, "error: missing field `message`"),
    ] {
        let mut script = Script::default();
        let first = script.emit("{\"type\":\"token\",\"content\":\"a\"}\nloading\n");
        let (broken, end) = (script.write(1, line), script.emit("\n"));
        // It is stopped at the line, not at its end.
        let module = script.module("", &format!("{first} {broken} {end} (call $spin)"));
        for program in [module.clone(), component(&module)] {
            let ran = run(&program, json!({})).await;
            let failure = ran.failure();
            assert_eq!(
                (failure.code, failure.fault),
                (FailureCode::InvalidOutput, Fault::Job),
                "{failure:?}"
            );
            assert!(failure.message.starts_with(&format!("line 3, {reason}")), "{failure:?}");
            assert_eq!(ran.text, "a");
        }
    }
}

#[tokio::test]
async fn endless_output_is_limited() {
    let mut script = Script::default();
    let line = script.emit("{\"type\":\"token\",\"content\":\"more\"}\n");
    let giant = script.emit(&"x".repeat(4000));
    for emit in [line, giant] {
        fails_module(
            &script.module("", &format!("(loop $more {emit} (br $more))")),
            FailureCode::OutputLimit,
        )
        .await;
    }
}

async fn fails_module(module: &[u8], code: FailureCode) {
    for program in [module.to_vec(), component(module)] {
        assert_eq!(run(&program, json!({})).await.failure().code, code);
    }
}

#[tokio::test]
async fn invalid_lines_go_to_the_log() {
    let mut script = Script::default();
    let noise = script.write(1, b"\xff\xfe\x00 noise\n[1,2]\n{\"type\":\"nonsense\"}\n");
    let complaint = script.write(2, b"a word for the author\n");
    let token = script.emit("{\"type\":\"token\",\"content\":\"still here\"}\n");
    let ran = run(&script.module("", &format!("{noise} {complaint} {token}")), json!({})).await;
    assert!(matches!(ran.outcome, Outcome::Completed { .. }), "{:?}", ran.outcome);
    assert_eq!(ran.text, "still here");
    assert!(ran.log.contains("a word for the author") && ran.log.contains("nonsense"), "{}", ran.log);
}

#[tokio::test]
async fn traps_and_exit_codes_fail_the_job() {
    fails("(unreachable)", FailureCode::CargoFailed, "unreachable").await;
    fails("(drop (i32.load (i32.const -4)))", FailureCode::CargoFailed, "out of bounds").await;
    let ran = run(&module("(call $exit (i32.const 3))"), json!({})).await;
    assert_eq!(ran.failure().code, FailureCode::CargoFailed);
    assert!(ran.failure().message.contains('3'), "{:?}", ran.failure());
}

/// Subscribes to a clock forever and releases nothing.
const HOARDER: &str = r#"(component
    (import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type (sub resource)))))
    (alias export $poll "pollable" (type $pollable))
    (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
        (alias outer 1 $pollable (type $outer))
        (export "pollable" (type $inner (eq $outer)))
        (export "subscribe-duration" (func (param "when" u64) (result (own $inner))))))
    (alias export $clock "subscribe-duration" (func $subscribe))
    (core func $lowered (canon lower (func $subscribe)))
    (core module $hoard
        (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
        (func (export "run") (result i32)
            (loop $more (drop (call $subscribe (i64.const 1))) (br $more))
            (unreachable)))
    (core instance $hoarding (instantiate $hoard (with "host" (instance (export "subscribe" (func $lowered))))))
    (func $run (result (result)) (canon lift (core func $hoarding "run")))
    (instance $command (export "run" (func $run)))
    (export "wasi:cli/run@0.2.0" (instance $command)))"#;

#[tokio::test]
async fn resources_of_a_program_in_the_host_are_limited() {
    let ran = run(&wat::parse_str(HOARDER).expect("a sound program"), json!({})).await;
    assert_eq!(ran.failure().code, FailureCode::CargoFailed, "{:?}", ran.failure());
}

/// No such descriptor.
const EBADF: u32 = 8;

#[tokio::test]
async fn there_are_no_files_no_sockets_no_environment_and_no_arguments() {
    let mut script = Script::default();
    let path = script.write(2, b"/etc/passwd");
    let fine = script.emit("{\"type\":\"token\",\"content\":\"nothing there\"}\n");
    let body = format!(
        "{path}
        (local.set $n (i32.const 3))
        (loop $next
            (if (i32.ne (call $fd_prestat_get (local.get $n) (i32.const 16)) (i32.const {EBADF})) (then (unreachable)))
            (if (i32.ne (call $path_open (local.get $n) (i32.const 1) (i32.const 1024) (i32.const 11) (i32.const 0)
                (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 16)) (i32.const {EBADF})) (then (unreachable)))
            (if (i32.eqz (call $sock_accept (local.get $n) (i32.const 0) (i32.const 16))) (then (unreachable)))
            (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 32))))
        (drop (call $environ_sizes_get (i32.const 16) (i32.const 20)))
        (drop (call $args_sizes_get (i32.const 24) (i32.const 28)))
        (if (i32.or (i32.load (i32.const 16)) (i32.load (i32.const 24))) (then (unreachable)))
        {fine}"
    );
    let ran = run(&script.module("", &body), json!({})).await;
    assert_eq!(ran.text, "nothing there", "{:?}", ran.outcome);
}

#[tokio::test]
async fn fuel_is_the_same_in_every_run_and_grows_with_the_work() {
    // Work that depends on random numbers and on the clock, as hash maps and timers do.
    let mut script = Script::default();
    let done = script.emit("{\"type\":\"done\"}\n");
    let body = |turns: u32| {
        format!(
            "(call $read)
            (drop (call $random_get (i32.const 16) (i32.const 4)))
            (drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 24)))
            (drop (call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 32)))
            (local.set $n (i32.add (i32.const {turns}) (i32.and (i32.const 1023)
                (i32.add (i32.load (i32.const 16)) (i32.add (i32.load (i32.const 24)) (i32.load (i32.const 32)))))))
            (loop $next (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
            {done}"
        )
    };
    let fuel = async |program: &[u8]| {
        let ran = run(program, json!({"engine": {"fuel": true}})).await;
        let Outcome::Completed { usage, .. } = ran.outcome else { panic!("{:?}", ran.outcome) };
        usage.fuel.expect("a metered run")
    };
    let (small, large) = (script.module("", &body(1000)), script.module("", &body(100_000)));
    let first = fuel(&small).await;
    assert_eq!(first, fuel(&small).await);
    assert!(fuel(&large).await > first + 99_000);
    let component = component(&small);
    assert_eq!(fuel(&component).await, fuel(&component).await);
    let ran = run(&small, json!({})).await;
    assert!(
        matches!(&ran.outcome, Outcome::Completed { usage, .. } if usage.fuel.is_none()),
        "{:?}",
        ran.outcome
    );
}

#[test]
fn programs_that_do_not_link_are_rejected_when_compiled() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |text: &str| {
        let (from, into) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&from, wat::parse_str(text).expect("sound text")).expect("write");
        let failure = compile(&from, &into, false).expect_err("it is rejected");
        assert!(!into.exists(), "no file remains");
        assert_eq!((failure.code, failure.fault), (FailureCode::ModelRejected, Fault::Job), "{failure:?}");
        failure.message
    };
    let start = r#"(memory (export "memory") 1) (func (export "_start"))"#;
    let unknown = refused(&format!(r#"(module (import "wasi_snapshot_preview1" "fly" (func)) {start})"#));
    assert!(unknown.contains("fly"), "{unknown}");
    let wrong = refused(&format!(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)) {start})"#));
    assert!(wrong.contains("fd_write"), "{wrong}");
    let table = refused(&format!("(module (table 70000 funcref) {start})"));
    assert!(table.contains("table"), "{table}");
    let http = refused(
        r#"(component (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func)))))"#,
    );
    assert!(http.contains("wasi:http"), "{http}");
    assert!(refused("(component)").contains("wasi:cli/run"));
}
