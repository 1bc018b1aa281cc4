//! Names of classes in a model's metadata, written for programs that show its results.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Their key in the metadata.
const KEY: &str = "com.apple.coreml.model.preview.params";
/// Maximum number of them.
const MAX_LABELS: usize = 10_000;

#[derive(Deserialize)]
struct Parameters {
    labels: Vec<String>,
}

/// The description of a compiled model.
#[derive(Deserialize)]
struct Described {
    #[serde(default, rename = "userDefinedMetadata")]
    user_defined: BTreeMap<String, serde_json::Value>,
}

/// The names in metadata.
pub(super) fn of_notes(notes: &BTreeMap<String, String>) -> Option<Vec<String>> {
    read(notes.get(KEY)?)
}

/// The names in `metadata.json`.
pub(super) fn of_metadata(bytes: &[u8]) -> Option<Vec<String>> {
    let described: Vec<Described> = serde_json::from_slice(bytes).ok()?;
    read(described.first()?.user_defined.get(KEY)?.as_str()?)
}

/// Metadata is for people: other content does not make a model invalid.
fn read(parameters: &str) -> Option<Vec<String>> {
    let Parameters { labels } = serde_json::from_str(parameters).ok()?;
    (1..=MAX_LABELS).contains(&labels.len()).then_some(labels)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::model::{Description, Metadata, Model};

    #[test]
    fn names_are_found_in_packages_and_in_compiled_models() {
        let parameters = r#"{"labels": ["person", "bicycle"], "colors": ["red", "green"]}"#;
        let notes = BTreeMap::from([(KEY.to_owned(), parameters.to_owned())]);
        let metadata = Some(Metadata { user_defined: notes });
        let model = Model {
            description: Some(Description { metadata, ..Description::default() }),
            ..Model::default()
        };
        let read = Model::decode(model.encode_to_vec().as_slice()).expect("as it was written");
        let notes =
            read.description.and_then(|description| description.metadata).expect("notes").user_defined;
        let wanted = Some(vec!["person".to_owned(), "bicycle".to_owned()]);
        assert_eq!(of_notes(&notes), wanted);
        let compiled = serde_json::json!([{ "userDefinedMetadata": { KEY: parameters, "x": 3 } }]);
        assert_eq!(of_metadata(compiled.to_string().as_bytes()), wanted);
    }

    #[test]
    fn other_metadata_is_ignored() {
        for text in ["", "[]", "{}", r#"{"labels": []}"#, r#"{"labels": [1]}"#] {
            assert_eq!(of_notes(&BTreeMap::from([(KEY.to_owned(), text.to_owned())])), None, "{text}");
        }
        assert_eq!(of_metadata(b"{"), None);
    }
}
