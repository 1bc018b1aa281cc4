//! Tokens that the classes of `config.json` have where a file lacks them, by `transformers` 4.57. The library writes them into every file that it
//! saves; files that people wrote can lack them.

use serde_json::Value;

const BEGIN: &str = "bos_token_id";
const END: &str = "eos_token_id";
const PAD: &str = "pad_token_id";
const START: &str = "decoder_start_token_id";
const FORCED_END: &str = "forced_eos_token_id";

/// Classes by their `model_type`, with the tokens that they have in common.
type Class = (&'static [&'static str], &'static [(&'static str, u32)]);

const CLASSES: [Class; 17] = [
    (&["bart"], &[(BEGIN, 0), (END, 2), (PAD, 1), (START, 2), (FORCED_END, 2)]),
    (&["mbart"], &[(BEGIN, 0), (END, 2), (PAD, 1), (FORCED_END, 2)]),
    (&["m2m_100", "trocr", "speech_to_text", "led"], &[(BEGIN, 0), (END, 2), (PAD, 1), (START, 2)]),
    (&["blenderbot", "blenderbot-small"], &[(BEGIN, 1), (END, 2), (PAD, 0), (START, 1), (FORCED_END, 2)]),
    (&["bigbird_pegasus"], &[(BEGIN, 2), (END, 1), (PAD, 0), (START, 2)]),
    (&["pegasus"], &[(END, 1), (PAD, 0), (START, 0), (FORCED_END, 1)]),
    (&["t5", "longt5"], &[(END, 1), (PAD, 0)]),
    (&["mt5", "umt5"], &[(END, 1), (PAD, 0), (START, 0)]),
    (&["marian"], &[(END, 0), (PAD, 58_100), (START, 58_100), (FORCED_END, 0)]),
    (&["whisper"], &[(BEGIN, 50_256), (END, 50_256), (PAD, 50_256), (START, 50_257)]),
    (&["moonshine"], &[(BEGIN, 1), (END, 2), (START, 1)]),
    (&["gpt2", "gpt_neo"], &[(BEGIN, 50_256), (END, 50_256)]),
    (&["llama"], &[(BEGIN, 1), (END, 2)]),
    (&["opt"], &[(BEGIN, 2), (END, 2), (PAD, 1)]),
    (&["bert", "distilbert", "electra"], &[(PAD, 0)]),
    (&["bert-generation"], &[(BEGIN, 2), (END, 1), (PAD, 0)]),
    (&["roberta", "xlm-roberta", "camembert", "biogpt"], &[(BEGIN, 0), (END, 2), (PAD, 1)]),
];

/// The token that the class of a `config.json` has for a setting which the file lacks. A setting that is null has no token.
pub(super) fn of(config: &Value, name: &str) -> Option<Value> {
    let kind = config.get("model_type")?.as_str()?;
    let (_, tokens) = CLASSES.iter().find(|(kinds, _)| kinds.contains(&kind))?;
    let is_absent = config.get(name).is_none();
    tokens.iter().find(|(key, _)| is_absent && *key == name).map(|(_, token)| Value::from(*token))
}
