//! Malicious repositories and excessive inputs: each is rejected with a reason before any work.

use std::{
    collections::BTreeMap,
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    path::PathBuf,
};

use candle_core::Device;
use island_protocol::job::{Failure, Fault};
use island_runtimes_diffusers::{
    model::{Model, On},
    repository::Repository,
    request::{Adapter, Request},
    runtime::Diffusers,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Fixture, run_job};

const UNET: &str = "unet/diffusion_pytorch_model.safetensors";

/// A copy of a fixture's repository with changes.
struct RepositoryCopy {
    folder: TempDir,
    files: BTreeMap<String, PathBuf>,
}

impl RepositoryCopy {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), files: Fixture::named("sd15").files() }
    }

    fn write(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name.replace('/', "-"));
        fs::write(&path, bytes).expect("written");
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

    /// A settings file with one setting changed.
    fn set(self, name: &str, key: &str, value: Value) -> Self {
        let mut settings: Value = serde_json::from_slice(&self.bytes(name)).expect("JSON");
        settings[key] = value;
        self.write(name, settings.to_string())
    }

    fn load(&self) -> Result<Model, Failure> {
        Model::load(Repository::new(self.files.clone()), &Value::Null, &On::Processor, None)
            .map_err(Failure::from)
    }

    /// The reason of the rejection.
    fn why(&self) -> String {
        let failure = self.load().expect_err("refused");
        assert_ne!(failure.fault, Fault::Host, "{}", failure.message);
        failure.message
    }
}

/// A file of one tensor with a given header.
fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn unchanged_copy_loads() {
    assert!(RepositoryCopy::new().load().is_ok());
}

#[test]
fn other_file_formats_are_named() {
    for (start, what) in [
        (b"PK\x03\x04aaaabbbbcccc".as_slice(), "archive of PyTorch"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00", "pickle"),
        (b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00", "GGUF"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1", "pointer"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00", "compressed"),
        (b"", "0 bytes"),
        (b"1234", "4 bytes"),
    ] {
        let why = RepositoryCopy::new().write(UNET, start).why();
        assert!(why.contains(what) && why.contains(UNET), "{why}");
    }
    let why = RepositoryCopy::new().without(UNET).write("unet/diffusion_pytorch_model.bin", b"PK").why();
    assert!(why.contains("may hold programs"), "{why}");
}

#[test]
fn headers_out_of_range_cost_nothing() {
    let whole = |shape: &str, offsets: &str| {
        safetensors(
            &format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#),
            &[0; 16],
        )
    };
    for (bytes, what) in [
        ([u64::MAX.to_le_bytes().as_slice(), b"{}"].concat(), "claims a header of 18446744073709551615"),
        ([(1_u64 << 32).to_le_bytes().as_slice(), b"{}"].concat(), "claims a header of 4294967296"),
        (whole("[1152921504606846976, 16]", "[0, 16]"), "are not its shape"),
        (whole("[4]", "[0, 99999999999]"), "outside"),
        (whole("[4]", "[16, 0]"), "outside"),
        (whole("[5]", "[0, 16]"), "are not its shape"),
        (whole("[3]", "[0, 12]"), "belong to no tensor"),
        (whole("[3]", "[4, 16]"), "overlap or leave gaps"),
        (whole("[-1]", "[0, 16]"), "invalid header"),
        (safetensors(r#"{"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}}"#, &[0]), "F8"),
        (safetensors("{\"a\":", &[]), "invalid header"),
        (safetensors(&"[".repeat(100_000), &[]), "invalid header"),
        (safetensors("{}", &[]), "lacks the tensor"),
    ] {
        let why = RepositoryCopy::new().write(UNET, &bytes).why();
        assert!(why.contains(what), "{what}: {why}");
    }
    // A sparse file of more bytes than there is memory.
    let spoiled = RepositoryCopy::new();
    let path = spoiled.folder.path().join("huge");
    let mut file = fs::File::create(&path).expect("a file");
    let length = 1_u64 << 40;
    let header = format!(r#"{{"a":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{length}]}}}}"#, length / 4);
    file.write_all(&safetensors(&header, &[])).expect("written");
    let end = file.stream_position().expect("a place") + length;
    file.seek(SeekFrom::Start(end - 1)).expect("sparse");
    file.write_all(&[0]).expect("written");
    let mut files = spoiled.files.clone();
    files.insert(UNET.to_owned(), path);
    let failure = Model::load(Repository::new(files), &Value::Null, &On::Processor, Some(1 << 30))
        .expect_err("refused");
    assert!(failure.message().contains("this Island lends 1024 MB"), "{failure}");
}

#[test]
fn nan_weights_are_rejected_when_read() {
    let spoiled = RepositoryCopy::new();
    let mut bytes = spoiled.bytes(UNET);
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&[0x00, 0x7e]);
    assert!(spoiled.write(UNET, &bytes).why().contains("NaN or infinite numbers"));
    let cut = RepositoryCopy::new();
    let bytes = cut.bytes(UNET);
    assert!(cut.write(UNET, &bytes[..bytes.len() / 2]).why().contains("lies outside"));
}

#[test]
fn invalid_settings_are_named() {
    let mut wrong = Vec::new();
    for (file, key, value, what) in [
        ("model_index.json", "_class_name", json!("FluxPipeline"), "FluxPipeline"),
        ("unet/config.json", "block_out_channels", json!([1_000_000_000, 64]), "unet"),
        ("unet/config.json", "block_out_channels", json!([]), "unet"),
        ("unet/config.json", "norm_num_groups", json!(0), "unet"),
        ("unet/config.json", "norm_num_groups", json!(7), "unet"),
        ("unet/config.json", "layers_per_block", json!(4_000_000_000_u64), "unet"),
        ("unet/config.json", "attention_head_dim", json!(0), "unet"),
        ("unet/config.json", "in_channels", json!(5), "unet"),
        ("unet/config.json", "act_fn", json!("mish"), "unet"),
        ("unet/config.json", "norm_eps", json!("small"), "unet/config.json: norm_eps = \"small\" is not"),
        ("vae/config.json", "block_out_channels", json!([0]), "vae"),
        ("vae/config.json", "scaling_factor", json!(0.0), "vae"),
        ("vae/config.json", "latent_channels", json!(1_000_000), "vae"),
        (
            "text_encoder/config.json",
            "num_hidden_layers",
            json!(4_000_000_000_u64),
            "text_encoder/config.json: num_hidden_layers = 4000000000 is not supported",
        ),
        ("text_encoder/config.json", "num_attention_heads", json!(0), "num_attention_heads = 0 is not"),
        ("text_encoder/config.json", "hidden_size", json!("32"), "config.json: hidden_size = \"32\" is not"),
        (
            "tokenizer/tokenizer_config.json",
            "model_max_length",
            json!("77"),
            "model_max_length = \"77\" is not",
        ),
        (
            "scheduler/scheduler_config.json",
            "beta_start",
            json!("low"),
            "beta_start = \"low\" is not supported",
        ),
        ("text_encoder/config.json", "vocab_size", json!(3), "its settings require [3, 32]"),
        ("scheduler/scheduler_config.json", "num_train_timesteps", json!(0), "timesteps"),
        ("scheduler/scheduler_config.json", "num_train_timesteps", json!(4_000_000_000_u64), "timesteps"),
        ("scheduler/scheduler_config.json", "beta_end", json!(7.0), "beta_end = 7.0 is not supported"),
        (
            "model_index.json",
            "scheduler",
            json!(["diffusers", "MagicScheduler"]),
            "\"MagicScheduler\" is not supported",
        ),
        ("model_index.json", "scheduler", json!([null, null]), "scheduler = [null,null] is not supported"),
        ("model_index.json", "image_encoder", json!(["transformers", "CLIPVisionModel"]), "image_encoder = "),
        ("model_index.json", "unet_2", json!([null, null]), "unet_2 = [null,null] is not supported"),
        (
            "scheduler/scheduler_config.json",
            "prediction_type",
            json!("the future"),
            "prediction_type = \"the future\"",
        ),
        (
            "scheduler/scheduler_config.json",
            "thresholding",
            json!(true),
            "thresholding = true is not supported",
        ),
        ("scheduler/scheduler_config.json", "shift", json!(3.0), "shift = 3.0 is not supported"),
        (
            "unet/config.json",
            "mid_block_type",
            Value::Null,
            "unet/config.json: mid_block_type = null is not supported",
        ),
        ("unet/config.json", "num_class_embeds", json!(10), "num_class_embeds = 10 is not supported"),
        ("vae/config.json", "_class_name", json!("AutoencoderTiny"), "_class_name = \"AutoencoderTiny\""),
        (
            "text_encoder/config.json",
            "architectures",
            json!(["T5EncoderModel"]),
            "architectures = [\"T5EncoderModel\"]",
        ),
        (
            "tokenizer/tokenizer_config.json",
            "tokenizer_class",
            json!("BloomZ"),
            "tokenizer/tokenizer_config.json: tokenizer_class",
        ),
    ] {
        match RepositoryCopy::new().set(file, key, value.clone()).load() {
            Ok(_) => wrong.push(format!("{file}: {key} = {value} was taken")),
            Err(failure) if failure.fault != Fault::Host && failure.message.contains(what) => {}
            Err(failure) => wrong.push(format!("{file}: {key} = {value}: {}", failure.message)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for file in
        ["model_index.json", "unet/config.json", "tokenizer/vocab.json", "scheduler/scheduler_config.json"]
    {
        for bytes in [b"".as_slice(), b"{", b"[]", b"\xff\xfe", &b"[".repeat(100_000)] {
            let why = RepositoryCopy::new().write(file, bytes).why();
            assert!(why.contains(file) || why.contains("tokenizer"), "{file}: {why}");
        }
        let why = RepositoryCopy::new().without(file).why();
        assert!(why.contains("lacks the file"), "{why}");
    }
}

#[test]
fn invalid_adapters_are_rejected() {
    for (bytes, what) in [
        (b"PK\x03\x04aaaabbbbcccc".to_vec(), "archive of PyTorch"),
        (safetensors("{}", &[]), "changes no layer"),
        (
            safetensors(
                r#"{"nothing.lora_A.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#,
                &[0; 4],
            ),
            "which this model lacks",
        ),
    ] {
        let spoiled = RepositoryCopy::new().write("bad.safetensors", &bytes);
        let model = spoiled.load().expect("loads");
        let adapter = Adapter { name: "bad".to_owned(), scale: 1.0 };
        let failure = model.adapters(&[adapter]).expect_err("refused");
        assert!(failure.message().contains(what), "{failure}");
    }
}

#[test]
fn requests_beyond_the_memory_limit_are_rejected_before_any_work() {
    let fixture = Fixture::named("sd15");
    let limit = Some(300 << 20);
    let model =
        Model::load(Repository::new(fixture.files()), &Value::Null, &On::Processor, limit).expect("it fits");
    let large = json!({ "prompt": "x", "width": 2048, "height": 2048 });
    let request = Request::read(&large, &model.defaults()).expect("it makes sense");
    let failure = model.need(&request).tiles(model.weights_bytes(), limit).expect_err("refused");
    assert!(failure.message().contains("needs") && failure.message().contains("lends 300 MB"), "{failure}");
}

/// Weights so large that the numbers overflow: no black image is returned.
#[tokio::test(flavor = "multi_thread")]
async fn overflow_fails_the_job() {
    let fixture = Fixture::named("sd15");
    let spoiled = RepositoryCopy::new();
    let bytes = spoiled.bytes(UNET);
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).expect("tensors");
    let huge: std::collections::HashMap<_, _> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let wide = tensor.to_dtype(candle_core::DType::F32).expect("wide");
            (name, wide.affine(1e30, 0.0).expect("huge"))
        })
        .collect();
    let path = spoiled.folder.path().join("huge.safetensors");
    candle_core::safetensors::save(&huge, &path).expect("saved");
    let mut settings = fixture.settings();
    settings.files.insert(UNET.to_owned(), path);
    let engine = Diffusers::load(settings).await.expect("it loads: each number is one");
    let input = json!({ "prompt": "x", "steps": 2, "width": 32, "height": 32 });
    let (output, said) = run_job(&engine, fixture.cargo(), input).await;
    let failure = output.expect_err("refused");
    assert!(failure.message.contains("overflowed"), "{}", failure.message);
    assert!(!said.iter().any(|event| matches!(event, island_protocol::event::AttemptEvent::Image(_))));
}

#[test]
fn an_adapter_that_is_named_several_times_is_in_memory_once() {
    let model = Fixture::named("sd15").model(&On::Processor).expect("a model");
    let named = |names: &[&str]| -> Vec<Adapter> {
        names.iter().map(|name| Adapter { name: (*name).to_owned(), scale: 0.25 }).collect()
    };
    let twice = named(&["sd15-peft", "loras/sd15-peft.safetensors"]);
    let adapters = model.adapters(&twice).expect("one file");
    assert!(adapters.layers().count() > 0);
    for layer in adapters.layers() {
        let scales: Vec<f32> = adapters.of(layer).iter().map(|delta| delta.scale).collect();
        let alone = model.adapters(&named(&["sd15-peft"])).expect("the same file");
        assert_eq!(scales, [2.0 * alone.of(layer)[0].scale], "{layer}");
    }
    let bytes = |names: &[&str]| model.bytes_with(&named(names)).expect("known files");
    assert_eq!(bytes(&[]), model.weights_bytes());
    let once = bytes(&["sd15-peft"]);
    assert!(once > model.weights_bytes(), "adapters take memory, too");
    assert_eq!(bytes(&["sd15-peft", "sd15-peft.safetensors"]), once);
}
