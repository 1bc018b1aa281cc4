//! Programs that spin use only their own threads.

use std::time::{Duration, Instant};

use island_protocol::job::FailureCode;
use island_runtimes_api::RunRequest;
use island_runtimes_wasm::runtime::Wasm;
use serde_json::json;

use crate::programs::{cargo, echo, module, play::play, request};

#[tokio::test]
async fn an_engine_continues_while_others_spin() {
    let dir = tempfile::tempdir().expect("a directory");
    let spins =
        request(dir.path(), &module("(call $spin)"), cargo(&json!({"limits": {"timeout_s": 3}})), json!(""));
    let other = tempfile::tempdir().expect("a directory");
    let talks = request(other.path(), &echo(), cargo(&json!({})), json!("hello"));
    let engine = Wasm::new(3).expect("an engine");
    let spinning = async { tokio::join!(play(&engine, spins.clone()), play(&engine, spins.clone())) };
    let talking = async {
        for _ in 0..50 {
            assert_eq!(play(&engine, talks.clone()).await.text, "hello");
        }
    };
    let ((first, second), ()) = tokio::join!(spinning, talking);
    assert_eq!(first.failure().code, FailureCode::DeadlineExceeded);
    assert_eq!(second.failure().code, FailureCode::DeadlineExceeded);
}

#[tokio::test]
async fn a_program_that_was_quick_and_then_spins_delays_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let cargo = cargo(&json!({"limits": {"timeout_s": 2}}));
    let quick = request(dir.path(), &echo(), cargo, json!("hello"));
    let spins = RunRequest { input: json!([]), ..quick.clone() };
    let engine = Wasm::new(3).expect("an engine");
    for _ in 0..20 {
        assert_eq!(play(&engine, quick.clone()).await.text, "hello");
    }
    let talking = async {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            assert_eq!(play(&engine, quick.clone()).await.text, "hello");
        }
        start.elapsed()
    };
    let (first, second, talked) =
        tokio::join!(play(&engine, spins.clone()), play(&engine, spins.clone()), talking);
    assert_eq!(first.failure().code, FailureCode::DeadlineExceeded);
    assert_eq!(second.failure().code, FailureCode::DeadlineExceeded);
    assert!(talked < first.took, "the others waited for the end of the spinning: {talked:?}");
}
