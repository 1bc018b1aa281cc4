//! The scripted engine passes the suite, and follows its script.

use std::collections::BTreeMap;

use island_protocol::job::{FailureCode, Fault, Outcome};
use island_runtimes_api::{
    conformance::{Fixture, run_all},
    simulated::{Crash, Simulated, reply},
};
use serde_json::{Value, json};

fn fixture(engine: &Value) -> Fixture {
    let cargo = json!({"slug": "sim-chat", "runtime_type": "llmcpp", "engine": engine});
    Fixture {
        cargo: serde_json::from_value(cargo).expect("a Cargo"),
        artifacts: BTreeMap::new(),
        good: vec![
            json!({"prompt": "one two", "max_tokens": 5}),
            json!({"prompt": "dreißig → 40", "max_tokens": 9, "delay_ms": 1}),
        ],
        long: json!({"prompt": "long", "max_tokens": 1_000_000, "delay_ms": 5}),
        bad: vec![json!(null), json!({}), json!({"prompt": 1}), json!({"prompt": "x", "max_tokens": "many"})],
        reads_tokens: true,
    }
}

#[tokio::test]
async fn conforms() {
    let mut fixture = fixture(&json!({"simulated": true}));
    fixture.cargo.limits.max_tokens = 0;
    run_all(&Simulated::new(4, Crash::Pretend), &fixture).await;
}

#[tokio::test]
async fn replies_follow_from_the_prompt() {
    let fixture = fixture(&Value::Null);
    let played =
        fixture.play(&Simulated::new(1, Crash::Pretend), &json!({"prompt": "a b", "max_tokens": 3})).await;
    assert_eq!(played.text, "a0 b1 a2");
    assert_eq!(played.text, reply("a b", 3));
}

#[tokio::test]
async fn scripted_failures_carry_their_code_and_fault() {
    let fixture = fixture(&json!({"fail_after": 2, "fail_code": "out_of_memory", "fail_fault": "host"}));
    let played = fixture.play(&Simulated::new(1, Crash::Pretend), &json!({"prompt": "a"})).await;
    let Outcome::Failed { failure, usage } = played.outcome else { panic!("it completed") };
    assert_eq!((failure.code, failure.fault), (FailureCode::OutOfMemory, Fault::Host));
    assert_eq!((usage.completion_tokens, played.text.as_str()), (2, "a0 a1"));
}

#[tokio::test]
async fn wrong_counts_are_reported() {
    let engine = Simulated::new(1, Crash::Pretend);
    let lie = |kind| fixture(&json!({"lie": kind, "max_tokens": 2}));
    let usage = lie("usage").play(&engine, &json!({"prompt": "a"})).await;
    assert_ne!(usage.usage().completion_tokens, usage.counted());
    let giant = lie("giant").play(&engine, &json!({"prompt": "a"})).await;
    assert!(giant.text.len() > 32 << 20);
}
