//! `POST /audio/speech`.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::{
    cargo::RuntimeType,
    fabric::Assignment,
    job::{Failure, FailureCode, Outcome},
};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, finished},
    network::{Event, Events, Network},
    problem, soon,
};

const VOICE: &str = r#"
slug = "voice"
name = "Voice"
description = "Speaks."
category = "audio"
runtime_type = "onnx"
onnx_task_type = "text-to-speech"
price_per_job = 0.5
required_vram_mb = 0
required_ram_mb = 900
[input_schema]
type = "object"
required = ["text"]
additionalProperties = false
[input_schema.properties]
text = { type = "string" }
voice = { enum = ["anna", "ben"] }
speed = { type = "number" }
[output_schema]
type = "object"
[example]
input = { text = "a" }
"#;

async fn start() -> (Network, Island) {
    let network = Network::start_with(|config| {
        let file = |slug: &str| config.catalogue.dir.join(format!("{slug}.toml"));
        std::fs::write(file("voice"), VOICE).expect("cargo file");
        // Smaller, but without a choice of voices.
        let plain = VOICE
            .replace("\"voice\"", "\"plain\"")
            .replace("ram_mb = 900", "ram_mb = 100")
            .replace("voice = { enum = [\"anna\", \"ben\"] }", "")
            .replace("speed = { type = \"number\" }", "");
        std::fs::write(file("plain"), plain).expect("cargo file");
    })
    .await;
    let island = Island::start_with(&network, RuntimeType::Onnx).await;
    (network, island)
}

/// A text of at most 90 sentences, of which none occurs twice.
fn sentences(count: u32) -> String {
    let sentences: Vec<_> = (10..10 + count).map(|number| format!("This is sentence number {number}.")).collect();
    sentences.join(" ")
}

/// Takes the jobs of the first two pieces of a text, in its order. They are submitted at the same time, and either may be offered first.
async fn pieces(island: &mut Island, text: &str) -> [Assignment; 2] {
    let mut both = [island.take().await, island.take().await];
    both.sort_by_key(|piece| text.find(piece.input["text"].as_str().expect("text")));
    both
}

fn speak(network: &Network, body: &Value) -> RequestBuilder {
    network.call(Method::POST, "/audio/speech").json(body)
}

/// The output of a job: as many samples of this level, 16,000 per second.
fn sound(count: usize, level: i16) -> Outcome {
    let spec = hound::WavSpec { channels: 1, sample_rate: 16_000, bits_per_sample: 16, sample_format: hound::SampleFormat::Int };
    let mut file = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut file, spec).expect("a writer");
    (0..count).for_each(|_| writer.write_sample(level).expect("written"));
    writer.finalize().expect("ended");
    let audio = STANDARD.encode(file.into_inner());
    finished(json!({"audio": audio, "sample_rate": 16_000, "seconds": count as f64 / 16_000.0}))
}

async fn end(island: &Island, assignment: &Assignment, outcome: Outcome) {
    island.end(assignment.key, assignment.first_event, outcome).await;
}

/// The samples of a wav file whose header may leave its length open.
fn samples(file: &[u8]) -> Vec<i16> {
    assert_eq!((&file[..4], &file[8..16], &file[36..40]), (&b"RIFF"[..], &b"WAVEfmt "[..], &b"data"[..]));
    file[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

fn media_type(response: &Response) -> &str {
    response.headers()["content-type"].to_str().expect("text")
}

#[tokio::test]
async fn a_text_is_spoken_in_the_voice_and_format_that_are_wanted() {
    let (network, mut island) = start().await;
    for (fields, input, media, begin) in [
        (json!({"voice": "ben"}), json!({"voice": "ben"}), "audio/mpeg", &[0xff, 0xf3][..]),
        (json!({"voice": "alloy", "response_format": "wav"}), json!({"voice": "anna"}), "audio/wav", b"RIFF"),
        (json!({"voice": {"id": "ash"}, "response_format": "opus"}), json!({"voice": "ben"}), "audio/ogg", b"OggS"),
        (json!({"speed": 1.5, "response_format": "pcm"}), json!({"speed": 1.5}), "audio/pcm", b""),
    ] {
        let mut body = json!({"model": "tts-1", "input": " The sea is calm. "});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let (response, sent) = tokio::join!(speak(&network, &body).send(), async {
            let assignment = island.take().await;
            end(&island, &assignment, sound(1600, 1000)).await;
            assignment.input
        });
        let mut expected = json!({"text": "The sea is calm."});
        expected.as_object_mut().expect("an object").extend(input.as_object().expect("an object").clone());
        assert_eq!(sent, expected, "{fields}");
        let response = response.expect("an answer");
        assert_eq!((response.status().as_u16(), media_type(&response)), (200, media), "{fields}");
        let file = response.bytes().await.expect("a body");
        assert_eq!(&file[..begin.len()], begin, "{fields}");
        match media {
            "audio/wav" => {
                let read = hound::WavReader::new(Cursor::new(&file)).expect("a wav file");
                assert_eq!((read.spec().sample_rate, read.duration()), (16_000, 1600));
                assert_eq!(samples(&file), [1000; 1600]);
            }
            "audio/pcm" => assert_eq!(file.len(), 2 * 2400, "a tenth of a second of 24,000 samples"),
            _ => assert!(file.len() > 400, "{} bytes", file.len()),
        }
    }
}

#[tokio::test]
async fn the_first_part_of_a_long_text_is_sent_while_the_rest_is_spoken() {
    let (network, mut island) = start().await;
    let text = sentences(30);
    let request = speak(&network, &json!({"model": "plain", "input": text, "response_format": "wav"}));
    let (response, (first, rest)) = tokio::join!(request.send(), async {
        let [first, second] = pieces(&mut island, &text).await;
        end(&island, &first, sound(1600, 1000)).await;
        (first, second)
    });
    let length = |assignment: &Assignment| assignment.input["text"].as_str().map(str::len);
    assert!(length(&first) < length(&rest), "the first piece is short");
    let mut response = response.expect("an answer");
    let mut file = Vec::new();
    while file.len() < 44 + 3200 {
        file.extend(soon("the first part", response.chunk()).await.expect("a part").expect("more"));
    }
    assert_eq!(samples(&file), [1000; 1600]);
    drop(response);
    // What nobody receives is not spoken. The part behind it may have been assigned meanwhile, and be stopped first.
    while island.cancelled().await.key != rest.key {}
}

#[tokio::test]
async fn sounds_follow_in_the_order_of_the_text_whatever_ends_first() {
    let (network, mut island) = start().await;
    let text = sentences(20);
    let body = json!({"model": "plain", "input": text, "response_format": "pcm", "stream_format": "sse"});
    let (response, spoken) = tokio::join!(speak(&network, &body).send(), async {
        let [first, second] = pieces(&mut island, &text).await;
        end(&island, &second, sound(1600, 2000)).await;
        end(&island, &first, sound(1600, 1000)).await;
        format!("{} {}", first.input["text"].as_str().expect("text"), second.input["text"].as_str().expect("text"))
    });
    assert_eq!(spoken, text.trim());
    let response = response.expect("an answer");
    assert_eq!(media_type(&response), "text/event-stream");
    let events: Vec<Value> = Events::of(response).rest().await.iter().map(Event::json).collect();
    let (done, parts) = events.split_last().expect("events");
    assert_eq!(done["type"], "speech.audio.done");
    assert!(done["usage"]["total_tokens"].is_u64(), "{done}");
    let sounds = parts.iter().map(|part| STANDARD.decode(part["audio"].as_str().expect("a sound")).expect("base64"));
    let all = sounds.collect::<Vec<_>>().concat();
    let levels: Vec<i16> = all.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    assert_eq!(levels.len(), 2400 + 3600 + 2400, "two sounds and the pause between them");
    assert!((980..1020).contains(&levels[1200]) && (1980..2020).contains(&levels[2400 + 3600 + 1200]), "{levels:?}");
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "each piece is a job");
}

#[tokio::test]
async fn a_failure_ends_the_sound_without_a_regular_end() {
    let (network, mut island) = start().await;
    let failed = || Outcome::failed(Failure::of_job(FailureCode::InvalidInput, "the model cannot speak this"));
    let body = json!({"model": "plain", "input": "Hm.", "response_format": "wav"});
    let ((status, error), ()) = tokio::join!(problem(speak(&network, &body)), async {
        let assignment = island.take().await;
        end(&island, &assignment, failed()).await;
    });
    assert_eq!(status, 422, "{error}");

    for (stream_format, is_sse) in [("audio", false), ("sse", true)] {
        let text = sentences(20);
        let body = json!({"model": "plain", "input": text, "response_format": "wav", "stream_format": stream_format});
        let (response, ()) = tokio::join!(speak(&network, &body).send(), async {
            let [first, second] = pieces(&mut island, &text).await;
            end(&island, &first, sound(1600, 1000)).await;
            end(&island, &second, failed()).await;
        });
        let response = response.expect("an answer");
        if is_sse {
            let events = Events::of(response).rest().await;
            let last = events.last().expect("an event").json();
            assert_eq!(last["error"]["message"], "the model cannot speak this", "{last}");
        } else {
            assert!(response.bytes().await.is_err(), "a sound without its end does not look complete");
        }
    }
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9, "only what was spoken is paid");
}

#[tokio::test]
async fn what_cannot_be_spoken_is_refused_with_the_field() {
    let (network, _island) = start().await;
    for (body, status, param) in [
        (json!({"model": "voice", "input": "x", "voice": "carl"}), 422, "voice"),
        (json!({"model": "plain", "input": "x", "speed": 2}), 422, "speed"),
        (json!({"model": "voice", "input": "x", "speed": 9}), 422, "speed"),
        (json!({"model": "voice", "input": "x", "response_format": "aac"}), 422, "response_format"),
        (json!({"model": "voice", "input": ""}), 422, "input"),
        (json!({"model": "voice", "input": " …"}), 422, "input"),
        (json!({"model": "voice", "input": "x".repeat(20_001)}), 422, "input"),
        (json!({"model": "echo", "input": "x"}), 404, "model"),
    ] {
        let (code, error) = problem(speak(&network, &body)).await;
        assert_eq!((code, error["param"].as_str()), (status, Some(param)), "{error}");
    }
    let (_, error) = problem(speak(&network, &json!({"model": "voice", "input": "x", "voice": "carl"}))).await;
    assert_eq!(error["message"], "the Cargo voice has no voice \"carl\"; its voices: anna, ben");
}
