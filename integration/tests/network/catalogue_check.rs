//! `island-coordinator catalogue check`: entries, and the models whose files are at hand, with every engine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use island_integration::network::program;
use serde_json::Value;
use tempfile::TempDir;

/// Engines, and for each a fixture's entry and the folder of its model.
const MODELS: [(&str, &str, &str); 3] = [
    ("onnx", "tiny-onnx-text-classification", "runtimes/onnx/tests/fixtures/distilbert-sst2/model"),
    ("coreml", "tiny-coreml-image-classification", "runtimes/coreml/tests/fixtures/resnet/model"),
    ("diffusers", "tiny-paint", "runtimes/diffusers/tests/fixtures/sd15/model"),
];
const GGUF: &str = "cargos/models/island-tiny-chat.gguf";

fn source(path: &str) -> PathBuf {
    island_testing::workspace().join(path)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let path = entry.expect("readable").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// A catalogue whose files are on a hub, and a folder with copies of them.
struct AtHand {
    folder: TempDir,
}

impl AtHand {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (catalogue, files) = (folder.path().join("cargos"), folder.path().join("files"));
        for (engine, slug, model) in MODELS {
            copy(&source(&format!("cargos/{engine}/tasks")), &catalogue.join(engine).join("tasks"));
            let entry =
                fs::read_to_string(source(&format!("cargos/fixtures/{slug}.toml"))).expect("an entry");
            let local = format!("url = \"file://../{model}\"");
            assert!(entry.contains(&local), "{slug}");
            let entry = entry.replace(&local, "url = \"hf://o/r\"");
            fs::write(catalogue.join(engine).join(format!("{slug}.toml")), entry).expect("written");
            copy(&source(model), &files.join(slug));
        }
        copy(&source("cargos/llmcpp/tasks"), &catalogue.join("llmcpp/tasks"));
        let entry = fs::read_to_string(source("cargos/llm-chat.toml")).expect("an entry");
        let address = |line: &str| match line.split_once('=').map(|(key, _)| key.trim()) {
            Some("model_url") => "model_url = \"hf://o/r:tiny.gguf\"".to_owned(),
            Some("model_hash" | "model_size_bytes") => String::new(),
            _ => line.to_owned(),
        };
        let entry: Vec<String> = entry.lines().map(address).collect();
        fs::write(catalogue.join("llm-chat.toml"), entry.join("\n")).expect("written");
        fs::create_dir_all(files.join("llm-chat")).expect("a folder");
        fs::copy(source(GGUF), files.join("llm-chat/tiny.gguf")).expect("copied");
        Self { folder }
    }

    fn file(&self, slug: &str, name: &str) -> PathBuf {
        self.folder.path().join("files").join(slug).join(name)
    }

    /// Sets a key of a file.
    fn set(&self, slug: &str, name: &str, key: &str, value: Value) {
        let path = self.file(slug, name);
        let mut content: Value = serde_json::from_slice(&fs::read(&path).expect("readable")).expect("JSON");
        content[key] = value;
        fs::write(path, content.to_string()).expect("written");
    }

    fn check(&self, slugs: &[&str]) -> (bool, String) {
        let mut command = Command::new(program("island-coordinator"));
        command.arg("--catalogue").arg(self.folder.path().join("cargos")).args(["catalogue", "check"]);
        command.args(slugs).arg("--files").arg(self.folder.path().join("files"));
        said(&command.output().expect("it runs"))
    }
}

fn said(output: &Output) -> (bool, String) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn models_whose_files_are_part_of_the_catalogue_are_loaded() {
    let slugs = MODELS.map(|(_, slug, _)| slug);
    let mut command = Command::new(program("island-coordinator"));
    command.arg("--catalogue").arg(source("cargos")).args(["--fixtures", "catalogue", "check"]);
    command.args(slugs).args(["llm-chat", "sim-chat", "sentiment"]);
    let (is_good, text) = said(&command.output().expect("it runs"));
    assert!(is_good, "{text}");
    for slug in slugs.into_iter().chain(["llm-chat"]) {
        assert!(text.contains(&format!("{slug}: the model loads: ")), "{slug}: {text}");
    }
    assert!(text.contains("sim-chat: the entry is valid; it has no model"), "{text}");
    assert!(text.contains("sentiment: the entry is valid; its files are not at hand"), "{text}");
    assert!(text.contains("6 Cargos checked, 0 refused"), "{text}");
}

#[test]
fn what_an_engine_does_not_support_is_named_without_a_job() {
    let files = AtHand::new();
    let (is_good, text) = files.check(&[]);
    assert!(is_good && text.contains("4 Cargos checked, 0 refused"), "{text}");
    let [onnx, coreml, diffusers] = MODELS.map(|(_, slug, _)| slug);
    files.set(onnx, "tokenizer_config.json", "split_special_tokens", true.into());
    files.set(diffusers, "unet/config.json", "num_class_embeds", 10.into());
    fs::write(files.file(coreml, "Model.mlpackage/Data/com.apple.CoreML/model.mlmodel"), b"\xff")
        .expect("written");
    fs::write(files.file("llm-chat", "tiny.gguf"), b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff")
        .expect("written");
    let (is_good, text) = files.check(&[]);
    assert!(!is_good, "{text}");
    for reason in [
        format!("{onnx}: REFUSED: tokenizer_config.json: split_special_tokens = true is not supported"),
        format!("{diffusers}: REFUSED: unet/config.json: num_class_embeds = 10 is not supported"),
        format!("{coreml}: REFUSED: "),
        "llm-chat: REFUSED: ".to_owned(),
        "4 Cargos checked, 4 refused".to_owned(),
    ] {
        assert!(text.contains(&reason), "{reason}: {text}");
    }
    fs::remove_file(files.file(onnx, "tokenizer.json")).expect("removed");
    let (is_good, text) = files.check(&[onnx]);
    assert!(!is_good && text.contains("REFUSED: files are missing: tokenizer.json"), "{text}");
    let (is_good, text) = files.check(&["no-such-cargo"]);
    assert!(!is_good && text.contains("there is no Cargo no-such-cargo"), "{text}");
}

#[test]
fn a_worker_checks_a_folder_that_no_entry_names() {
    let folder = source(MODELS[0].2);
    let check = |task: &str| {
        let mut command = Command::new(program("island-worker-onnx"));
        command.arg("--check").arg(&folder).args(["--task", task]);
        command.output().expect("it runs")
    };
    let (is_good, text) = said(&check("text-classification"));
    assert!(is_good && text.contains("the model loads: ONNX Runtime"), "{text}");
    let refused = check("ocr");
    assert_eq!(refused.status.code(), Some(80));
    assert!(!refused.stdout.is_empty());
    let gguf = Command::new(program("island-worker-llmcpp")).arg("--check").arg(source(GGUF)).output();
    let (is_good, text) = said(&gguf.expect("it runs"));
    assert!(is_good, "{text}");
}

/// The schemas in the files of a folder, those of tasks and those that entries have themselves.
fn schemas(folder: &Path, found: &mut Vec<(String, Value)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() && !path.ends_with("programs") {
            schemas(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(&path).expect("readable");
            let file: Value = toml::from_str(&text).expect("TOML");
            for name in ["input_schema", "output_schema"] {
                let schema = file.get(name).cloned();
                found.extend(schema.map(|schema| (format!("{} {name}", path.display()), schema)));
            }
        }
    }
}

/// Counts the parts of a schema that are described as base64; `unmarked` gets those without the keyword.
fn described(schema: &Value, place: &str, unmarked: &mut Vec<String>) -> usize {
    let mut count = 0;
    if schema["description"].as_str().is_some_and(|text| text.to_lowercase().contains("base64")) {
        count += 1;
        let is_marked = match schema["type"].as_str() {
            // Of a list, its items or parts of them.
            Some("array") => schema["items"].to_string().contains(r#""contentEncoding":"base64""#),
            _ => schema["contentEncoding"] == "base64",
        };
        if !is_marked {
            unmarked.push(place.to_owned());
        }
    }
    match schema {
        Value::Object(parts) => {
            for (name, part) in parts {
                count += described(part, &format!("{place}/{name}"), unmarked);
            }
        }
        Value::Array(parts) => {
            for part in parts {
                count += described(part, place, unmarked);
            }
        }
        _ => {}
    }
    count
}

/// Forms show a field for a file where a schema has `contentEncoding`, which nothing checks: a data: URL is valid there.
#[test]
fn every_file_in_a_schema_is_marked_as_one() {
    let (mut found, mut unmarked) = (Vec::new(), Vec::new());
    schemas(&source("cargos"), &mut found);
    let count: usize = found.iter().map(|(place, schema)| described(schema, place, &mut unmarked)).sum();
    assert!(count > 40, "{count} of {}", found.len());
    assert!(unmarked.is_empty(), "described as base64, without contentEncoding: {unmarked:#?}");
}
