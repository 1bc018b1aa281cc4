//! The engine passes the suite that every engine passes, with a module, a component and a metered module.

use island_runtimes_api::conformance::{Fixture, run_all};
use island_runtimes_wasm::runtime::Wasm;
use serde_json::{Value, json};

use crate::programs::{cargo, component, echo, request};

async fn conforms(program: &[u8], fields: &Value) {
    let dir = tempfile::tempdir().expect("a directory");
    let request = request(dir.path(), program, cargo(fields), Value::Null);
    let fixture = Fixture {
        cargo: request.cargo,
        artifacts: request.artifacts,
        good: vec![json!("one"), json!("dreißig → 40")],
        long: json!([]),
        bad: vec![json!(7), json!(null), json!({"text": "x"})],
        reads_tokens: false,
    };
    run_all(&Wasm::new(3).expect("an engine"), &fixture).await;
}

#[tokio::test]
async fn a_module() {
    conforms(&echo(), &json!({})).await;
}

#[tokio::test]
async fn a_component() {
    conforms(&component(&echo()), &json!({})).await;
}

#[tokio::test]
async fn a_metered_module() {
    conforms(&echo(), &json!({"engine": {"fuel": true}})).await;
}
