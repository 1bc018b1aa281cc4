//! Values of settings files. One of another kind than the reference library reads is refused with its file, key and value: its default in its
//! place would change every answer without an error.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    error::{EngineError, invalid_model},
    keys::{CONFIG, shown, unsupported},
};

/// Maximum sampling rate.
const MAX_RATE: u32 = 384_000;

/// A setting as `value_of` reads it; `None` if it is absent or null. An error that names file, key and value if `value_of` returns `None`.
pub fn read<'v, T>(
    file: &str,
    settings: &'v Value,
    key: &str,
    value_of: impl FnOnce(&'v Value) -> Option<T>,
) -> Result<Option<T>, EngineError> {
    let Some(value) = settings.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    value_of(value).map(Some).ok_or_else(|| unsupported(file, key, value))
}

/// A number of things, for [`read`].
pub fn count(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

/// The id of a token, for [`read`].
pub fn token_id(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// `sampling_rate` of a file, in samples per second.
pub fn sampling_rate(file: &str, settings: &Value) -> Result<Option<u32>, EngineError> {
    let rate =
        |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
    read(file, settings, "sampling_rate", rate)
}

/// Maximum number of tokens of a network with these settings, which are in `config.json`.
pub fn positions(config: &Value) -> Result<Option<usize>, EngineError> {
    let of = |key: &str| read(CONFIG.file, config, key, count);
    Ok(of("max_position_embeddings")?.or(of("n_positions")?))
}

/// Refuses settings that are not an object, of which every key would count as absent. Null counts as a file that is absent.
pub fn check_object(file: &str, settings: &Value) -> Result<(), EngineError> {
    if settings.is_object() || settings.is_null() {
        return Ok(());
    }
    Err(invalid_model(format!("{file}: {} is not a JSON object", shown(settings))))
}

/// Settings as their type. An error names the key whose value is of another kind.
pub fn typed<T: DeserializeOwned>(file: &str, settings: &Value) -> Result<T, EngineError> {
    T::deserialize(settings).map_err(|error| match culprit::<T>(settings, &error) {
        Some((key, value)) => unsupported(file, key, value).followed_by(error),
        None => invalid_model(format!("invalid settings in {file}")).because(error),
    })
}

/// The setting that causes an error, which does not name it: the last of the fewest that cause it, since they are read in their order.
fn culprit<'s, T: DeserializeOwned>(
    settings: &'s Value,
    error: &serde_json::Error,
) -> Option<(&'s String, &'s Value)> {
    /// No table has more keys.
    const MOST: usize = 256;
    let fields = settings.as_object().filter(|fields| fields.len() <= MOST)?;
    let wanted = error.to_string();
    let mut few = Map::new();
    fields.iter().find(|(key, value)| {
        few.insert((*key).clone(), (*value).clone());
        let read = T::deserialize(&Value::Object(few.clone()));
        read.is_err_and(|error| error.to_string() == wanted)
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Sizes {
        height: usize,
        width: usize,
    }

    #[test]
    fn a_setting_of_another_kind_is_named() {
        let read =
            |settings: Value| typed::<Sizes>("unet/config.json", &settings).map_err(|error| error.message());
        assert_eq!(read(json!({"other": "x", "width": 4})), Ok(Sizes { height: 0, width: 4 }));
        let refused = read(json!({"height": 4, "width": "8"})).expect_err("a text");
        assert!(refused.starts_with("unet/config.json: width = \"8\" is not supported; "), "{refused}");
        let refused = read(json!({"height": "8", "width": "8"})).expect_err("two texts");
        assert!(refused.starts_with("unet/config.json: height = \"8\" is not supported; "), "{refused}");
        let refused = read(json!([true])).expect_err("no settings");
        assert!(refused.starts_with("invalid settings in unet/config.json: "), "{refused}");
    }

    #[test]
    fn numbers_that_count_or_name_tokens_are_whole_and_not_negative() {
        assert_eq!((count(&json!(3)), token_id(&json!(3))), (Some(3), Some(3)));
        for value in [json!(-3), json!(3.5), json!("3"), json!([3]), json!(true)] {
            assert_eq!((count(&value), token_id(&value)), (None, None), "{value}");
        }
        assert_eq!(token_id(&json!(4_294_967_296_u64)), None, "no vocabulary is that large");
    }

    #[test]
    fn a_sampling_rate_of_another_kind_is_refused() {
        let rate = |value: Value| {
            sampling_rate("config.json", &json!({"sampling_rate": value})).map_err(|error| error.message())
        };
        assert_eq!(rate(json!(22_050)), Ok(Some(22_050)));
        assert_eq!(rate(Value::Null), Ok(None));
        for value in [json!("22050"), json!(22_050.5), json!(0), json!(4_294_983_296_u64)] {
            let refused = rate(value.clone()).expect_err("not a rate");
            assert_eq!(refused, format!("config.json: sampling_rate = {value} is not supported"));
        }
    }

    #[test]
    fn positions_of_another_kind_are_refused() {
        let of = |config: Value| positions(&config).map_err(|error| error.message());
        assert_eq!(of(json!({"max_position_embeddings": 40, "n_positions": 20})), Ok(Some(40)));
        assert_eq!(of(json!({"max_position_embeddings": null, "n_positions": 20})), Ok(Some(20)));
        assert_eq!(of(json!({})), Ok(None));
        for (key, value) in [
            ("max_position_embeddings", json!("40")),
            ("max_position_embeddings", json!(-40)),
            ("n_positions", json!([20])),
        ] {
            let refused = of(json!({key: value})).expect_err("no number");
            assert_eq!(refused, format!("config.json: {key} = {value} is not supported"));
        }
    }

    #[test]
    fn settings_that_are_no_object_are_refused() {
        let of = |settings: Value| check_object("a.json", &settings).map_err(|error| error.message());
        assert_eq!((of(json!({"a": 1})), of(Value::Null)), (Ok(()), Ok(())));
        assert_eq!(of(json!([1])), Err("a.json: [1] is not a JSON object".to_owned()));
        assert_eq!(of(json!("x")), Err("a.json: \"x\" is not a JSON object".to_owned()));
    }
}
