//! Sounds in messages, with the text model of the repository and a projector of random weights (tools/synthetic-gguf/sound.py): what it answers is
//! noise that depends on the sound.

use std::{collections::BTreeMap, f32::consts::TAU, io::Cursor, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{ImageFormat, Rgb, RgbImage};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    job::{Failure, FailureCode, Outcome},
};
use island_runtimes_api::conformance::{Fixture, Played};
use island_runtimes_kit::media::sound::wav;
use island_runtimes_llmcpp::{Llmcpp, Settings};
use serde_json::{Value, json};

/// Tokens of each half minute with the projector in the form of Ultravox: 1,500 frames, of which four are one embedding.
const TOKENS: u64 = 375;
/// Samples in a second.
const RATE: u32 = 16_000;

fn file(path: &str) -> PathBuf {
    island_testing::workspace().join("runtimes/llmcpp").join(path)
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
    tone_of(hertz, (seconds * rate as f32) as u32, rate)
}

fn tone_of(hertz: f32, samples: u32, rate: u32) -> Value {
    let sample = |at: u32| 0.5 * (TAU * hertz * at as f32 / rate as f32).sin();
    let samples: Vec<f32> = (0..samples).map(sample).collect();
    json!({"type": "input_audio", "input_audio": {"data": wav(&samples, rate), "format": "wav"}})
}

/// A tone of one second as a part of a message, in floats: their level has no limit.
fn loud(level: f32) -> Value {
    let bytes = 4 * RATE;
    let mut file: Vec<u8> = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    // Floats, one channel.
    file.extend([3, 0, 1, 0]);
    file.extend(RATE.to_le_bytes());
    file.extend(bytes.to_le_bytes());
    file.extend([4, 0, 32, 0]);
    file.extend(b"data");
    file.extend(bytes.to_le_bytes());
    for at in 0..RATE {
        let sample = level * (TAU * 220.0 * at as f32 / RATE as f32).sin();
        file.extend(sample.to_le_bytes());
    }
    json!({"type": "input_audio", "input_audio": {"data": STANDARD.encode(file), "format": "wav"}})
}

fn picture(width: u32, height: u32) -> Value {
    let pixels =
        RgbImage::from_fn(width, height, |column, row| Rgb([(column % 256) as u8, (row % 256) as u8, 90]));
    let mut bytes = Cursor::new(Vec::new());
    pixels.write_to(&mut bytes, ImageFormat::Png).expect("written");
    let address = format!("data:image/png;base64,{}", STANDARD.encode(bytes.into_inner()));
    json!({"type": "image_url", "image_url": {"url": address}})
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
async fn a_sound_may_have_any_length() {
    // In the form of Gemma 4's, which computes a sound at its own length.
    let engine = engine("tests/sound/gemma4a.gguf").await;
    let of = async |samples: u32| facts(&play(&engine, question(&[tone_of(220.0, samples, RATE)])).await);
    let (_, second) = of(RATE).await;
    let (_, two) = of(2 * RATE).await;
    // One embedding for each 640 samples.
    assert_eq!(two - second, 25);
    // Around the shortest frame, and where the second half minute has only a few samples.
    for samples in [1, 160, 319, 320, 321, 640, 30 * RATE - 1, 30 * RATE, 30 * RATE + 1, 30 * RATE + 321] {
        let (first, tokens) = of(samples).await;
        assert!(first.is_finite() && tokens > 0, "{samples}: {first} {tokens}");
    }
    let (low, high) = (tone(220.0, 2.0, RATE), tone(880.0, 2.0, RATE));
    let (low, _) = facts(&play(&engine, question(&[low])).await);
    let (high, _) = facts(&play(&engine, question(&[high])).await);
    assert!((low - high).abs() > 1e-6, "{low} {high}");
}

#[tokio::test]
async fn a_model_takes_pictures_and_sounds_in_one_message() {
    // In the form of Gemma 4 12B's, whose pictures must be read in one batch, but not its sounds.
    let engine = engine("tests/sound/gemma4u.gguf").await;
    let (without, plain) = facts(&play(&engine, question(&[])).await);
    // More tokens than a batch has: one for each 640 samples.
    let long = tone(220.0, 22.0, RATE);
    let (of_long, tokens) = facts(&play(&engine, question(std::slice::from_ref(&long))).await);
    assert!(tokens > plain + 550 && of_long != without, "{tokens} {plain} {of_long}");
    let picture = picture(48, 36);
    let (of_picture, with_picture) = facts(&play(&engine, question(std::slice::from_ref(&picture))).await);
    let (of_both, both) = facts(&play(&engine, question(&[long, picture])).await);
    assert!(of_picture != without && of_both != of_long && of_both != of_picture);
    assert_eq!(both - tokens, with_picture - plain);
}

#[tokio::test]
async fn large_pictures_have_as_many_tokens_as_their_library_gives_them() {
    let engine = engine("tests/sound/gemma4u.gguf").await;
    let (_, plain) = facts(&play(&engine, question(&[])).await);
    let (_, tokens) = facts(&play(&engine, question(&[picture(1_600, 1_200)])).await);
    // 280 at most, and a few around them.
    assert!((plain + 200..plain + 320).contains(&tokens), "{tokens} {plain}");
}

#[tokio::test]
async fn pictures_are_read_up_to_a_ratio_of_their_sides() {
    // Its table has 256 positions for a row or a column of embeddings, of six pixels each. At its own size, a picture of
    // 1,600 × 8 pixels would have 267 in a row.
    let engine = engine("tests/sound/gemma4u.gguf").await;
    let (_, plain) = facts(&play(&engine, question(&[])).await);
    for (width, height) in [(1, 1), (200, 1), (1, 200), (2_000, 10), (10, 2_000), (1_600, 8), (8, 1_600)] {
        let (first, tokens) = facts(&play(&engine, question(&[picture(width, height)])).await);
        let counts = plain + 1..plain + 320;
        assert!(first.is_finite() && counts.contains(&tokens), "{width} × {height}: {first} {tokens}");
    }
    // Without the limit of the ratio, the last two would have 289.
    for (width, height) in [(201, 1), (1, 201), (3_000, 10), (10, 3_000)] {
        let played = play(&engine, question(&[picture(width, height)])).await;
        let (code, message) = refusal(&played);
        assert_eq!(code, FailureCode::InvalidInput);
        let problem = format!("it has {width} × {height} pixels, and one side may be at most 200 times");
        assert!(message.contains(&problem), "{message}");
    }
}

#[tokio::test]
async fn the_loudest_samples_are_those_of_integers_as_floats() {
    let engine = hearing().await;
    let (quiet, tokens) = facts(&play(&engine, question(&[loud(0.5)])).await);
    let (loudest, of_loudest) = facts(&play(&engine, question(&[loud(32_768.0)])).await);
    assert!(quiet.is_finite() && loudest.is_finite(), "{quiet} {loudest}");
    assert_eq!(tokens, of_loudest);
}

#[tokio::test]
async fn sounds_that_cannot_be_used_are_refused() {
    let engine = hearing().await;
    let part = |data: &str| json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}});
    for (sound, problem) in [
        (part("data:audio/wav;base64,AAAA"), "audio"),
        (part("!"), "base64"),
        (tone(220.0, 601.0, 8_000), "longer than 600 s"),
        (loud(1e30), "the largest that can be computed is 65536"),
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
        let problem =
            format!("llama.cpp cannot use a projector of the type ultravox that joins {factor} frames");
        assert!(failure.message.contains(&problem), "{failure:?}");
    }
}
