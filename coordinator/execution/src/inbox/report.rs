//! What an Island reports about itself, limited in size and free of control characters: it stays in memory and in SQL, and people read it.

use island_protocol::fabric::{Heartbeat, Register};
use serde::Serialize;
use serde_json::Value;

use super::MAX_ATTEMPTS;

/// Maximum bytes of the capabilities in a registration, and of the models and the refusals in a heartbeat, each as JSON.
const MAX_PART: usize = 64 << 10;
/// Maximum length of an Island's name, region and version, characters.
const MAX_NAME: usize = 100;
/// Fields of [`Capabilities`](island_protocol::host::Capabilities) that are texts: they may have several lines, as the messages of libraries
/// have.
const TEXTS: [&str; 3] = ["reason", "no_gpu_reason", "missing"];

/// Why a registration is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    #[error("its name, region or version is not a line of at most {MAX_NAME} characters")]
    Names,
    #[error("it holds {0} attempts, more than {MAX_ATTEMPTS}")]
    Attempts(usize),
    #[error("its capabilities have {0} bytes, more than {MAX_PART}")]
    Size(usize),
    #[error("its capabilities contain control characters")]
    Control,
    #[error("its capabilities are not JSON")]
    Encoding,
}

/// Checks a registration.
pub(super) fn check(register: &Register) -> Result<(), Invalid> {
    if !has_valid_names(register) {
        return Err(Invalid::Names);
    }
    if register.holding.len() > MAX_ATTEMPTS {
        return Err(Invalid::Attempts(register.holding.len()));
    }
    let capabilities = serde_json::to_value(&register.capabilities).map_err(|_| Invalid::Encoding)?;
    let bytes = capabilities.to_string().len();
    if bytes > MAX_PART {
        return Err(Invalid::Size(bytes));
    }
    if has_control(&capabilities, false) { Err(Invalid::Control) } else { Ok(()) }
}

/// Whether the names of a registration are short lines of text.
fn has_valid_names(register: &Register) -> bool {
    let is_short = |name: &str| name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    !register.name.trim().is_empty()
        && [&register.name, &register.agent_version]
            .into_iter()
            .chain(&register.region)
            .all(|name| is_short(name))
}

/// Whether a value contains control characters. A text may have line breaks and tabs.
fn has_control(value: &Value, is_text: bool) -> bool {
    match value {
        Value::String(text) => has_control_characters(text, is_text),
        Value::Array(items) => items.iter().any(|item| has_control(item, is_text)),
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            has_control_characters(name, false) || has_control(value, TEXTS.contains(&name.as_str()))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn has_control_characters(text: &str, is_text: bool) -> bool {
    text.chars().any(|character| character.is_control() && !(is_text && matches!(character, '\n' | '\t')))
}

/// Leaves out what a heartbeat of `bytes` should not contain. An Island that reports too much stays online: what is left out counts as absent.
pub(super) fn trim(heartbeat: &mut Heartbeat, bytes: usize) {
    heartbeat.models.retain(|model| !has_control_characters(&model.url, false));
    heartbeat.refusals.retain(|refusal| !has_control_characters(&refusal.latest, true));
    if bytes <= MAX_PART {
        // No part of it is larger.
        return;
    }
    // Loaded models are the first to be kept.
    heartbeat.models.sort_by_key(|model| !model.warm);
    keep_the_first(&mut heartbeat.models);
    keep_the_first(&mut heartbeat.refusals);
}

/// Keeps as many entries as the limit allows.
fn keep_the_first<T: Serialize>(entries: &mut Vec<T>) {
    // The brackets, and a comma after each entry but the last.
    let mut bytes = 1;
    let fits = |entry: &&T| {
        bytes += serde_json::to_vec(entry).map_or(MAX_PART, |json| json.len()) + 1;
        bytes <= MAX_PART
    };
    let kept = entries.iter().take_while(fits).count();
    entries.truncate(kept);
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        fabric::{RefusalCount, RefusalReason},
        host::HostModel,
        ids::AttemptKey,
    };
    use serde_json::json;

    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000002";
    const TIME: &str = "2026-11-20T21:40:00.123Z";

    /// A registration that was changed.
    fn registration(change: impl FnOnce(&mut Register)) -> Register {
        let mut register: Register = serde_json::from_value(json!({
            "v": 1, "host_id": ID, "instance": ID, "sent_at": TIME,
            "name": "attic", "region": "eu", "agent_version": "0.1.0",
            "capabilities": {
                "platform": "linux-x86_64", "cpu_model": "Some Processor", "cpu_cores": 8, "ram_mb": 32_000,
                "runtimes": [{"kind": "container", "available": false, "reason": "no container engine"}],
            },
        }))
        .expect("a registration");
        change(&mut register);
        register
    }

    fn model(number: usize, warm: bool) -> HostModel {
        HostModel {
            url: format!("hf://owner/repo:{number}.gguf"),
            sha256: None,
            size_mb: 1,
            warm,
            free_slots: 0,
            ram_mb: 0,
            vram_mb: 0,
        }
    }

    fn heartbeat(models: Vec<HostModel>, refusals: Vec<RefusalCount>) -> (Heartbeat, usize) {
        let message = json!({
            "v": 1, "host_id": ID, "instance": ID, "seq": 1, "status": "online", "agent_version": "0.1.0",
            "system": {
                "cpu_percent": 0.0, "memory_used_mb": 0, "memory_total_mb": 0,
                "disk_used_gb": 0.0, "disk_total_gb": 0.0,
            },
            "models": models, "refusals": refusals,
            "headroom": {"job_slots": 1, "ram_mb": 1, "vram_mb": 0}, "timestamp": TIME,
        });
        let bytes = message.to_string().len();
        (serde_json::from_value(message).expect("a heartbeat"), bytes)
    }

    #[test]
    fn a_registration_is_limited_and_has_no_control_characters() {
        let reason = |register: &mut Register, text: &str| {
            register.capabilities.runtimes[0].reason = Some(text.to_owned());
        };
        assert_eq!(check(&registration(|_| {})), Ok(()));
        assert_eq!(check(&registration(|register| reason(register, "dlopen:\n\tno such file\n"))), Ok(()));
        let refused = |change: &dyn Fn(&mut Register)| check(&registration(change)).expect_err("refused");
        for name in ["", " ", "a\nb", "\u{1b}[2J", &"x".repeat(MAX_NAME + 1)] {
            assert_eq!(refused(&|register| name.clone_into(&mut register.name)), Invalid::Names, "{name:?}");
            assert_eq!(
                refused(&|register| register.region = Some(format!("{name}\u{7f}"))),
                Invalid::Names,
                "{name:?}"
            );
        }
        for text in ["\u{1b}[2J", "a\rb", "\0", "\u{7f}", "\u{9b}"] {
            assert_eq!(refused(&|register| reason(register, text)), Invalid::Control, "{text:?}");
            let refusal = refused(&|register| text.clone_into(&mut register.capabilities.cpu_model));
            assert_eq!(refusal, Invalid::Control, "{text:?}");
        }
        let refusal = refused(&|register| register.capabilities.cpu_model = "two\nlines".to_owned());
        assert_eq!(refusal, Invalid::Control, "a name is one line");
        let refusal = refused(&|register| register.capabilities.cpu_model = "x".repeat(MAX_PART));
        assert!(matches!(refusal, Invalid::Size(bytes) if bytes > MAX_PART), "{refusal}");
        let key = json!({"job_id": ID, "attempt": 1, "epoch": 1});
        let key: AttemptKey = serde_json::from_value(key).expect("a key");
        let refusal = refused(&|register| register.holding = vec![key; MAX_ATTEMPTS + 1]);
        assert_eq!(refusal, Invalid::Attempts(MAX_ATTEMPTS + 1));
    }

    #[test]
    fn a_heartbeat_keeps_what_fits_and_loaded_models_first() {
        let models: Vec<_> = (0..2_000).map(|number| model(number, number >= 1_990)).collect();
        let refusal = |latest: String| RefusalCount { reason: RefusalReason::NoVram, times: 1, latest };
        let refusals: Vec<_> = (0..100).map(|_| refusal("x".repeat(1_000))).collect();
        let (mut trimmed, bytes) = heartbeat(models.clone(), refusals);
        trim(&mut trimmed, bytes);
        let [of_models, of_refusals, of_next] =
            [json!(trimmed.models), json!(trimmed.refusals), json!(model(2_000, false))]
                .map(|value| value.to_string().len());
        assert!(of_models <= MAX_PART && of_refusals <= MAX_PART);
        assert!(of_models + of_next + 1 > MAX_PART, "as many as fit");
        assert_eq!(trimmed.refusals.len(), 62);
        assert_eq!(trimmed.models[..10], models[1_990..]);
        assert_eq!(trimmed.models[10..20], models[..10]);

        let few = vec![model(1, false), model(2, true)];
        let (mut whole, bytes) = heartbeat(few.clone(), vec![refusal("needs\n20 GB".to_owned())]);
        trim(&mut whole, bytes);
        assert_eq!((&whole.models, whole.refusals.len()), (&few, 1), "as it was");

        let forged = HostModel { url: "hf://owner/\u{1b}[2J".to_owned(), ..model(3, true) };
        let refusals = vec![refusal("\u{1b}[2J".to_owned())];
        let (mut whole, bytes) = heartbeat(vec![forged, few[0].clone()], refusals);
        trim(&mut whole, bytes);
        assert_eq!((whole.models, whole.refusals.len()), (vec![few[0].clone()], 0));
    }
}
