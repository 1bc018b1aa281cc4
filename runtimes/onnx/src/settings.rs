//! Values of settings. One of another kind than the reference library reads is refused: its default in its place would change every answer without
//! an error.

use island_runtimes_kit::{error::EngineError, keys::unsupported};
use serde_json::Value;

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

/// `sampling_rate` of a file, in samples per second.
pub fn sampling_rate(file: &str, settings: &Value) -> Result<Option<u32>, EngineError> {
    let rate =
        |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|rate| (1..=MAX_RATE).contains(rate));
    read(file, settings, "sampling_rate", rate)
}

/// Maximum number of tokens of a decoder with these settings, which are in `config.json`.
pub fn positions(config: &Value) -> Result<Option<usize>, EngineError> {
    let whole =
        |key: &str| read("config.json", config, key, |value| value.as_u64().map(|number| number as usize));
    Ok(whole("max_position_embeddings")?.or(whole("n_positions")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        for (key, value) in [("max_position_embeddings", json!("40")), ("n_positions", json!([20]))] {
            let refused = of(json!({key: value})).expect_err("no number");
            assert_eq!(refused, format!("config.json: {key} = {value} is not supported"));
        }
    }
}
