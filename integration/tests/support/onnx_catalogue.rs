//! Catalogues of the ONNX engine's fixtures.

use std::{fs, path::Path};

use serde_json::json;

use crate::support::Fixture;

/// Adds fixtures that need this much GPU memory, where there is a GPU, to a catalogue; their models are used in place. Those that the processor runs in any
/// case need none.
pub(crate) fn add(folder: &Path, fixtures: &[Fixture], vram_mb: u64) {
    let tasks = folder.join("onnx/tasks");
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
        let text = toml::to_string(&entry).expect("an entry");
        fs::write(folder.join(format!("onnx/{}.toml", fixture.name)), text).expect("write");
    }
}
