//! What `sentence-transformers` writes beside a network: the length and case of texts, and prompts before them.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::{MODULE, Table, unsupported},
    repository::Repository,
    text::tokens::Tokens,
    values::{count, read},
};
use serde_json::{Map, Value};

use crate::task::Loader;

/// Begins the names of the reference's own classes.
const LIBRARY: &str = "sentence_transformers.";
/// Names of the settings of a network: older versions named the file after it. The first that is not empty counts.
const NETWORKS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// How texts are read.
#[derive(Debug)]
pub(super) struct Sentences {
    /// Maximum number of tokens of a text or a pair, with special tokens.
    pub(super) max_length: usize,
    /// Prompts by name.
    pub(super) prompts: Map<String, Value>,
    /// The name of the prompt before texts for which a job names none.
    pub(super) default_prompt: Option<String>,
    /// `config_sentence_transformers.json`.
    pub(super) library: Value,
}

impl Sentences {
    /// Reads the settings of a network and those of the library by these tables, and lets `tokens` read lower case if they require it.
    pub(super) fn load(
        loader: &Loader<'_>,
        tokens: &mut Tokens,
        network: &Table,
        library: &Table,
    ) -> Result<Self, EngineError> {
        let named = loader.repository.json(library.file)?.unwrap_or_default();
        library.check(&named)?;
        let (file, settings) = network_settings(&loader.repository, network)?;
        if settings.get("do_lower_case").and_then(Value::as_bool).unwrap_or(false) {
            tokens.lower_case()?;
        }
        let most = max_seq_length(file, &settings)?;
        let setting = |key| loader.setting(key, &named).unwrap_or(&Value::Null);
        let (prompts, default_prompt) =
            prompts(library.file, setting("prompts"), setting("default_prompt_name"))?;
        Ok(Self { max_length: tokens.max_length_by(most), prompts, default_prompt, library: named })
    }

    /// The text of a prompt.
    pub(super) fn prompt(&self, name: &str) -> Option<&str> {
        self.prompts.get(name).and_then(Value::as_str)
    }
}

/// The maximum length of a network.
fn max_seq_length(file: &str, settings: &Value) -> Result<Option<usize>, EngineError> {
    read(file, settings, "max_seq_length", count)
}

/// Prompts by name, and the name of the one before texts for which a job names none.
fn prompts(
    file: &str,
    prompts: &Value,
    default: &Value,
) -> Result<(Map<String, Value>, Option<String>), EngineError> {
    let is_text = |prompt: &Value| prompt.is_string() || prompt.is_null();
    let named = match prompts {
        Value::Null => Map::new(),
        Value::Object(named) if named.values().all(is_text) => named.clone(),
        _ => return Err(unsupported(file, "prompts", prompts)),
    };
    match default {
        Value::Null => Ok((named, None)),
        Value::String(name) if named.contains_key(name) => Ok((named, Some(name.clone()))),
        _ => Err(unsupported(file, "default_prompt_name", default)),
    }
}

/// The file with the settings of a network, and the settings; null if the file is absent.
fn network_settings(repository: &Repository, table: &Table) -> Result<(&'static str, Value), EngineError> {
    for file in NETWORKS {
        let settings = repository.json(file)?.unwrap_or_default();
        table.check_at(file, &settings)?;
        if settings.as_object().is_some_and(|keys| !keys.is_empty()) {
            return Ok((file, settings));
        }
    }
    Ok((table.file, Value::Null))
}

/// The name of a module's class; empty if it is not the reference's: a repository's own code may have classes of the same names.
pub(super) fn class(kind: &str) -> &str {
    kind.strip_prefix(LIBRARY).and_then(|name| name.rsplit('.').next()).unwrap_or_default()
}

/// The modules of a repository; `None` if it has no list of them. An error if a setting of one is not supported.
pub(super) fn modules(repository: &Repository) -> Result<Option<Vec<Value>>, EngineError> {
    let Some(file) = repository.json(MODULE.file)? else { return Ok(None) };
    let Value::Array(modules) = file else {
        return Err(invalid_model(format!("{} is not a list", MODULE.file)));
    };
    for module in &modules {
        MODULE.check(module)?;
        for key in ["type", "path"] {
            read(MODULE.file, module, key, Value::as_str)?;
        }
    }
    Ok(Some(modules))
}

/// Rejects modules after the network of a model that ranks: its graph gives the score.
pub(super) fn check_network_alone(repository: &Repository) -> Result<(), EngineError> {
    for module in &modules(repository)?.unwrap_or_default() {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        if class(kind) != "Transformer" {
            return Err(unsupported(MODULE.file, "type", &kind.into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use island_runtimes_kit::keys::{RANKING_TRANSFORMER, TRANSFORMER};
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// The folder must outlive the repository.
    fn repository(files: &[(&str, Value)]) -> (TempDir, Repository) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let written = files.iter().map(|(name, content)| {
            let path = folder.path().join(name);
            fs::write(&path, content.to_string()).expect("write");
            ((*name).to_owned(), path)
        });
        let repository = Repository::open(written.collect()).expect("a repository");
        (folder, repository)
    }

    #[test]
    fn the_settings_of_a_network_may_have_the_name_of_an_older_version() {
        let roberta = ("sentence_roberta_config.json", json!({"max_seq_length": 12}));
        let of = |files: &[(&str, Value)]| {
            let (_folder, repository) = repository(files);
            network_settings(&repository, &TRANSFORMER).expect("known").1
        };
        assert_eq!(of(std::slice::from_ref(&roberta))["max_seq_length"], 12);
        assert_eq!(of(&[("sentence_bert_config.json", json!({})), roberta.clone()])["max_seq_length"], 12);
        assert_eq!(
            of(&[("sentence_bert_config.json", json!({"max_seq_length": 20})), roberta])["max_seq_length"],
            20
        );
        assert_eq!(of(&[]), Value::Null);
        let (_folder, odd) = repository(&[("sentence_roberta_config.json", json!({"odd": 1}))]);
        let refused = network_settings(&odd, &TRANSFORMER).expect_err("unknown").message();
        assert_eq!(refused, "sentence_roberta_config.json: odd = 1 is not supported");
        let embeds =
            repository(&[("sentence_bert_config.json", json!({"transformer_task": "feature-extraction"}))]);
        network_settings(&embeds.1, &RANKING_TRANSFORMER).expect_err("it does not rank");
    }

    #[test]
    fn settings_of_another_kind_are_refused() {
        const FILE: &str = "config_sentence_transformers.json";
        let of = |all: Value, default: Value| prompts(FILE, &all, &default).map_err(|error| error.message());
        assert_eq!(of(Value::Null, Value::Null), Ok((Map::new(), None)));
        let query = json!({"query": "find: ", "plain": null});
        let (named, default) = of(query.clone(), json!("query")).expect("prompts");
        assert_eq!((Value::Object(named), default.as_deref()), (query.clone(), Some("query")));
        for (key, all, default) in [
            ("prompts", json!(["find: "]), Value::Null),
            ("prompts", json!({"query": 5}), Value::Null),
            ("default_prompt_name", query.clone(), json!("other")),
            ("default_prompt_name", query, json!(true)),
        ] {
            let value = if key == "prompts" { &all } else { &default };
            let wanted = format!("{FILE}: {key} = {value} is not supported");
            assert_eq!(of(all.clone(), default.clone()).expect_err("another kind"), wanted);
        }
        let most = |value: Value| {
            let settings = json!({"max_seq_length": value});
            max_seq_length("sentence_bert_config.json", &settings).map_err(|error| error.message())
        };
        assert_eq!((most(json!(12)), most(Value::Null)), (Ok(Some(12)), Ok(None)));
        let refused = most(json!("12")).expect_err("a text");
        assert_eq!(refused, "sentence_bert_config.json: max_seq_length = \"12\" is not supported");
    }

    #[test]
    fn modules_behind_the_network_of_a_model_that_ranks_are_refused() {
        let network = json!({"idx": 0, "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"});
        let dense =
            json!({"idx": 1, "path": "1_Dense", "type": "sentence_transformers.base.modules.dense.Dense"});
        let check = |modules: Value| {
            let (_folder, repository) = repository(&[("modules.json", modules)]);
            check_network_alone(&repository).map_err(|error| error.message())
        };
        assert_eq!(check(json!([network])), Ok(()));
        let refused = check(json!([network, dense])).expect_err("a module");
        assert_eq!(
            refused,
            "modules.json: type = \"sentence_transformers.base.modules.dense.Dense\" is not supported"
        );
        assert_eq!(check(json!({"0": network})), Err("modules.json is not a list".to_owned()));
        let number = check(json!([{"path": "", "type": 7}])).expect_err("no class");
        assert_eq!(number, "modules.json: type = 7 is not supported");
        let (_folder, none) = repository(&[]);
        check_network_alone(&none).expect("older repositories have no list");
    }
}
