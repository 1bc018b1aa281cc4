//! Chooses the file for an address that names only a repository. Pure.

/// Quantizations by preference: the smallest with little loss first.
const QUANTS: [&str; 4] = ["q4_k_m", "q4_k_s", "q5_k_m", "q8_0"];

/// The best of `files`.
pub(crate) fn best(files: &[String]) -> Option<String> {
    let with =
        |suffix: &'static str| files.iter().filter(move |file| file.to_ascii_lowercase().ends_with(suffix));
    // A model in several parts cannot be loaded from one of them, and a projector is not a model.
    let is_whole = |file: &&String| !file.contains("-of-") && !file.to_ascii_lowercase().contains("mmproj");
    let quant =
        |name: &str| with(".gguf").filter(is_whole).find(|file| file.to_ascii_lowercase().contains(name));
    let gguf = QUANTS.into_iter().find_map(quant).or_else(|| with(".gguf").find(is_whole));
    gguf.or_else(|| with(".onnx").next()).or_else(|| with(".safetensors").next()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_in_order() {
        let best = |files: &[&str]| best(&files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>());
        assert_eq!(
            best(&["a.Q8_0.gguf", "a.q4_k_m.gguf", "a.Q4_K_S.gguf"]).as_deref(),
            Some("a.q4_k_m.gguf")
        );
        assert_eq!(best(&["a.Q8_0.gguf", "a.Q2_K.gguf"]).as_deref(), Some("a.Q8_0.gguf"));
        assert_eq!(best(&["mmproj-f16.gguf", "a.f16.gguf"]).as_deref(), Some("a.f16.gguf"));
        assert_eq!(best(&["a-Q4_K_M-00001-of-00002.gguf", "a.onnx"]).as_deref(), Some("a.onnx"));
        assert_eq!(best(&["m.safetensors", "README.md"]).as_deref(), Some("m.safetensors"));
        assert_eq!(best(&["README.md"]), None);
    }
}
