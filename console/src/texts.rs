//! Every text of the console that is not data, from one file for each language.

use std::{collections::HashMap, sync::LazyLock};

use toml::{Table, Value};

const ENGLISH: &str = include_str!("../texts/en.toml");

static TEXTS: LazyLock<HashMap<String, String>> = LazyLock::new(|| {
    let mut texts = HashMap::new();
    // The file is a part of the program, and a test reads it.
    collect(&mut texts, "", ENGLISH.parse().unwrap_or_default());
    texts
});

fn collect(texts: &mut HashMap<String, String>, prefix: &str, table: Table) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(table) => collect(texts, &key, table),
            Value::String(text) => drop(texts.insert(key, text)),
            other => drop(texts.insert(key, other.to_string())),
        }
    }
}

/// The text of a key, or the key itself where it has no text.
pub(crate) fn t(key: &str) -> &str {
    find(key).unwrap_or(key)
}

/// The text of a key.
pub(crate) fn find(key: &str) -> Option<&'static str> {
    TEXTS.get(key).map(String::as_str)
}

/// The text of a key, with `{name}` replaced by values.
pub(crate) fn fill(key: &str, values: &[(&str, &str)]) -> String {
    let mut text = t(key).to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Keys that the sources use as a whole: `t("…")`, `fill("…"`.
    fn used(folder: &Path, keys: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("read a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                used(&path, keys);
                continue;
            }
            let text = fs::read_to_string(&path).expect("read a file");
            for call in ["t(\"", "fill(\"", "text(\"", "heading(\"", "done(\""] {
                for (at, _) in text.match_indices(call) {
                    let is_own = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                    let key = text[at + call.len()..].split('"').next().unwrap_or_default();
                    if is_own && key.contains('.') && !key.ends_with('.') && !key.contains(['…', '{']) {
                        keys.insert(key.to_owned());
                    }
                }
            }
        }
    }

    #[test]
    fn every_key_that_is_used_has_a_text() {
        let root = Path::new(".");
        let mut keys = BTreeSet::new();
        used(&root.join("src"), &mut keys);
        used(&root.join("templates"), &mut keys);
        assert!(keys.len() > 100, "{}", keys.len());
        let missing: Vec<_> = keys.iter().filter(|key| find(key).is_none()).collect();
        assert!(missing.is_empty(), "texts/en.toml lacks {missing:?}");
    }

    #[test]
    fn every_state_has_a_text() {
        use island_protocol::{cargo::Category, job::JobStatus};
        let mut keys: Vec<String> = JobStatus::ALL.iter().map(|status| format!("status.{status}")).collect();
        keys.extend(Category::ALL.iter().map(|category| format!("category.{}", category.as_str())));
        let states = [
            ("island", &["online", "draining", "paused", "suspended", "offline"][..]),
            ("publication", &["submitted", "approved", "rejected", "withdrawn", "replaced"]),
            ("payout", &["exported", "confirmed", "cancelled"]),
            ("quota", &["day", "month"]),
        ];
        keys.extend(states.iter().flat_map(|(of, all)| all.iter().map(move |state| format!("{of}.{state}"))));
        let missing: Vec<_> = keys.iter().filter(|key| find(key).is_none()).collect();
        assert!(missing.is_empty(), "texts/en.toml lacks {missing:?}");
    }

    #[test]
    fn values_take_their_places() {
        assert!(ENGLISH.parse::<Table>().is_ok());
        assert_eq!(fill("no.such.{x}.key", &[("x", "other")]), "no.such.other.key");
    }
}
