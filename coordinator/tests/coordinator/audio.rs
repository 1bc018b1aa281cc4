//! `POST /audio/transcriptions` and `POST /audio/translations`.

use island_protocol::{
    cargo::RuntimeType,
    job::{Failure, FailureCode, Outcome},
};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, finished},
    network::Network,
};

const WHISPER: &str = r#"
slug = "whisper-test"
name = "Whisper"
description = "Transcribes."
category = "audio"
runtime_type = "onnx"
onnx_task_type = "automatic-speech-recognition"
price_per_job = 0.5
required_vram_mb = 0
required_ram_mb = 100
aliases = ["listener"]
[input_schema]
type = "object"
required = ["audio"]
additionalProperties = false
[input_schema.properties]
audio = { type = "string" }
language = { type = "string" }
task = { enum = ["transcribe", "translate"] }
timestamps = { enum = ["none", "segment", "word"] }
duration = { type = "boolean" }
[output_schema]
type = "object"
[example]
input = { audio = "aGk=" }
"#;

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        let file = |slug: &str| config.catalogue.dir.join(format!("{slug}.toml"));
        std::fs::write(file("whisper-test"), WHISPER).expect("cargo file");
        // Nearer in size to what `whisper-1` suggests, but not a Whisper of several languages.
        let other = |slug: &str| {
            WHISPER
                .replace("whisper-test", slug)
                .replace("_ram_mb = 100", "_ram_mb = 800")
                .replace("\"listener\"", "")
        };
        std::fs::write(file("moonshine"), other("moonshine")).expect("cargo file");
        std::fs::write(file("whisper-test-en"), other("whisper-test-en")).expect("cargo file");
        let plain = other("plain").replace("timestamps = {", "unused = {").replace("task = {", "other = {");
        std::fs::write(file("plain"), plain).expect("cargo file");
    })
    .await;
    let island = Island::start_with(&network, RuntimeType::Onnx).await;
    (network, island)
}

/// A form with a file of two bytes and these fields.
fn form(network: &Network, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
    send(network, path, b"hi", fields)
}

fn send(network: &Network, path: &str, file: &[u8], fields: &[(&str, &str)]) -> RequestBuilder {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend(part.into_bytes());
    }
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n";
    body.extend([head.as_bytes(), file, b"\r\n--b--\r\n"].concat());
    let request = network.call(Method::POST, path);
    request.header("Content-Type", "multipart/form-data; boundary=b").body(body)
}

const TRANSCRIPTIONS: &str = "/audio/transcriptions";

/// Sends the form, and gives the job this output; returns the input of the job, and the type and text of the answer.
async fn exchange(island: &mut Island, request: RequestBuilder, output: Value) -> (Value, String, String) {
    let (response, input) = tokio::join!(request.send(), async {
        let assignment = island.take().await;
        island.end(assignment.key, assignment.first_event, finished(output)).await;
        assignment.input
    });
    let response = response.expect("answer");
    let media_type = response.headers()["content-type"].to_str().expect("text").to_owned();
    let (status, text) = (response.status(), response.text().await.expect("a body"));
    assert_eq!(status, 200, "{text}");
    (input, media_type, text)
}

#[tokio::test]
async fn a_sound_becomes_text() {
    let (network, mut island) = start().await;
    let output = json!({"text": "Hello", "language": "de", "duration": 1.5});
    let request =
        form(&network, TRANSCRIPTIONS, &[("model", "listener"), ("temperature", "0.2"), ("prompt", "x")]);
    let (input, media_type, text) = exchange(&mut island, request, output.clone()).await;
    assert_eq!((input, media_type.as_str()), (json!({"audio": "aGk=", "duration": true}), "application/json"));
    let expected = json!({"text": "Hello", "usage": {"type": "duration", "seconds": 1.5}});
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);

    let fields =
        [("model", "whisper-1"), ("language", "de"), ("response_format", "text"), ("stream", "false")];
    let request = form(&network, "/audio/translations", &fields);
    let (input, media_type, text) = exchange(&mut island, request, output).await;
    assert_eq!(input, json!({"audio": "aGk=", "language": "de", "task": "translate", "duration": true}));
    assert_eq!((media_type.as_str(), text.as_str()), ("text/plain; charset=utf-8", "Hello\n"));
    let jobs = network.get("/jobs").await;
    assert_eq!(jobs["data"][0]["workload_slug"], "whisper-test", "whisper-1 means a Whisper");
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "two jobs were paid");
    network.audit().await;
}

#[tokio::test]
async fn an_answer_has_the_times_that_were_requested() {
    let (network, mut island) = start().await;
    let output = json!({"text": "Hi there", "segments": [
        {"start": 0.0, "end": 0.5, "text": "Hi"}, {"start": 0.5, "end": 61.25, "text": "there"},
    ]});
    let model = ("model", "whisper-test");
    let captions = [
        ("srt", "1\n00:00:00,000 --> 00:00:00,500\nHi\n\n2\n00:00:00,500 --> 00:01:01,250\nthere\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:00.500\nHi\n\n00:00:00.500 --> 00:01:01.250\nthere\n\n"),
    ];
    for (format, expected) in captions {
        let request = form(&network, TRANSCRIPTIONS, &[model, ("response_format", format)]);
        let (input, _, text) = exchange(&mut island, request, output.clone()).await;
        assert_eq!((&input["timestamps"], text.as_str()), (&json!("segment"), expected));
    }
    let segment = |id: u32, start: f64, end: f64, text: &str| {
        json!({
            "id": id, "start": start, "end": end, "text": text, "seek": 0, "tokens": [], "temperature": 0.0,
            "avg_logprob": 0.0, "compression_ratio": 0.0, "no_speech_prob": 0.0,
        })
    };
    let segments = json!([segment(0, 0.0, 0.5, "Hi"), segment(1, 0.5, 61.25, "there")]);
    let spoken = json!({"text": "Hi there", "segments": [
        {"start": 0.0, "end": 0.5, "text": "Hi"}, {"start": 0.6, "end": 1.25, "text": "my"},
        {"start": 60.5, "end": 61.25, "text": "there"},
    ]});
    let words = json!([
        {"word": "Hi", "start": 0.0, "end": 0.5}, {"word": "my", "start": 0.6, "end": 1.25},
        {"word": "there", "start": 60.5, "end": 61.25},
    ]);
    let joined = json!([segment(0, 0.0, 1.25, "Hi my"), segment(1, 60.5, 61.25, "there")]);
    let (of_words, of_segments) =
        (("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment"));
    for (granularities, times, segments, words) in [
        (&[][..], "segment", &segments, &Value::Null),
        (&[of_words][..], "word", &Value::Null, &words),
        (&[of_words, of_segments][..], "word", &joined, &words),
    ] {
        let output = if times == "word" { &spoken } else { &output };
        let fields = [&[model, ("response_format", "verbose_json")], granularities].concat();
        let request = form(&network, TRANSCRIPTIONS, &fields);
        let (input, _, text) = exchange(&mut island, request, output.clone()).await;
        assert_eq!(input["timestamps"], times, "an output has the times of one kind");
        let body: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&body["segments"], &body["words"]), (segments, words));
        let head = (&body["task"], &body["language"], &body["text"], &body["duration"]);
        assert_eq!(head, (&json!("transcribe"), &json!("und"), &json!("Hi there"), &json!(61.25)));
        assert_eq!(body["usage"], json!({"type": "duration", "seconds": 61.25}));
    }
}

/// Fields of a form, and the status and the parameter of its answer.
type Case<'a> = (&'a [(&'a str, &'a str)], u16, &'a str);

#[tokio::test]
async fn bad_requests_name_the_field() {
    let (network, _island) = start().await;
    let model = ("model", "whisper-test");
    let cases: [Case<'_>; 11] = [
        (&[], 422, "model"),
        (&[("model", "echo")], 404, "model"),
        (&[("model", "gpt-4o-transcribe-diarize")], 404, "model"),
        (&[model, model], 422, "model"),
        (&[model, ("file", "twice")], 422, "file"),
        (&[model, ("response_format", "xml")], 422, "response_format"),
        (&[model, ("temperature", "hot")], 422, "temperature"),
        (&[model, ("stream", "true")], 422, "stream"),
        (&[model, ("timestamp_granularities[]", "word")], 422, "timestamp_granularities[]"),
        (&[("model", "plain"), ("response_format", "srt")], 422, "response_format"),
        (
            &[model, ("response_format", "verbose_json"), ("timestamp_granularities[]", "day")],
            422,
            "timestamp_granularities[].0",
        ),
    ];
    for (fields, expected, param) in cases {
        let (status, body) = answer(form(&network, TRANSCRIPTIONS, fields)).await;
        assert_eq!((status, &body["error"]["param"]), (expected, &json!(param)), "{body}");
        assert!(body["error"]["type"].is_string(), "{body}");
    }
    let (status, body) = answer(form(&network, "/audio/translations", &[("model", "plain")])).await;
    assert_eq!((status, &body["error"]["message"]), (422, &json!("the Cargo plain takes no task")));
    let (status, body) = answer(send(&network, TRANSCRIPTIONS, b"", &[model])).await;
    assert_eq!((status, &body["error"]["param"]), (422, &json!("file")), "an empty file");
    assert_eq!(network.get("/jobs").await["meta"]["total"], 0);
}

#[tokio::test]
async fn only_forms_within_the_limits_are_read() {
    let (network, _island) = start().await;
    let model = ("model", "whisper-test");
    let code = |body: &Value| body["error"]["code"].as_str().expect("a code").to_owned();
    // Within the limit of a body, but too large for the input of a job once it is in base64.
    let (status, body) = answer(send(&network, TRANSCRIPTIONS, &vec![0; 7 << 20], &[model])).await;
    assert_eq!(
        (status, code(&body).as_str(), &body["error"]["param"]),
        (413, "payload_too_large", &json!("file"))
    );
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.starts_with("the file has 7340032 bytes, at most "), "{message}");
    let json = network.call(Method::POST, TRANSCRIPTIONS).json(&json!({"model": "whisper-test"}));
    let (status, body) = answer(json).await;
    assert_eq!((status, code(&body).as_str()), (415, "unsupported_media_type"));
    let broken =
        network.call(Method::POST, TRANSCRIPTIONS).header("Content-Type", "multipart/form-data; boundary=b");
    let (status, body) = answer(broken.body("no form")).await;
    assert_eq!((status, code(&body).as_str()), (422, "validation_error"), "{body}");
    let anonymous = network.http.post(format!("{}{TRANSCRIPTIONS}", network.url)).body("no form");
    let (status, body) = answer(anonymous).await;
    assert_eq!((status, &body["error"]["type"]), (401, &json!("authentication_error")));
}

#[tokio::test]
async fn what_a_model_cannot_do_is_an_error_of_the_request() {
    let (network, mut island) = start().await;
    let fields = [("model", "whisper-test"), ("response_format", "srt")];
    let ((status, body), ()) = tokio::join!(answer(form(&network, TRANSCRIPTIONS, &fields)), async {
        let assignment = island.take().await;
        let failure = Failure::of_job(FailureCode::InvalidInput, "this model has no timestamps");
        island.end(assignment.key, assignment.first_event, Outcome::failed(failure)).await;
    });
    assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid_input")));
    assert_eq!(body["error"]["message"], "this model has no timestamps");
    let ((status, body), ()) = tokio::join!(answer(form(&network, TRANSCRIPTIONS, &fields)), async {
        let assignment = island.take().await;
        island.end(assignment.key, assignment.first_event, finished(json!({"text": "x"}))).await;
    });
    assert_eq!((status, &body["error"]["code"]), (500, &json!("job_failed")), "{body}");
}
