//! Catalogue entries of the engines' small fixtures, which are used in place.

use std::{
    fs,
    path::{Path, PathBuf},
};

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

fn fixture(engine: &str, name: &str) -> PathBuf {
    island_testing::workspace().join(format!("runtimes/{engine}/tests/fixtures")).join(name)
}

fn write(catalogue: &Path, slug: &str, entry: &Value) {
    let text = toml::to_string(entry).expect("an entry");
    fs::write(catalogue.join(format!("{slug}.toml")), text).expect("write the entry");
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
