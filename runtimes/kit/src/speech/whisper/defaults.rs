//! The language and task of jobs that choose none.

use serde_json::{Map, Value};

use crate::{
    error::EngineError,
    keys::{CONFIG, GENERATION, unsupported},
};

/// Language and task of jobs that choose none. Without a language it is detected; without a task the model transcribes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) language: Option<u32>,
    pub(super) task: Option<u32>,
}

impl Defaults {
    /// From `language` and `task`, or else from the tokens that older repositories force. An error if the model does not know them.
    pub(super) fn of(
        file: &Value,
        config: &Value,
        languages: &Map<String, Value>,
        tasks: &Map<String, Value>,
        none: u32,
    ) -> Result<Self, EngineError> {
        const FORCED: &str = "forced_decoder_ids";
        let id =
            |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_u64).map(|id| id as u32);
        let named = |name: &str| file.get(name).filter(|value| !value.is_null());
        if named("language").is_some() || named("task").is_some() {
            let known = |name: &str, find: &dyn Fn(&str) -> Option<u32>| {
                let Some(value) = named(name) else { return Ok(None) };
                value
                    .as_str()
                    .and_then(find)
                    .map(Some)
                    .ok_or_else(|| unsupported(GENERATION.file, name, value))
            };
            let language = known("language", &|code| {
                id(languages, &format!("<|{code}|>")).or_else(|| id(languages, code))
            })?;
            return Ok(Self { language, task: known("task", &|task| id(tasks, task))? });
        }
        let mut stated = [(GENERATION.file, file), (CONFIG.file, config)]
            .into_iter()
            .filter_map(|(at, settings)| Some((at, settings.get(FORCED).filter(|value| !value.is_null())?)));
        let Some((at, forced)) = stated.next() else { return Ok(Self::default()) };
        let refused = || unsupported(at, FORCED, forced);
        let pairs = forced.as_array().ok_or_else(refused)?;
        let mut defaults = Self::default();
        let is_one_of = |map: &Map<String, Value>, token| map.values().any(|id| id.as_u64() == Some(token));
        for (place, pair) in pairs.iter().enumerate() {
            let (position, token) = (pair.get(0).and_then(Value::as_u64), pair.get(1));
            let in_order = position == Some(place as u64 + 1);
            match token.and_then(Value::as_u64) {
                None if in_order && token.is_some_and(Value::is_null) => {}
                Some(token) if in_order && is_one_of(languages, token) => {
                    defaults.language = Some(token as u32);
                }
                Some(token) if in_order && is_one_of(tasks, token) => defaults.task = Some(token as u32),
                Some(token) if in_order && token == u64::from(none) => {}
                _ => return Err(refused()),
            }
        }
        Ok(defaults)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_repository_sets_language_and_task_of_jobs_that_choose_none() {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let languages = map(json!({"<|en|>": 10, "<|de|>": 11}));
        let tasks = map(json!({"translate": 20, "transcribe": 21}));
        let of = |file: Value, config: Value| Defaults::of(&file, &config, &languages, &tasks, 30);
        let defaults = |language, task| Defaults { language, task };
        let found = |file: Value| of(file, Value::Null).expect("known");
        assert_eq!(found(json!({"language": "de"})), defaults(Some(11), None));
        assert_eq!(found(json!({"language": "<|de|>", "task": "translate"})), defaults(Some(11), Some(20)));
        assert_eq!(
            found(json!({"forced_decoder_ids": [[1, 11], [2, 20], [3, 30]]})),
            defaults(Some(11), Some(20))
        );
        assert_eq!(found(json!({"forced_decoder_ids": [[1, null], [2, 21]]})), defaults(None, Some(21)));
        assert_eq!(
            found(json!({"task": "translate", "forced_decoder_ids": [[1, 11]]})),
            defaults(None, Some(20))
        );
        let old = of(json!({}), json!({"forced_decoder_ids": [[1, 10]]})).expect("known");
        assert_eq!(old, defaults(Some(10), None));
        for unknown in [
            json!({"language": "xx"}),
            json!({"forced_decoder_ids": [[2, 11]]}),
            json!({"forced_decoder_ids": [[1, 99]]}),
            json!({"forced_decoder_ids": {"1": 11}}),
            json!({"forced_decoder_ids": "de"}),
            json!({"language": 11}),
        ] {
            let refused = of(unknown.clone(), Value::Null).expect_err("unknown").message();
            assert!(refused.starts_with("generation_config.json: "), "{unknown}: {refused}");
        }
        let old = of(json!({}), json!({"forced_decoder_ids": "de"})).expect_err("no list").message();
        assert_eq!(old, "config.json: forced_decoder_ids = \"de\" is not supported");
    }
}
