//! Which known names a name of a model may have been meant to be.

/// Minimum length of a known name that another one may begin with.
const MIN_BEGINNING: usize = 4;
/// Length of a known name for each mistake that is assumed to be a misspelling, and the maximum number of them.
const LETTERS_PER_MISTAKE: usize = 4;
const MAX_MISTAKES: usize = 2;
/// Letters of a stem that are compared: more than any known name has.
const MAX_LETTERS: usize = 100;
/// How addresses of files of models begin.
const HUBS: [&str; 2] = ["hf.co/", "huggingface.co/"];

/// The name of the model itself: without address, owner, tag, quantization and format, in lower case.
pub(super) fn stem(name: &str) -> String {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    let last = name.rsplit('/').next().unwrap_or(name);
    let plain = last.split([':', '@']).next().unwrap_or(last).to_lowercase();
    let plain = plain.strip_suffix(".gguf").unwrap_or(&plain);
    plain.strip_suffix("-gguf").unwrap_or(plain).to_owned()
}

/// Whether a name is the address of a certain file.
pub(super) fn is_address(name: &str) -> bool {
    name.contains("://") || HUBS.iter().any(|hub| name.starts_with(hub))
}

/// How near a stem is to a known name: by the number of misspelled letters, and last a name that it begins with. Returns `None` if it is
/// another name.
pub(super) fn nearness(stem: &str, known: &str) -> Option<usize> {
    let begins = known.len() >= MIN_BEGINNING
        && stem
            .strip_prefix(known)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()));
    let allowed = (known.chars().count() / LETTERS_PER_MISTAKE).min(MAX_MISTAKES);
    let mistakes = mistakes(stem, known, allowed);
    mistakes.or_else(|| begins.then_some(MAX_MISTAKES + 1))
}

/// The number of misspelled letters, if it is allowed.
fn mistakes(stem: &str, known: &str, allowed: usize) -> Option<usize> {
    let (stem, known): (Vec<char>, Vec<char>) =
        (stem.chars().take(MAX_LETTERS).collect(), known.chars().collect());
    // Most names differ in length by more, which costs nothing.
    let is_possible = stem.len().abs_diff(known.len()) <= allowed;
    is_possible.then(|| distance(&stem, &known)).filter(|mistakes| *mistakes <= allowed)
}

/// The number of letters that are missing, added, replaced or exchanged with the next one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: [Vec<usize>; 3] = [Vec::new(), Vec::new(), (0..=b.len()).collect()];
    for i in 1..=a.len() {
        rows.rotate_left(1);
        rows[2] = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[0][j - 2] + 1);
            }
            rows[2].push(least);
        }
    }
    rows[2][b.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stem_has_no_address_owner_tag_or_format() {
        for name in [
            "qwen3-8b",
            "Qwen3-8B",
            "qwen/qwen3-8b",
            "qwen3-8b:floor",
            "qwen3-8b@q4",
            "hf.co/Qwen/Qwen3-8B-GGUF:Q4_K_M",
            "https://huggingface.co/Qwen/Qwen3-8B-GGUF",
            "models/qwen3-8b.gguf",
        ] {
            assert_eq!(stem(name), "qwen3-8b", "{name}");
        }
        assert_eq!((stem(""), stem("a/"), stem(":x")), (String::new(), String::new(), String::new()));
    }

    #[test]
    fn addresses_are_told_from_names() {
        assert!(is_address("hf.co/a/b:Q4_K_M") && is_address("https://example.org/a.gguf"));
        assert!(!is_address("qwen/qwen3-8b") && !is_address("llama3:8b"));
    }

    #[test]
    fn misspellings_and_variants_are_near_others_are_not() {
        for (stem, known, expected) in [
            ("qwen3-8b", "qwen3-8b", Some(0)),
            ("qwen3-8b-instruct", "qwen3-8b", Some(3)),
            ("qwen2.5-7b-instuct", "qwen2.5-7b-instruct", Some(1)),
            ("qwen3_8b", "qwen3-8b", Some(1)),
            ("qwne3-8b", "qwen3-8b", Some(1)),
            ("qwen3-9b", "qwen3-8b", Some(1)),
            ("qwen38b", "qwen3-8b", Some(1)),
            ("qwen3-80b", "qwen3-8b", Some(1)),
            ("qewn3-9b", "qwen3-8b", Some(2)),
            ("mistral", "qwen3-8b", None),
            ("whatever", "half-b", None),
            ("minimal", "sim", None),
            ("best", "rest-long", None),
            ("aut", "out", None),
            ("", "half", None),
        ] {
            assert_eq!(nearness(stem, known), expected, "{stem} and {known}");
        }
    }

    proptest! {
        #[test]
        fn a_distance_is_symmetric_and_bounded(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let mistakes = distance(&a, &b);
            prop_assert_eq!(mistakes, distance(&b, &a));
            prop_assert_eq!(mistakes == 0, a == b);
            prop_assert!(mistakes >= a.len().abs_diff(b.len()) && mistakes <= a.len().max(b.len()));
        }
    }
}
