//! Pictures and reasoning, with the small model of the repository that was trained to see six colors and three shapes.

use std::{collections::BTreeMap, io::Cursor, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    job::{FailureCode, Outcome},
};
use island_runtimes_api::conformance::{Fixture, Played};
use island_runtimes_llmcpp::{Llmcpp, Settings};
use serde_json::{Value, json};

const RED: [u8; 3] = [220, 30, 30];
const BLUE: [u8; 3] = [30, 40, 220];
const YELLOW: [u8; 3] = [230, 220, 40];

fn file(name: &str) -> PathBuf {
    island_testing::workspace().join("cargos/models").join(name)
}

fn cargo() -> CargoSpec {
    serde_json::from_value(
        json!({"slug": "tiny-vision", "runtime_type": "llmcpp", "engine": {"defaults": {"temperature": 0}}}),
    )
    .expect("a Cargo")
}

async fn engine(slots: u32) -> Llmcpp {
    engine_of(file("island-tiny-vision.gguf"), slots).await
}

async fn engine_of(path: PathBuf, slots: u32) -> Llmcpp {
    let settings = Settings {
        path,
        projector: Some(file("island-tiny-vision-mmproj.gguf")),
        adapter: None,
        cargo: cargo(),
        slots,
        threads: 1,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    };
    Llmcpp::load(settings, |_, _| {}).await.expect("the model loads")
}

/// A circle of one color on grey, as a part of a message.
fn circle(color: [u8; 3], (width, height): (u32, u32), format: ImageFormat) -> Value {
    let (x, y, radius) =
        (f64::from(width) / 2.0, f64::from(height) / 2.0, f64::from(width.min(height)) / 3.0);
    let picture = RgbImage::from_fn(width, height, |column, row| {
        let inside = (f64::from(column) - x).hypot(f64::from(row) - y) < radius;
        Rgb(if inside { color } else { [150, 150, 150] })
    });
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::from(picture).write_to(&mut bytes, format).expect("written");
    let kind = format.to_mime_type();
    let address = format!("data:{kind};base64,{}", STANDARD.encode(bytes.into_inner()));
    json!({"type": "image_url", "image_url": {"url": address}})
}

fn png(color: [u8; 3]) -> Value {
    circle(color, (64, 48), ImageFormat::Png)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn user(parts: &[Value]) -> Value {
    json!({"role": "user", "content": parts})
}

fn fixture() -> Fixture {
    Fixture {
        cargo: cargo(),
        artifacts: BTreeMap::new(),
        good: Vec::new(),
        long: Value::Null,
        bad: Vec::new(),
        reads_tokens: true,
    }
}

async fn play(engine: &Llmcpp, input: Value) -> Played {
    fixture().play(engine, &input).await
}

async fn ask(engine: &Llmcpp, messages: &[Value]) -> String {
    play(engine, json!({"messages": messages, "max_tokens": 40})).await.text
}

/// The reasoning and the answer.
fn parts(played: &Played) -> (String, String) {
    let (mut thought, mut answer) = (String::new(), String::new());
    for event in &played.events {
        if let AttemptEvent::Token { content, reasoning, .. } = event {
            if *reasoning { &mut thought } else { &mut answer }.push_str(content);
        }
    }
    (thought, answer)
}

fn refusal(played: &Played) -> (FailureCode, &str) {
    match &played.outcome {
        Outcome::Failed { failure, .. } => (failure.code, failure.message.as_str()),
        Outcome::Completed { .. } => panic!("it completed: {}", played.text),
    }
}

#[tokio::test]
async fn the_model_sees_what_is_drawn() {
    let engine = engine(2).await;
    for (color, name) in [(RED, "red"), (BLUE, "blue"), (YELLOW, "yellow")] {
        for (size, format) in
            [((64, 48), ImageFormat::Png), ((200, 150), ImageFormat::Jpeg), ((37, 91), ImageFormat::WebP)]
        {
            let question = user(&[circle(color, size, format), text("What color is it?")]);
            assert_eq!(ask(&engine, &[question]).await, format!("It is {name}."), "{size:?} {format:?}");
        }
        let after = user(&[text("Describe the picture."), png(color)]);
        assert_eq!(ask(&engine, &[after]).await, format!("A {name} circle."));
    }
    let both = user(&[png(RED), png(BLUE), text("Describe the pictures.")]);
    assert_eq!(ask(&engine, &[both]).await, "A red circle and a blue circle.");
    assert_eq!(ask(&engine, &[user(&[text("What color is it?")])]).await, "I see no picture.");
}

#[tokio::test]
async fn a_conversation_about_a_picture_goes_on_and_others_are_not_mixed_up() {
    let engine = engine(4).await;
    let first = user(&[png(RED), text("What color is it?")]);
    let answer = |text: &str| json!({"role": "assistant", "content": text});
    let next = [first.clone(), answer("It is red."), user(&[text("What shape is it?")])];
    assert_eq!(ask(&engine, std::slice::from_ref(&first)).await, "It is red.");
    // The beginning is cached now.
    assert_eq!(ask(&engine, &next).await, "It is a circle.");
    // The same texts with another picture have another beginning.
    let other = user(&[png(BLUE), text("What color is it?")]);
    assert_eq!(ask(&engine, std::slice::from_ref(&other)).await, "It is blue.");
    let (red, blue) = ([first], [other]);
    let replies =
        tokio::join!(ask(&engine, &red), ask(&engine, &blue), ask(&engine, &red), ask(&engine, &blue));
    assert_eq!(
        replies,
        ("It is red.".into(), "It is blue.".into(), "It is red.".into(), "It is blue.".into())
    );
}

#[tokio::test]
async fn a_picture_counts_as_the_tokens_that_it_takes() {
    let engine = engine(1).await;
    let tokens = |played: &Played| match &played.outcome {
        Outcome::Completed { usage, .. } => usage.prompt_tokens,
        Outcome::Failed { failure, .. } => panic!("{failure:?}"),
    };
    let with = |parts: &[Value]| json!({"messages": [user(parts)], "max_tokens": 4});
    let question = text("What color is it?");
    let plain = tokens(&play(&engine, with(std::slice::from_ref(&question))).await);
    let one = tokens(&play(&engine, with(&[png(RED), question.clone()])).await);
    let counted = json!({"messages": [user(&[png(RED), question.clone()])], "count_tokens": true});
    assert_eq!(tokens(&play(&engine, counted).await), one, "as many are counted without a reply");
    let two = tokens(&play(&engine, with(&[png(RED), png(RED), question])).await);
    // 36 embeddings, and a newline between parts.
    assert_eq!((one - plain, two - one), (37, 37));
}

#[tokio::test]
async fn pictures_of_any_allowed_shape_have_as_many_tokens() {
    let engine = engine(1).await;
    let of = async |(width, height): (u32, u32)| {
        let picture = circle(RED, (width, height), ImageFormat::Png);
        let input = json!({"messages": [user(&[picture, text("What color is it?")])], "max_tokens": 4});
        match play(&engine, input).await.outcome {
            Outcome::Completed { usage, .. } => usage.prompt_tokens,
            Outcome::Failed { failure, .. } => panic!("{width} × {height}: {failure:?}"),
        }
    };
    let usual = of((64, 48)).await;
    for size in [(1, 1), (2, 1), (1, 2), (200, 1), (1, 200), (6_000, 30), (30, 6_000)] {
        assert_eq!(of(size).await, usual, "{size:?}");
    }
}

#[tokio::test]
async fn unreadable_pictures_are_refused() {
    let engine = engine(1).await;
    let cut = |part: &Value| {
        let address = part["image_url"]["url"].as_str().expect("an address");
        let (start, data) = address.split_once(',').expect("a data: address");
        json!({"type": "image_url", "image_url": {"url": format!("{start},{}", &data[..data.len() / 2 / 4 * 4])}})
    };
    let address = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    for (part, problem) in [
        (cut(&png(RED)), "cannot be read"),
        (circle(RED, (4097, 4096), ImageFormat::Png), "more than 16777216"),
        (
            circle(RED, (201, 1), ImageFormat::Png),
            "it has 201 × 1 pixels, and one side may be at most 200 times",
        ),
        (circle(RED, (10, 2_001), ImageFormat::Png), "it has 10 × 2001 pixels"),
        (address("data:image/png;base64,AAAA"), "known format"),
        (address("https://example.org/a.png"), "is an address"),
        (address("!"), "base64"),
    ] {
        let played = play(&engine, json!({"messages": [user(&[part, text("What color is it?")])]})).await;
        let (code, message) = refusal(&played);
        assert_eq!(code, FailureCode::InvalidInput);
        assert!(message.contains(problem), "{message}");
    }
    // The engine goes on.
    assert_eq!(ask(&engine, &[user(&[png(RED), text("What color is it?")])]).await, "It is red.");
}

/// Writes a copy of the model whose chat template writes only the contents of messages.
fn without_prompt_for_replies(path: &std::path::Path) {
    let mut bytes = std::fs::read(file("island-tiny-vision.gguf")).expect("the model");
    let begin = b"{% for message in messages %}";
    let at = bytes.windows(begin.len()).position(|window| window == begin).expect("its template");
    let length = u64::from_le_bytes(*bytes[..at].last_chunk().expect("its length")) as usize;
    let template = "{% for message in messages %}{{ message['content'] }}{% endfor %}";
    let fill = " ".repeat(length - "{##}".len() - template.len());
    bytes[at..at + length].copy_from_slice(format!("{{#{fill}#}}{template}").as_bytes());
    std::fs::write(path, bytes).expect("write");
}

#[tokio::test]
async fn a_prompt_that_ends_with_a_picture_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bare.gguf");
    without_prompt_for_replies(&path);
    let engine = engine_of(path, 1).await;
    let ask = |parts: &[Value]| json!({"messages": [user(parts)], "max_tokens": 4});
    let question = text("What color is it?");
    let played = play(&engine, ask(&[question.clone(), png(RED)])).await;
    let (code, message) = refusal(&played);
    assert_eq!(code, FailureCode::ModelRejected);
    assert!(message.contains("writes nothing after a picture"), "{message}");
    assert!(play(&engine, ask(&[png(RED), question])).await.usage().prompt_tokens > 36);
}

#[tokio::test]
async fn a_model_without_a_projector_refuses_pictures() {
    let settings = Settings {
        path: file("island-tiny-chat.gguf"),
        projector: None,
        adapter: None,
        cargo: cargo(),
        slots: 1,
        threads: 1,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    };
    let engine = Llmcpp::load(settings.clone(), |_, _| {}).await.expect("the model loads");
    let played = play(&engine, json!({"messages": [user(&[png(RED), text("Hi")])]})).await;
    assert_eq!(refusal(&played), (FailureCode::InvalidInput, "the model does not take pictures"));
    let of_another = Settings { projector: Some(file("island-tiny-vision-mmproj.gguf")), ..settings.clone() };
    let failure = Llmcpp::load(of_another, |_, _| {}).await.expect_err("of another model");
    assert_eq!(failure.code, FailureCode::ModelRejected);
    let no_projector = Settings { projector: Some(file("island-tiny-chat.gguf")), ..settings };
    let failure = Llmcpp::load(no_projector, |_, _| {}).await.expect_err("a model is not a projector");
    assert_eq!(failure.code, FailureCode::ModelRejected);
}

#[tokio::test]
async fn reasoning_is_apart_from_the_answer() {
    let engine = engine(1).await;
    let question = |extra: Value| {
        let mut input =
            json!({"messages": [{"role": "user", "content": "What is two and three?"}], "max_tokens": 60});
        input.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        input
    };
    let thought = ("Two and three make five.".to_owned(), "Five.".to_owned());
    let none = (String::new(), "Five.".to_owned());
    // The template opens the reasoning, or the model does, or nobody.
    assert_eq!(parts(&play(&engine, question(json!({"reasoning_effort": "high"}))).await), thought);
    let asked =
        json!({"messages": [{"role": "user", "content": "What is two and three? Think."}], "max_tokens": 60});
    assert_eq!(parts(&play(&engine, asked).await), thought);
    assert_eq!(parts(&play(&engine, question(json!({}))).await), none);
    assert_eq!(parts(&play(&engine, question(json!({"reasoning_effort": "none"}))).await), none);
    // A budget ends it early, and the answer follows.
    let played = play(&engine, question(json!({"max_reasoning_tokens": 3}))).await;
    let (short, answer) = parts(&played);
    assert_eq!(answer, "Five.");
    assert!(!short.is_empty() && thought.0.starts_with(&short), "{short}");
    // A picture can be thought about.
    let picture = json!({"messages": [user(&[png(RED), text("What color is it?")])], "reasoning_effort": "low", "max_tokens": 60});
    let (about, answer) = parts(&play(&engine, picture).await);
    assert_eq!((about.as_str(), answer.as_str()), ("The picture shows a red circle.", "It is red."));
}

#[tokio::test]
async fn probabilities_are_those_of_the_answer_alone() {
    let engine = engine(1).await;
    // The template opens the reasoning, the model does, nobody does, or a budget ends it.
    for (question, extra) in [
        ("What is two and three?", json!({"reasoning_effort": "high"})),
        ("What is two and three? Think.", json!({})),
        ("What is two and three?", json!({})),
        ("What is two and three?", json!({"max_reasoning_tokens": 3})),
    ] {
        let mut input =
            json!({"messages": [{"role": "user", "content": question}], "max_tokens": 60, "logprobs": true});
        input.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        let played = play(&engine, input.clone()).await;
        let mut written = Vec::new();
        for event in &played.events {
            if let AttemptEvent::Token { logprobs, reasoning, .. } = event {
                assert!(!*reasoning || logprobs.is_empty(), "{input}");
                written.extend(logprobs.iter().flat_map(|one| one.token.bytes.clone()));
            }
        }
        assert_eq!(String::from_utf8_lossy(&written), parts(&played).1, "{input}");
    }
}

#[tokio::test]
async fn the_format_of_a_reply_begins_after_the_reasoning() {
    let engine = engine(1).await;
    let schema = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}});
    let input = json!({
        "messages": [{"role": "user", "content": "What is two and three?"}],
        "reasoning_effort": "medium", "max_reasoning_tokens": 30, "response_format": format, "max_tokens": 80,
    });
    let (thought, answer) = parts(&play(&engine, input).await);
    assert_eq!(thought, "Two and three make five.");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert!(answer["sum"].is_i64(), "{answer}");
}

#[tokio::test]
async fn a_reply_goes_on_in_its_reasoning_or_after_it() {
    let engine = engine(1).await;
    let input = json!({"messages": [{"role": "user", "content": "What is two and three?"}], "reasoning_effort": "high", "max_tokens": 60});
    for (reasoning, answer, rest) in [
        ("Two and", "", (" three make five.", "Five.")),
        ("Two and three make five.", "F", ("", "ive.")),
        ("Two and three make five.", "", ("", "Five.")),
    ] {
        let reasoning_before = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
        let played = fixture().play_after(&engine, &input, reasoning_before, answer).await;
        assert_eq!(parts(&played), (rest.0.to_owned(), rest.1.to_owned()), "{reasoning:?} {answer:?}");
    }
}
