//! The tags `generation` and `endgeneration`, with which templates mark what a model writes. They are for training, and print nothing.

use std::borrow::Cow;

/// The template with blocks that have a scope of their own, as these have in the library, in place of the tags.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("endgeneration") {
        return Cow::Borrowed(source);
    }
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        result.push_str(before);
        let length = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(length);
        match tag.trim_matches(['{', '}', '%', '-', '+']).trim() {
            name @ ("generation" | "endgeneration") => {
                let block = if name == "generation" { "with" } else { "endwith" };
                result.push_str(&tag.replacen(name, block, 1));
            }
            _ => result.push_str(tag),
        }
        rest = after;
    }
    result.push_str(rest);
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_are_replaced() {
        let source =
            "generation {%- generation -%}{{ 'generation' }}{% if generation %}{%endgeneration+%}{% x";
        let expected = "generation {%- with -%}{{ 'generation' }}{% if generation %}{%endwith+%}{% x";
        assert_eq!(without_generation_tags(source), expected);
        assert!(matches!(without_generation_tags("{% generation %}"), Cow::Borrowed(_)));
    }
}
