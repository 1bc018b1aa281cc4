//! Texts that are not data, from one file for each language.

use std::collections::{BTreeSet, HashMap};

use toml::{Table, Value};

/// The texts of a file, by `section.key`.
#[derive(Debug, Default)]
pub struct Texts(HashMap<String, String>);

impl Texts {
    /// Reads a file of sections. It is a part of the program, and a test reads it: a file that is not TOML has no texts.
    pub fn read(file: &str) -> Self {
        let mut texts = HashMap::new();
        collect(&mut texts, "", file.parse().unwrap_or_default());
        Self(texts)
    }

    /// The text of a key.
    pub fn find(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All keys.
    pub fn keys(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }
}

/// Replaces `{name}` in a text by values.
pub fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_names_of_their_sections() {
        let texts = Texts::read("[a]\nb = \"x {y}\"\n[a.c]\nd = 1\n");
        assert_eq!(
            (texts.find("a.b"), texts.find("a.c.d"), texts.find("a")),
            (Some("x {y}"), Some("1"), None)
        );
        assert_eq!(fill(texts.find("a.b").expect("a text"), &[("y", "z"), ("w", "")]), "x z");
        assert_eq!(Texts::read("not TOML").keys(), BTreeSet::new());
    }
}
