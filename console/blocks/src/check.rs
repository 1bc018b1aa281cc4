//! What tests of pages share.

use std::{collections::BTreeSet, fs, path::Path};

/// The keys that files, or all files in folders, use as a whole in calls that begin so: `t("…`.
pub fn keys(paths: &[&Path], calls: &[&str]) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for path in paths {
        if path.is_dir() {
            let entries =
                fs::read_dir(path).expect("read a folder").map(|entry| entry.expect("an entry").path());
            let entries: Vec<_> = entries.collect();
            let entries: Vec<&Path> = entries.iter().map(AsRef::as_ref).collect();
            keys.extend(self::keys(&entries, calls));
            continue;
        }
        let text = fs::read_to_string(path).expect("read a file");
        for call in calls {
            for (at, _) in text.match_indices(call) {
                let is_own = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let key = text[at + call.len()..].split('"').next().unwrap_or_default();
                if is_own && key.contains('.') && !key.ends_with('.') && !key.contains(['…', '{']) {
                    keys.insert(key.to_owned());
                }
            }
        }
    }
    keys
}

/// Checks that no template of a folder turns escaping off, or has a script or a style within the page.
pub fn escaping(folder: &Path) {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("templates") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a template");
        for forbidden in ["|safe", "| safe", "escape(\"none", "style=", "onclick", "<script>"] {
            assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "{} has no templates", folder.display());
}
