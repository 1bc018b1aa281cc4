//! Networks that attend to blocks of a text: their graphs compute something else than the reference for other lengths than those with which they
//! were exported.

use island_runtimes_kit::{
    error::EngineError,
    keys::{CONFIG, unsupported},
    values::read,
};
use serde_json::Value;

/// Networks that pad a text to whole blocks. The exporter of graphs computes the padding once, so that texts of other lengths fail or are padded
/// wrongly.
const PADDED: [&str; 4] = ["led", "longformer", "longt5", "pegasus_x"];
/// Networks that attend to blocks of long texts, unless a setting switches this off. Graphs attend to all of a text.
const SPARSE: [&str; 2] = ["big_bird", "bigbird_pegasus"];

/// Refuses such networks.
pub(crate) fn check(config: &Value) -> Result<(), EngineError> {
    const MODEL: &str = "model_type";
    const ATTENTION: &str = "attention_type";
    let Some(kind) = read(CONFIG.file, config, MODEL, Value::as_str)? else { return Ok(()) };
    if PADDED.contains(&kind) {
        let why = "its graph holds for texts of one length";
        return Err(unsupported(CONFIG.file, MODEL, &config[MODEL]).followed_by(why));
    }
    if SPARSE.contains(&kind) && config[ATTENTION] != "original_full" {
        let why = "its graph attends to all of a long text, and the network to blocks";
        return Err(unsupported(CONFIG.file, ATTENTION, &config[ATTENTION]).followed_by(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn networks_of_blocks_are_refused() {
        let checked = |config: Value| check(&config).map_err(|error| error.message());
        assert_eq!((checked(Value::Null), checked(json!({"model_type": "t5"}))), (Ok(()), Ok(())));
        for kind in PADDED {
            let refused = checked(json!({"model_type": kind})).expect_err("blocks");
            let wanted = format!("config.json: model_type = {kind:?} is not supported; its graph");
            assert!(refused.starts_with(&wanted), "{refused}");
        }
        for kind in SPARSE {
            assert_eq!(checked(json!({"model_type": kind, "attention_type": "original_full"})), Ok(()));
            let refused =
                checked(json!({"model_type": kind, "attention_type": "block_sparse"})).expect_err("blocks");
            assert!(
                refused.starts_with("config.json: attention_type = \"block_sparse\" is not supported; "),
                "{refused}"
            );
            let absent = checked(json!({"model_type": kind})).expect_err("the default is blocks");
            assert!(absent.starts_with("config.json: attention_type = null is not supported; "), "{absent}");
        }
    }
}
