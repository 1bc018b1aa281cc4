//! Why a job waits, in words.

use serde_json::{Map, Value};

/// The coordinator's reasons: name, and what it means of one Island and of several.
const REASONS: [(&str, &str, &str); 10] = [
    ("offline", "is offline", "are offline"),
    ("draining", "takes no new jobs", "take no new jobs"),
    ("no_runtime", "lacks a working engine for it", "lack a working engine for it"),
    ("no_tier", "does not allow containers of its tier", "do not allow containers of its tier"),
    ("no_egress", "does not allow the addresses it needs", "do not allow the addresses it needs"),
    ("price", "asks a higher price", "ask a higher price"),
    ("model_unreachable", "cannot reach the model's hub", "cannot reach the model's hub"),
    ("no_ram", "has too little free memory", "have too little free memory"),
    ("no_vram", "has too little free GPU memory", "have too little free GPU memory"),
    ("no_slot", "is busy", "are busy"),
];

/// Number of Islands per reason, as a phrase. A reason newer than this program keeps its name.
pub(crate) fn in_words(reasons: &Map<String, Value>) -> String {
    if reasons.is_empty() {
        return "no Island is on the network".into();
    }
    let phrase = |(reason, count): (&String, &Value)| {
        let known = REASONS.iter().find(|(name, ..)| name == reason);
        match (count.as_u64(), known) {
            (Some(1), Some((_, one, _))) => format!("1 Island {one}"),
            (Some(n), Some((.., several))) => format!("{n} Islands {several}"),
            (Some(1), None) => format!("1 Island: {reason}"),
            (Some(n), None) => format!("{n} Islands: {reason}"),
            (None, _) => format!("{reason}: {count}"),
        }
    };
    reasons.iter().map(phrase).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(reasons: Value) -> String {
        in_words(reasons.as_object().expect("an object"))
    }

    #[test]
    fn reasons_are_counted() {
        assert_eq!(
            shown(serde_json::json!({ "model_unreachable": 1, "no_slot": 2 })),
            "1 Island cannot reach the model's hub, 2 Islands are busy"
        );
        assert_eq!(shown(serde_json::json!({})), "no Island is on the network");
        assert_eq!(shown(serde_json::json!({ "no_moon": 3, "odd": "x" })), "3 Islands: no_moon, odd: \"x\"");
    }
}
