//! Images in and out of jobs, as files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use island_protocol::{event::Image, ids::JobId};
use serde_json::{Value, json};

/// The file in base64.
pub(super) fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(BASE64_STANDARD.encode(bytes))
}

/// Saves the image of event `n`, under a name that belongs to it alone.
pub(super) fn save(folder: &Path, job: JobId, n: u64, image: &Image) -> Result<PathBuf> {
    let preview = if image.preview { "-preview" } else { "" };
    write(folder, &format!("{job}-{n}{preview}.{}", extension(&image.format)), &image.data)
}

/// Saves every image inside a result: objects with `data` and `format`.
pub(super) fn save_all(folder: &Path, job: JobId, result: &Value) -> Result<Vec<PathBuf>> {
    let found = files(result).into_iter().enumerate();
    found
        .map(|(at, (data, format))| {
            write(folder, &format!("{job}-output-{}.{}", at + 1, extension(format)), data)
        })
        .collect()
}

/// The result as it is shown to people: bytes of files left out.
pub(super) fn without_bytes(result: &Value) -> Value {
    match result {
        Value::Object(fields) => match file(result) {
            Some((data, format)) => {
                json!({ "data": format!("({} bytes of base64)", data.len()), "format": format })
            }
            None => fields.iter().map(|(name, value)| (name.clone(), without_bytes(value))).collect(),
        },
        Value::Array(items) => items.iter().map(without_bytes).collect(),
        other => other.clone(),
    }
}

fn file(value: &Value) -> Option<(&str, &str)> {
    Some((value.get("data")?.as_str()?, value.get("format")?.as_str()?))
}

fn files(value: &Value) -> Vec<(&str, &str)> {
    if let Some(file) = file(value) {
        return vec![file];
    }
    match value {
        Value::Object(fields) => fields.values().flat_map(files).collect(),
        Value::Array(items) => items.iter().flat_map(files).collect(),
        _ => Vec::new(),
    }
}

fn write(folder: &Path, name: &str, data: &str) -> Result<PathBuf> {
    let bytes =
        BASE64_STANDARD.decode(data).with_context(|| format!("the image for {name} is not base64"))?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// An image format as a file extension. It comes from another machine: anything but a short word becomes `bin`.
fn extension(format: &str) -> &str {
    let is_word = (1..=8).contains(&format.len()) && format.bytes().all(|b| b.is_ascii_alphanumeric());
    if is_word { format } else { "bin" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_format_never_leads_elsewhere(format in "\\PC{0,12}|(\\.\\./)+x|/etc/x") {
            let folder = tempfile::tempdir().expect("folder");
            let image = Image { data: "QUJD".into(), format, ..Image::default() };
            let path = save(folder.path(), JobId(uuid_nil()), 3, &image).expect("saved");
            prop_assert_eq!(path.parent(), Some(folder.path()));
            prop_assert_eq!(fs::read(path).expect("read"), b"ABC");
        }
    }

    fn uuid_nil() -> uuid::Uuid {
        uuid::Uuid::nil()
    }

    #[test]
    fn images_inside_a_result_are_found() {
        let result = json!({ "images": [{ "data": "QUJD", "format": "png" }], "n": 1 });
        let folder = tempfile::tempdir().expect("folder");
        let saved = save_all(folder.path(), JobId(uuid_nil()), &result).expect("saved");
        assert_eq!(saved.len(), 1);
        assert_eq!(without_bytes(&result)["images"][0]["data"], "(4 bytes of base64)");
        assert_eq!(without_bytes(&result)["n"], 1);
    }
}
