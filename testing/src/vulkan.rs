//! A GPU for tests: Mesa's Vulkan driver for the processor, unpacked by `scripts/vulkan.sh`.

use std::{collections::BTreeMap, env, path::PathBuf};

use crate::skip;

/// Returns the variables with which a program finds the driver and llama.cpp and ONNX Runtime use its device. `None`, after [`skip`], if it
/// was not unpacked.
pub fn software(what: &str) -> Option<BTreeMap<String, String>> {
    let folder = folder();
    let manifest = folder.join("icd.json");
    if !manifest.is_file() {
        skip(what, &format!("no {}: run scripts/vulkan.sh software", manifest.display()));
        return None;
    }
    let libraries = [folder.join("lib")]
        .into_iter()
        .chain(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).collect::<Vec<_>>());
    let libraries = env::join_paths(libraries).expect("paths without colons");
    let variables = [
        ("VK_DRIVER_FILES", manifest.display().to_string()),
        ("LD_LIBRARY_PATH", libraries.to_string_lossy().into_owned()),
        // llama.cpp passes over devices that the processor emulates, unless they are named; the WebGPU provider, unless it is allowed.
        ("GGML_VK_VISIBLE_DEVICES", "0".to_owned()),
        ("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1".to_owned()),
    ];
    Some(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Where the driver is unpacked.
fn folder() -> PathBuf {
    crate::workspace().join(".tools/vulkan").canonicalize().unwrap_or_default()
}
