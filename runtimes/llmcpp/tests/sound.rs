//! Sounds in messages, with the text model of the repository and a projector of random weights (tools/synthetic-gguf/sound.py): what it answers is
//! noise that depends on the sound.

use std::{collections::BTreeMap, f32::consts::TAU, path::PathBuf};

use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::conformance::{Fixture, Played};
use island_runtimes_kit::media::sound::wav;
use island_runtimes_llmcpp::{Llmcpp, Settings};
use serde_json::{Value, json};

/// Tokens of each half minute: 1,500 frames, of which four are one embedding.
const TOKENS: u64 = 375;
/// Samples in a second.
const RATE: u32 = 16_000;

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn cargo() -> CargoSpec {
    serde_json::from_value(
        json!({"slug": "tiny-sound", "runtime_type": "llmcpp", "engine": {"defaults": {"temperature": 0}}}),
    )
    .expect("a Cargo")
}

async fn engine(projector: &str) -> Llmcpp {
    load(file(projector)).await.expect("the model loads")
}

async fn load(projector: PathBuf) -> Result<Llmcpp, Failure> {
    let settings = Settings {
        path: file("../../cargos/models/island-tiny-vision.gguf"),
        projector: Some(projector),
        adapter: None,
        cargo: cargo(),
        slots: 2,
        threads: 1,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    };
    Llmcpp::load(settings, |_, _| {}).await
}

async fn hearing() -> Llmcpp {
    engine("tests/sound/ultravox.gguf").await
}

/// A tone as a part of a message.
fn tone(hertz: f32, seconds: f32, rate: u32) -> Value {
    let samples: Vec<f32> = (0..(seconds * rate as f32) as u32)
        .map(|at| 0.5 * (TAU * hertz * at as f32 / rate as f32).sin())
        .collect();
    json!({"type": "input_audio", "input_audio": {"data": wav(&samples, rate), "format": "wav"}})
}

fn question(parts: &[Value]) -> Value {
    let mut content = parts.to_vec();
    content.push(json!({"type": "text", "text": "What is it?"}));
    json!([{"role": "user", "content": content}])
}

async fn play(engine: &Llmcpp, messages: Value) -> Played {
    let input = json!({"messages": messages, "max_tokens": 6, "logprobs": true});
    let (artifacts, good, bad) = (BTreeMap::new(), Vec::new(), Vec::new());
    let fixture = Fixture { cargo: cargo(), artifacts, good, long: Value::Null, bad, reads_tokens: true };
    fixture.play(engine, &input).await
}

/// The log-probability of the first token, and the number of tokens of the prompt.
fn facts(played: &Played) -> (f64, u64) {
    let Outcome::Completed { usage, .. } = &played.outcome else { panic!("{:?}", played.outcome) };
    let first = played.events.iter().find_map(|event| match event {
        AttemptEvent::Token { logprobs, .. } => logprobs.first(),
        _ => None,
    });
    (first.expect("a token").token.logprob, usage.prompt_tokens)
}

fn refusal(played: &Played) -> (FailureCode, &str) {
    match &played.outcome {
        Outcome::Failed { failure, .. } => (failure.code, failure.message.as_str()),
        Outcome::Completed { .. } => panic!("it completed: {}", played.text),
    }
}

#[tokio::test]
async fn replies_depend_on_the_sound() {
    let engine = hearing().await;
    let (low, high) = (tone(220.0, 2.0, RATE), tone(880.0, 2.0, RATE));
    let (without, plain) = facts(&play(&engine, question(&[])).await);
    let (of_low, tokens) = facts(&play(&engine, question(std::slice::from_ref(&low))).await);
    let (of_high, _) = facts(&play(&engine, question(std::slice::from_ref(&high))).await);
    // A newline stands between parts.
    assert_eq!(tokens - plain, TOKENS + 1);
    assert!(of_low != of_high && of_low != without, "{of_low} {of_high} {without}");
    // The same samples have the same reply, from the cache and at once with others.
    let again = question(std::slice::from_ref(&low));
    let other = question(std::slice::from_ref(&high));
    let (again, other) = tokio::join!(play(&engine, again), play(&engine, other));
    assert!((facts(&again).0 - of_low).abs() < 1e-3, "{} {of_low}", facts(&again).0);
    assert!((facts(&other).0 - of_high).abs() < 1e-3, "{} {of_high}", facts(&other).0);
    // A longer sound has more tokens, and another rate has not.
    let long = facts(&play(&engine, question(&[tone(220.0, 31.0, RATE)])).await).1;
    assert_eq!(long - plain, 2 * TOKENS + 1);
    let fast = facts(&play(&engine, question(&[tone(220.0, 2.0, 48_000)])).await).1;
    assert_eq!(fast, tokens);
    let both = facts(&play(&engine, question(&[low, high])).await).1;
    assert_eq!(both - plain, 2 * (TOKENS + 1));
}

#[tokio::test]
async fn sounds_that_cannot_be_used_are_refused() {
    let engine = hearing().await;
    let part = |data: &str| json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}});
    for (sound, problem) in [
        (part("data:audio/wav;base64,AAAA"), "audio"),
        (part("!"), "base64"),
        (tone(220.0, 601.0, 8_000), "longer than 600 s"),
    ] {
        let played = play(&engine, question(&[sound])).await;
        let (code, message) = refusal(&played);
        assert_eq!(code, FailureCode::InvalidInput);
        assert!(message.contains(problem), "{message}");
    }
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let played = play(&engine, question(&[picture])).await;
    assert_eq!(refusal(&played), (FailureCode::InvalidInput, "the model does not take pictures"));
    let seeing = self::engine("../../cargos/models/island-tiny-vision-mmproj.gguf").await;
    let played = play(&seeing, question(&[tone(220.0, 1.0, RATE)])).await;
    assert_eq!(refusal(&played), (FailureCode::InvalidInput, "the model does not take sounds"));
}

#[tokio::test]
async fn numbers_of_joined_frames_that_end_llama_cpp_are_refused() {
    const KEY: &[u8] = b"clip.audio.projector.stack_factor";
    let mut bytes = std::fs::read(file("tests/sound/ultravox.gguf")).expect("the projector");
    // The type of the value, four bytes, is between its name and itself.
    let at = bytes.windows(KEY.len()).position(|window| window == KEY).expect("the key") + KEY.len() + 4;
    for factor in [0, 8, 7] {
        bytes[at] = factor;
        let changed = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(changed.path(), &bytes).expect("the changed projector");
        let failure = load(changed.path().to_owned()).await.expect_err("it is refused");
        let problem = format!("llama.cpp cannot use a projector that joins {factor} frames");
        assert!(failure.message.contains(&problem), "{failure:?}");
    }
}
