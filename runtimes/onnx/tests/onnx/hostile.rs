//! Broken and malicious models and inputs: each fails with a clear message, and the engine continues.

use std::{collections::BTreeMap, fs, path::PathBuf};

use island_protocol::job::{Failure, FailureCode, Fault};
use island_runtimes_onnx::runtime::Onnx;
use island_runtimes_onnx_fixtures::{Fixture, agree, run_job, settings};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A repository that differs from the fixture's.
struct Mended {
    fixture: Fixture,
    folder: TempDir,
    files: BTreeMap<String, PathBuf>,
}

impl Mended {
    fn of(name: &str) -> Self {
        let fixture = Fixture::named(name);
        Self { files: fixture.files(), fixture, folder: tempfile::tempdir().expect("temporary folder") }
    }

    fn with(mut self, name: &str, bytes: &[u8]) -> Self {
        let path = self.folder.path().join(name.replace('/', "-"));
        fs::write(&path, bytes).expect("write");
        self.files.insert(name.to_owned(), path);
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.files.remove(name).expect("it was there");
        self
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(&self.files[name]).expect("readable")
    }

    async fn load(&self) -> Result<Onnx, Failure> {
        Onnx::load(settings(self.fixture.cargo(&self.fixture.task), self.files.clone()))
            .await
            .map_err(Failure::from)
    }

    /// The reason why it does not load.
    async fn refused(&self) -> String {
        let failure = self.load().await.expect_err("it must not load");
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Job, FailureCode::ModelRejected),
            "{}",
            failure.message
        );
        failure.message
    }
}

const GRAPH: &str = "onnx/model.onnx";

#[tokio::test]
async fn truncated_and_invalid_graphs_are_rejected() {
    let whole = Mended::of("distilbert-sst2").bytes(GRAPH);
    for bytes in [&whole[..whole.len() / 2], &whole[..0], b"no graph".as_slice(), &[0; 4096]] {
        let why = Mended::of("distilbert-sst2").with(GRAPH, bytes).refused().await;
        assert!(why.contains("model.onnx"), "{why}");
    }
}

#[tokio::test]
async fn graphs_that_do_not_fit_their_settings_are_rejected_before_a_job() {
    let changed = |name: &str, file: &str, key: &str, value: Value| {
        let repository = Mended::of(name);
        let mut settings: Value = serde_json::from_slice(&repository.bytes(file)).expect("JSON");
        settings[key] = value;
        repository.with(file, settings.to_string().as_bytes())
    };
    let three = json!({"0": "A", "1": "B", "2": "C"});
    for fixture in ["distilbert-sst2", "bert-ner", "resnet"] {
        let why = changed(fixture, "config.json", "id2label", three.clone()).refused().await;
        assert!(why.starts_with("onnx/model.onnx: logits = ["), "{fixture}: {why}");
        assert!(why.contains("3, not ") && why.contains("config.json"), "{fixture}: {why}");
    }
    let why = changed("bert-rank", "config.json", "id2label", three).refused().await;
    assert!(why.starts_with("config.json: id2label = {"), "{why}");
    let why = changed("wav2vec2", "config.json", "model_type", json!("speech_to_text")).refused().await;
    assert!(why.starts_with("config.json: model_type = \"speech_to_text\""), "{why}");
    let why = changed("t5", "config.json", "model_type", json!("longt5")).refused().await;
    assert!(why.starts_with("config.json: model_type = \"longt5\" is not supported"), "{why}");
    let why = changed("distilbert-sst2", "config.json", "model_type", json!("big_bird")).refused().await;
    assert!(why.starts_with("config.json: attention_type = null is not supported"), "{why}");
    let why = changed("speecht5", "config.json", "num_mel_bins", json!(5000)).refused().await;
    assert!(why.starts_with("config.json: num_mel_bins = 5000"), "{why}");
    // A layer after the pooling of another length than the vectors of tokens.
    let of_other_length = Mended::of("embedding-layers");
    let layers = of_other_length.bytes("onnx/model.onnx");
    let other = Mended::of("bert-ner").bytes("onnx/model.onnx");
    assert_ne!(layers, other);
    let why = of_other_length.with("onnx/model.onnx", &other).refused().await;
    assert!(why.contains("modules.json"), "{why}");
}

/// A number of protobuf.
fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field with a number.
fn count(field: u8, number: usize) -> Vec<u8> {
    [vec![field << 3], varint(number)].concat()
}

/// A field with a message, a text or bytes.
fn part(field: u8, content: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(content.len()), content.to_vec()].concat()
}

/// An input or output of a graph: its name, its type as in `onnx.proto`, and its sizes, 0 for any.
type Tensor = (&'static str, usize, &'static [usize]);

/// A node of a graph: its operation, its inputs and its output.
type Node = (&'static str, &'static [&'static str], &'static str);

/// A graph with a constant `table` of these sizes, whose numbers are all the same.
fn graph(nodes: &[Node], sizes: [usize; 2], input: Tensor, outputs: &[Tensor]) -> Vec<u8> {
    let dimension = |&size: &usize| part(1, &if size > 0 { count(1, size) } else { Vec::new() });
    let tensor = |(name, kind, sizes): Tensor| {
        let shape: Vec<u8> = sizes.iter().flat_map(dimension).collect();
        let kind = part(1, &[count(1, kind), part(2, &shape)].concat());
        [part(1, name.as_bytes()), part(2, &kind)].concat()
    };
    let node = |(operation, inputs, output): &Node| {
        let inputs = inputs.iter().flat_map(|input| part(1, input.as_bytes()));
        let rest = [part(2, output.as_bytes()), part(4, operation.as_bytes())].concat();
        part(1, &inputs.chain(rest).collect::<Vec<_>>())
    };
    let numbers = vec![0x3c; sizes[0] * sizes[1] * 4];
    let table = [count(1, sizes[0]), count(1, sizes[1]), count(2, 1), part(8, b"table"), part(9, &numbers)];
    let parts = [
        nodes.iter().flat_map(node).collect(),
        part(2, b"graph"),
        part(5, &table.concat()),
        part(11, &tensor(input)),
        outputs.iter().flat_map(|&output| part(12, &tensor(output))).collect(),
    ];
    [count(1, 8), part(7, &parts.concat()), part(8, &count(2, 17))].concat()
}

const INT64: usize = 7;
const FLOAT: usize = 1;

/// A graph that gives first its token ids, and then these outputs.
fn passing_ids_on(width: usize, outputs: &[Tensor]) -> Vec<u8> {
    let nodes: [Node; 2] =
        [("Identity", &["input_ids"], "ids"), ("Gather", &["table", "input_ids"], "vectors")];
    let ids: Tensor = ("ids", INT64, &[0, 0]);
    graph(&nodes, [126, width], ("input_ids", INT64, &[0, 0]), &[&[ids], outputs].concat())
}

#[tokio::test]
async fn an_embedding_is_never_made_of_token_ids() {
    let with = |graph: &[u8]| Mended::of("minilm").with(GRAPH, graph);
    let why = with(&passing_ids_on(24, &[])).refused().await;
    let outputs = "it gives ids (int64, [?, ?])";
    let missing = "no output has a vector of 24 numbers, as config.json states, for each token or text";
    assert_eq!(why, format!("{GRAPH}: {missing}; {outputs}"));
    let why = with(&passing_ids_on(16, &[("vectors", FLOAT, &[0, 0, 16])])).refused().await;
    assert_eq!(why, format!("{GRAPH}: {missing}; {outputs}, vectors (float32, [?, ?, 16])"));
    let sound = with(&passing_ids_on(24, &[("vectors", FLOAT, &[0, 0, 24])]));
    let engine = sound.load().await.expect("its second output is a vector for each token");
    let input = json!({"input": "the ship"});
    let output = run_job(&engine, sound.fixture.cargo(&sound.fixture.task), input).await.expect("an answer");
    assert_eq!(output["dimensions"], 24);
}

#[tokio::test]
async fn lines_have_the_size_that_a_graph_states() {
    let nodes: [Node; 3] = [
        ("GlobalAveragePool", &["x"], "mean"),
        ("Flatten", &["mean"], "flat"),
        ("MatMul", &["flat", "table"], "turned"),
    ];
    // PP-LCNet, which is that of PP-OCRv5.
    let turner = graph(&nodes, [3, 2], ("x", FLOAT, &[0, 3, 80, 160]), &[("turned", FLOAT, &[0, 2])]);
    let with_turner = Mended::of("pp-ocr").with("cls.onnx", &turner);
    let engine = with_turner.load().await.expect("it loads");
    let case = &with_turner.fixture.cases[0];
    let output = with_turner.fixture.answer(&engine, case).await.expect("an answer");
    assert!(agree(&with_turner.fixture, case, &output).is_empty(), "{output}");
}

#[tokio::test]
async fn models_that_fail_in_every_job_are_rejected() {
    let why = Mended::of("pp-ocr").with("ppocr_keys_v1.txt", b"a\nb\n").refused().await;
    assert!(why.starts_with("a trial job failed: the graph has "), "{why}");
    let labels_tokens = Mended::of("bert-ner").bytes(GRAPH);
    let three = json!({"id2label": {"0": "A", "1": "B", "2": "C"}, "model_type": "bert"});
    let why = Mended::of("distilbert-sst2")
        .with(GRAPH, &labels_tokens)
        .with("config.json", three.to_string().as_bytes())
        .refused()
        .await;
    assert!(why.starts_with("a trial job failed: the graph gives "), "{why}");
}

#[tokio::test]
async fn graphs_that_need_other_inputs_than_their_task_are_rejected_before_a_job() {
    const ENCODER: &str = "onnx/encoder_model.onnx";
    const MERGED: &str = "onnx/decoder_model_merged.onnx";
    for (fixture, graph, other, of_other, input) in [
        // Images.
        ("segformer", GRAPH, "bert-ner", GRAPH, "input_ids"),
        ("trocr", ENCODER, "marian-split", ENCODER, "input_ids"),
        ("sam", "onnx/vision_encoder.onnx", "bert-ner", GRAPH, "input_ids"),
        ("pp-ocr", "ch_PP-OCRv4_det_infer.onnx", "bert-ner", GRAPH, "input_ids"),
        // Sound.
        ("wav2vec2", GRAPH, "bert-ner", GRAPH, "input_ids"),
        ("whisper", ENCODER, "marian-split", ENCODER, "input_ids"),
        ("moonshine", ENCODER, "vit", GRAPH, "pixel_values"),
        ("mms-tts", GRAPH, "vit", GRAPH, "pixel_values"),
        ("speecht5", "onnx/decoder_postnet_and_vocoder.onnx", "vit", GRAPH, "pixel_values"),
        ("supertonic", "onnx/vocoder.onnx", "vit", GRAPH, "pixel_values"),
        // Texts.
        ("marian-merged", ENCODER, "vit", GRAPH, "pixel_values"),
        ("marian-merged", MERGED, "vit", GRAPH, "pixel_values"),
        ("distilbert-sst2", GRAPH, "vit", GRAPH, "pixel_values"),
    ] {
        let bytes = Mended::of(other).bytes(of_other);
        let why = Mended::of(fixture).with(graph, &bytes).refused().await;
        assert_eq!(why, format!("{graph} needs the input {input}, which this task lacks"), "{fixture}");
    }
}

#[tokio::test]
async fn settings_of_another_kind_are_rejected_by_file_key_and_value() {
    for (fixture, file, key, value) in [
        ("distilbert-sst2", "config.json", "id2label", json!(["NEGATIVE", "POSITIVE"])),
        ("distilbert-sst2", "config.json", "max_position_embeddings", json!("512")),
        ("distilbert-sst2", "tokenizer_config.json", "pad_token", json!(0)),
        ("distilbert-sst2", "tokenizer_config.json", "model_max_length", json!(-1)),
        ("whisper", "generation_config.json", "lang_to_id", json!([1])),
        ("whisper", "generation_config.json", "max_initial_timestamp_index", json!("50")),
        ("whisper", "preprocessor_config.json", "chunk_length", json!("30")),
        ("vit", "preprocessor_config.json", "image_processor_type", json!(5)),
        ("wav2vec2", "config.json", "conv_stride", json!(320)),
        ("mms-tts", "tokenizer_config.json", "language", json!(["deu"])),
        ("speecht5", "config.json", "max_text_positions", json!("600")),
    ] {
        let repository = Mended::of(fixture);
        let mut settings: Value = serde_json::from_slice(&repository.bytes(file)).expect("JSON");
        settings[key] = value.clone();
        let why = repository.with(file, settings.to_string().as_bytes()).refused().await;
        assert_eq!(why, format!("{file}: {key} = {value} is not supported"), "{fixture}");
    }
    let list = Mended::of("distilbert-sst2").with("tokenizer_config.json", b"[]").refused().await;
    assert_eq!(list, "tokenizer_config.json: [] is not a JSON object");
}

#[tokio::test]
async fn missing_files_are_named() {
    let repository = || Mended::of("distilbert-sst2");
    assert!(repository().without("tokenizer.json").refused().await.contains("tokenizer.json"));
    assert!(repository().without(GRAPH).refused().await.contains("graph model"));
    assert!(repository().with("tokenizer.json", b"{}").refused().await.contains("tokenizer.json"));
    assert!(repository().with("config.json", b"{").refused().await.contains("config.json"));
}

#[tokio::test]
async fn nan_weights_are_an_error_of_the_model() {
    let repository = Mended::of("distilbert-sst2");
    let mut graph = repository.bytes(GRAPH);
    // In the middle of the largest tensor, the embeddings: with every bit set a number is NaN.
    let half = graph.len() / 2;
    graph[half..half + 4096].fill(0xff);
    let repository = repository.with(GRAPH, &graph);
    let failure = match repository.load().await {
        Ok(engine) => run_job(
            &engine,
            repository.fixture.cargo("text-classification"),
            json!({ "text": "the film was good and the train was bad" }),
        )
        .await
        .expect_err("no number"),
        Err(failure) => failure,
    };
    assert_eq!(failure.code, FailureCode::ModelRejected, "{}", failure.message);
}

/// An error of the input, after which the same engine answers the next one.
async fn refuses(name: &str, bad: &[Value]) {
    let fixture = Fixture::named(name);
    let engine = fixture.load(&fixture.task).await.expect("loads");
    for input in bad {
        let at: String = input.to_string().chars().take(80).collect();
        let Err(failure) = run_job(&engine, fixture.cargo(&fixture.task), input.clone()).await else {
            panic!("{name}: {at} was answered");
        };
        let known = [FailureCode::InvalidInput, FailureCode::ContextLengthExceeded];
        assert!(
            failure.fault == Fault::Job && known.contains(&failure.code),
            "{at}: {}: {}",
            failure.code,
            failure.message
        );
        assert!(failure.message.len() < 400, "{at}: {}", failure.message);
    }
    let case = fixture.cases.iter().find(|case| fixture.task_of(case) == fixture.task).expect("a case");
    let output = fixture.answer(&engine, case).await.expect("the next job runs");
    assert!(agree(&fixture, case, &output).is_empty());
}

#[tokio::test]
async fn unreadable_texts_are_rejected() {
    let long = "the film was good. ".repeat(11_000);
    assert!(long.len() > 200_000);
    let texts = [
        json!({}),
        json!({ "text": "" }),
        json!({ "text": " \n\t" }),
        json!({ "text": 5 }),
        json!({ "text": long }),
    ];
    refuses("distilbert-sst2", &texts).await;
    refuses("marian-merged", &texts).await;
    refuses("bert-fill-mask", &[json!({ "text": "no gap" }), json!({ "text": "[MASK] and [MASK]" })]).await;
    let labels = [
        json!({ "text": "x", "labels": [] }),
        json!({ "text": "x", "labels": [""] }),
        json!({ "text": "x", "labels": ["a"], "hypothesis_template": "none" }),
    ];
    refuses("bart-mnli", &labels).await;
    refuses(
        "minilm",
        &[
            json!({ "input": [] }),
            json!({ "input": "x", "dimensions": 0 }),
            json!({ "input": "x", "dimensions": 99_999 }),
            json!({ "input": "x", "prompt": "none" }),
        ],
    )
    .await;
    refuses(
        "bert-ner",
        &[json!({ "text": "x", "labels": ["ship"] }), json!({ "text": "x", "threshold": 2 })],
    )
    .await;
    refuses("gliner", &[json!({ "text": "x" }), json!({ "text": "x", "labels": [] })]).await;
    refuses(
        "nllb",
        &[json!({ "text": "x" }), json!({ "text": "x", "source": "xxx_Xxxx", "target": "fra_Latn" })],
    )
    .await;
    let wishes = [
        json!({ "text": "x", "num_beams": 0 }),
        json!({ "text": "x", "num_beams": 1000 }),
        json!({ "text": "x", "temperature": -1, "do_sample": true }),
    ];
    refuses("bart-cnn", &wishes).await;
    refuses("mms-tts", &[json!({ "text": "🙂🙂" }), json!({ "text": "a".repeat(5001) })]).await;
}

#[tokio::test]
async fn entities_are_found_in_texts_of_any_length() {
    let fixture = Fixture::named("bert-ner");
    let engine = fixture.load("token-classification").await.expect("loads");
    let short = "Angela works for Siemens in New York. ";
    let input = |text: String| json!({ "text": text, "aggregation": "none" });
    let one = run_job(&engine, fixture.cargo("token-classification"), input(short.to_owned()))
        .await
        .expect("found");
    let many = run_job(&engine, fixture.cargo("token-classification"), input(short.repeat(60)))
        .await
        .expect("found");
    let ends = |output: &Value| {
        output["entities"].as_array().expect("entities").iter().map(|one| one["end"].as_u64()).max()
    };
    assert!(ends(&many) > ends(&one), "no entity was found beyond the model's maximum length");
    let starts: Vec<u64> = many["entities"]
        .as_array()
        .expect("entities")
        .iter()
        .filter_map(|one| one["start"].as_u64())
        .collect();
    assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "each token is classified once");
}

/// The header of a wav file with `bytes` bytes of samples.
fn wav(bytes: u32, data: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let mut file = b"RIFF".to_vec();
    file.extend(36_u32.saturating_add(bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(data);
    STANDARD.encode(file)
}

#[tokio::test]
async fn undecodable_audio_is_rejected() {
    let bad = [
        json!({ "audio": "" }),
        json!({ "audio": "not base64 at all!" }),
        json!({ "audio": "bm8gc291bmQ=" }),
        json!({ "audio": "https://example.com/a.wav" }),
        json!({ "audio": wav(0, b"") }),
        json!({ "audio": wav(u32::MAX, b"") }),
        json!({ "audio": wav(3200, &[0; 3200]), "language": "xx" }),
        json!({ "audio": wav(3200, &[0; 3200]), "timestamps": "word" }),
    ];
    refuses("whisper", &bad).await;
    refuses("wav2vec2", &bad[..6]).await;
    // An hour and a second of silence: 16 kHz, in the minimum number of bytes.
    let fixture = Fixture::named("wav2vec2");
    let engine = fixture.load(&fixture.task).await.expect("loads");
    let seconds = 3601_u32;
    let long = wav(seconds * 32_000, &vec![0; seconds as usize * 32_000]);
    let failure =
        run_job(&engine, fixture.cargo(&fixture.task), json!({ "audio": long })).await.expect_err("too long");
    assert_eq!(failure.code, FailureCode::InvalidInput, "{}", failure.message);
}
