//! Seeds: the files of `corpus`, and small fixtures of other crates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{MAX_INPUT, SEPARATOR, Target};

/// Fixtures of another crate.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// A folder of the repository, searched with all folders in it.
    pub folder: &'static str,
    /// The end of their paths.
    pub end: &'static str,
    /// Files beside them that belong to the same input, in its order. One that is missing is empty.
    pub beside: &'static [&'static str],
}

/// One input, not changed yet.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The name of its file.
    pub name: String,
    /// Whether it must be accepted: files of `corpus` whose name does not begin with `crash-` or `refused-`. One that is refused by
    /// mistake would exercise little.
    pub is_valid: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// All seeds of a target, in the order of their paths.
pub fn seeds(target: &Target) -> Vec<Seed> {
    // Cargo runs tests in the folder of their package.
    let (own, root) = (Path::new("."), Path::new(".."));
    let own = files(&own.join("corpus").join(target.name));
    let mut seeds: Vec<Seed> = own.iter().map(|path| seed(path, &[])).collect();
    for seed in &mut seeds {
        seed.is_valid = !seed.name.starts_with("crash-") && !seed.name.starts_with("refused-");
    }
    for Files { folder, end, beside } in target.files {
        let found = files(&root.join(folder));
        let fitting = found.iter().filter(|path| path.to_str().is_some_and(|path| path.ends_with(end)));
        seeds.extend(fitting.map(|path| seed(path, beside)).filter(|seed| seed.bytes.len() <= MAX_INPUT));
    }
    seeds
}

fn seed(path: &Path, beside: &[&str]) -> Seed {
    let mut bytes = fs::read(path).expect("read a seed");
    for file in beside {
        bytes.extend(SEPARATOR);
        bytes.extend(fs::read(path.with_file_name("").join(file)).unwrap_or_default());
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Seed { name, bytes, is_valid: false }
}

/// The files in a folder and in all folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("list a folder").path()).collect();
    paths.sort();
    let inside = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    paths.into_iter().flat_map(inside).collect()
}

/// The files of an input, at most `N`. Those that are missing are empty.
pub fn parts<const N: usize>(mut input: &[u8]) -> [&[u8]; N] {
    let mut parts = [&b""[..]; N];
    for (index, part) in parts.iter_mut().enumerate() {
        let end = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        let Some(end) = end.filter(|_| index + 1 < N) else {
            *part = input;
            break;
        };
        *part = &input[..end];
        input = &input[end + SEPARATOR.len()..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_split_into_its_files() {
        assert_eq!(parts::<2>(b"one"), [&b"one"[..], b""]);
        assert_eq!(parts::<3>(b"one\n%%%%\n\n%%%%\nthree"), [&b"one"[..], b"", b"three"]);
        assert_eq!(parts::<2>(b"one\n%%%%\ntwo\n%%%%\nthree"), [&b"one"[..], b"two\n%%%%\nthree"]);
    }
}
