//! What the console of a network and the local page of an Island share: a frame, blocks, one style, plots and texts (0128).
//!
//! | module | content |
//! | --- | --- |
//! | [`block`] | blocks, each with one template that escapes what people and models wrote |
//! | [`text_file`] | texts from files |
//! | [`static_files`] | the style, scripts and pictures, and the policy under which pages use them |
//! | [`check`] | what tests of pages share |
//!
//! `templates/shell.html` is the frame. A crate that extends it names the folder in its `askama.toml`, and has `frame` with `title`, `assets`,
//! `scripts` and `has_plots`.

pub mod block;
pub mod check;
pub mod static_files;
pub mod text_file;

use std::sync::LazyLock;

use text_file::Texts;

static SHARED: LazyLock<Texts> = LazyLock::new(|| Texts::read(include_str!("../texts/en.toml")));

/// The text of a key of these blocks, or the key itself where it has no text.
pub fn t(key: &str) -> &str {
    SHARED.find(key).unwrap_or(key)
}

/// The text of a key of these blocks.
pub fn find(key: &str) -> Option<&'static str> {
    SHARED.find(key)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_key_that_is_used_has_a_text() {
        let root = Path::new(".");
        let sources = ["src/block.rs", "src/block", "templates"].map(|path| root.join(path));
        let sources: Vec<&Path> = sources.iter().map(AsRef::as_ref).collect();
        let keys = check::keys(&sources, &["t(\""]);
        assert_eq!(keys, SHARED.keys(), "texts/en.toml has the keys that are used, and no others");
    }
}
