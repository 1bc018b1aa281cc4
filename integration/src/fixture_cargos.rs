//! Catalogue entries of the engines' small fixtures, which are used in place.

use std::{
    fs,
    path::{Path, PathBuf},
};

use island_runtimes_onnx_fixtures::Fixture;
use serde_json::{Value, json};

/// The folder of a fixture of the Core ML engine.
pub fn coreml_fixture(name: &str) -> PathBuf {
    fixture("coreml", name)
}

/// The answers of a Core ML fixture by the reference.
pub fn coreml_cases(name: &str) -> Value {
    let cases = fs::read(coreml_fixture(name).join("cases.json")).expect("cases");
    serde_json::from_slice(&cases).expect("JSON")
}

/// Adds a Core ML fixture to a catalogue, under its own name.
pub fn add_coreml(catalogue: &Path, name: &str) {
    let (model, cases) = (coreml_fixture(name).join("model"), coreml_cases(name));
    let mut engine = cases["engine"].clone();
    engine["task"] = cases["task"].clone();
    let entry = json!({
        "slug": name, "name": name, "description": "A small model for tests.", "category": "text",
        "runtime_type": "coreml", "price_per_job": 0.001, "required_vram_mb": 0, "required_ram_mb": 256,
        "repository": { "url": format!("file://{}", model.display()), "files": files(&model) },
        "engine": engine,
        "input_schema": { "type": "object" },
        "output_schema": {},
        "example": { "input": cases["answers"][0]["input"] },
    });
    write(catalogue, name, &entry);
}

/// Adds a Stable Diffusion of random weights to a catalogue, as `sd-tiny`.
pub fn add_diffusion(catalogue: &Path) {
    let model = fixture("diffusers", "sd15/model");
    let entry = json!({
        "slug": "sd-tiny", "name": "Small diffusion", "description": "A small model for tests.", "category": "image",
        "runtime_type": "diffusers", "price_per_job": 0.001, "required_vram_mb": 0, "required_ram_mb": 512,
        "repository": { "url": format!("file://{}", model.display()), "files": files(&model) },
        "input_schema": { "type": "object", "required": ["prompt"], "properties": { "prompt": { "type": "string" } } },
        "output_schema": { "type": "object" },
        "example": { "input": { "prompt": "a fox" } },
    });
    write(catalogue, "sd-tiny", &entry);
}

/// Adds fixtures of the ONNX engine that need this much GPU memory, where there is a GPU, to a catalogue, with the shipped schemas of their
/// tasks. Those that the processor runs in any case need none.
pub fn add_onnx(catalogue: &Path, fixtures: &[Fixture], vram_mb: u64) {
    let tasks = catalogue.join("onnx/tasks");
    fs::create_dir_all(&tasks).expect("a folder");
    let shipped = island_testing::workspace().join("cargos/onnx/tasks");
    for task in fs::read_dir(shipped).expect("the tasks") {
        let path = task.expect("readable").path();
        fs::copy(&path, tasks.join(path.file_name().expect("a name"))).expect("copy");
    }
    for fixture in fixtures {
        let mut cases = fixture.cases.iter();
        let case = cases.find(|case| fixture.task_of(case) == fixture.task).expect("a case of its task");
        let files: Vec<String> = fixture.files().into_keys().collect();
        let mut graphs = files.iter().filter(|file| file.ends_with(".onnx"));
        let vram_mb = if graphs.all(|graph| graph.ends_with("_quantized.onnx")) { 0 } else { vram_mb };
        let entry = json!({
            "slug": fixture.name, "name": fixture.name, "description": "A small model for tests.", "category": "text",
            "runtime_type": "onnx", "onnx_task_type": fixture.task, "price_per_job": 0.001, "required_vram_mb": vram_mb,
            "required_ram_mb": 256,
            "repository": { "url": format!("file://{}/model", fixture.folder.display()), "files": files },
            "engine": if fixture.engine.is_null() { json!({}) } else { fixture.engine.clone() },
            "example": { "input": fixture.input(case) },
        });
        write(catalogue, &format!("onnx/{}", fixture.name), &entry);
    }
}

fn fixture(engine: &str, name: &str) -> PathBuf {
    island_testing::workspace().join(format!("runtimes/{engine}/tests/fixtures")).join(name)
}

fn write(catalogue: &Path, name: &str, entry: &Value) {
    let text = toml::to_string(entry).expect("an entry");
    fs::write(catalogue.join(format!("{name}.toml")), text).expect("write the entry");
}

/// The paths of all files below a folder, relative to it.
fn files(root: &Path) -> Vec<String> {
    let (mut folders, mut files) = (vec![PathBuf::new()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("the fixture") {
            let path = folder.join(entry.expect("readable").file_name());
            if root.join(&path).is_dir() {
                folders.push(path);
            } else {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files
}
