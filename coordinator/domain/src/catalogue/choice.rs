//! Chooses the Cargo for a chat model name.
//!
//! A slug or alias means that Cargo, and no other. The names of well-known models of others are not that strict: such a
//! name means the Cargo that has it as an alias, with or without the date at its end, and where no Cargo has it the one
//! nearest to the size that the name suggests. An unknown name, and a well-known one whose Cargo no Island can serve now,
//! mean the best language model that an Island can serve: warm before on disk before to be downloaded, then the smaller,
//! or for a well-known name the nearest in size to its Cargo; `llm-chat`, the model that comes with the project, is chosen
//! last. A published Cargo serves only those who name it. A name that was evidently meant for a certain model, such as a
//! misspelled slug, means none ([`mistaken`]).

mod names;
pub mod speech;

use std::{collections::HashMap, sync::Arc};

use island_protocol::ids::Slug;

use super::{Cargo, Catalogue};
use crate::placement::Nearness;

/// The model that comes with the project.
const SHIPPED: &str = "llm-chat";

/// Well-known names and the size, in megabytes of main memory, of the model that each means. The last one means the
/// largest.
const WELL_KNOWN: [(&str, u64); 5] = [
    ("gpt-3.5-turbo", 0),
    ("gpt-4o-mini", 3_000),
    ("gpt-4", 6_000),
    ("gpt-4-turbo", 8_000),
    ("gpt-4o", u64::MAX),
];

/// Words in other well-known names, and the size that each suggests, the most specific first.
const WORDS: [(&str, u64); 6] = [
    ("nano", 1_300),
    ("lite", 1_300),
    ("mini", 5_000),
    ("flash", 5_000),
    ("haiku", 5_000),
    ("instant", 5_000),
];
/// What a well-known name without such a word suggests: a model that fills a GPU of 24 GB.
const LARGE_MB: u64 = 24_000;

/// How names of well-known models of others begin.
const FOREIGN: [&str; 11] =
    ["gpt-3", "gpt-4", "gpt-5", "gpt-6", "chatgpt-", "claude-", "gemini-", "o1-", "o3-", "o4-", "codestral"];
/// Those that have no suffix.
const FOREIGN_WHOLE: [&str; 3] = ["o1", "o3", "o4"];

/// Whether a name is that of a well-known model of others.
fn is_foreign(name: &str) -> bool {
    FOREIGN.iter().any(|begin| name.starts_with(begin)) || FOREIGN_WHOLE.contains(&name)
}

/// A name without the date at its end: `-2024-08-06` or `-20241022`, or `-latest`.
fn undated(name: &str) -> &str {
    let name = name.strip_suffix("-latest").unwrap_or(name);
    let has_form = |date: &str, form: &str| {
        date.len() == form.len()
            && date
                .bytes()
                .zip(form.bytes())
                .all(|(byte, form)| if form == b'0' { byte.is_ascii_digit() } else { byte == form })
    };
    let cut = ["-0000-00-00", "-00000000"].into_iter().find_map(|form| {
        let (rest, date) = name.split_at_checked(name.len().checked_sub(form.len())?)?;
        has_form(date, form).then_some(rest)
    });
    cut.unwrap_or(name)
}

/// Model names of OpenAI that clients of `/images/generations` send by default.
const IMAGE_MODELS: [&str; 6] =
    ["dall-e-2", "dall-e-3", "gpt-image-1", "gpt-image-1-mini", "gpt-image-1.5", "auto"];

/// Model names of OpenAI for speech.
const VOICE_MODELS: [&str; 3] = ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"];

/// Whether a name is one of OpenAI's for models that make images, with or without a date. They mean any Cargo that does.
pub fn is_image_model(name: &str) -> bool {
    IMAGE_MODELS.contains(&undated(name))
}

/// Whether a name is one of OpenAI's for models that speak, with or without a date. They mean any Cargo that does.
pub fn is_voice_model(name: &str) -> bool {
    VOICE_MODELS.contains(&undated(name))
}

/// Whether a name is one of OpenAI's for models that moderate. They mean any Cargo that does.
pub fn is_moderation_model(name: &str) -> bool {
    ["omni-moderation-", "text-moderation-"].iter().any(|begin| name.starts_with(begin))
}

/// Whether a name is one of Cohere's or Jina's for models that rank documents. They mean any Cargo that does.
pub fn is_ranking_model(name: &str) -> bool {
    name == "rerank" || ["rerank-", "jina-reranker-"].iter().any(|begin| name.starts_with(begin))
}

/// Whether a name means a model of the network's choice, so that no account may publish a Cargo of that name.
pub(super) fn is_reserved(name: &str) -> bool {
    name == SHIPPED
        || is_image_model(name)
        || is_voice_model(name)
        || is_moderation_model(name)
        || is_ranking_model(name)
        || speech::size_of(name).is_some()
        || is_foreign(name)
}

/// Whether a name means a certain model, served or not.
pub fn is_known(catalogue: &Catalogue, name: &str) -> bool {
    catalogue.named(name).is_some_and(|cargo| cargo.is_chat())
        || alias(catalogue, name).is_some()
        || well_known(catalogue, name).is_some()
}

/// Maximum number of names in an error.
const MAX_NAMES: usize = 3;

/// The nearest names of models if a name was meant for a certain model and is not its name: a slug with a tag, an owner or a variant,
/// a misspelled one, the address of a file, or a Cargo that is not a language model. Returns `None` if the name leaves the choice to
/// the network.
pub fn mistaken<'c>(catalogue: &'c Catalogue, name: &str) -> Option<Vec<&'c str>> {
    let stem = names::stem(name);
    if is_foreign(name) || is_foreign(&stem) {
        return None;
    }
    let known = catalogue.names().filter(|(_, cargo)| cargo.is_chat());
    let mut near: Vec<(usize, &str)> =
        known.filter_map(|(known, _)| Some((names::nearness(&stem, known)?, known))).collect();
    near.sort_unstable();
    near.truncate(MAX_NAMES);
    let is_certain = !near.is_empty() || names::is_address(name) || catalogue.named(name).is_some();
    is_certain.then(|| near.into_iter().map(|(_, name)| name).collect())
}

/// Whether one of these names is that of the Cargo, with or without a date at its end.
pub fn is_named(catalogue: &Catalogue, names: &[String], cargo: &Cargo) -> bool {
    let is_it = |name: &str| catalogue.named(name).is_some_and(|named| named.entry.slug == cargo.entry.slug);
    names.iter().any(|name| is_it(name) || (is_foreign(name) && is_it(undated(name))))
}

/// How near the files of each language model are to the nearest Island that can serve it.
pub type Usable = HashMap<Slug, Nearness>;

/// The Cargo for a model name. Returns `None` only if the catalogue has no language model.
pub fn choose<'c>(catalogue: &'c Catalogue, model: &str, usable: &Usable) -> Option<&'c Arc<Cargo>> {
    let named = if is_foreign(model) { catalogue.get(model) } else { catalogue.named(model) };
    if let Some(cargo) = named.filter(|cargo| cargo.is_chat()) {
        return Some(cargo);
    }
    let well_known = alias(catalogue, model).or_else(|| well_known(catalogue, model));
    let servable = well_known.filter(|cargo| usable.contains_key(&cargo.entry.slug));
    let size = well_known.map_or(0, |cargo| cargo.entry.required_ram_mb);
    servable
        .or_else(|| best(catalogue, usable, size))
        .or(well_known)
        .or_else(|| catalogue.get(SHIPPED))
        .or_else(|| models(catalogue).next())
}

/// The Cargo that has the name of a well-known model as an alias.
fn alias<'c>(catalogue: &'c Catalogue, model: &str) -> Option<&'c Arc<Cargo>> {
    let name = Some(model).filter(|model| is_foreign(model))?;
    let found = catalogue.named(name).or_else(|| catalogue.named(undated(name)));
    found.filter(|cargo| cargo.is_chat())
}

/// The language model that a well-known name means by its size, whether or not it can be served now.
fn well_known<'c>(catalogue: &'c Catalogue, model: &str) -> Option<&'c Arc<Cargo>> {
    let size = suggested_mb(model)?;
    models(catalogue)
        .filter(|cargo| cargo.entry.slug.as_str() != SHIPPED)
        .min_by_key(|cargo| cargo.entry.required_ram_mb.abs_diff(size))
}

/// The size that a well-known name suggests, in megabytes of main memory.
fn suggested_mb(model: &str) -> Option<u64> {
    let name = undated(model);
    if let Some((_, size)) = WELL_KNOWN.iter().find(|(known, _)| *known == name) {
        return Some(*size);
    }
    if !is_foreign(model) {
        return None;
    }
    if name.starts_with("gpt-3") {
        return Some(0);
    }
    let of_word = WORDS.iter().find(|(word, _)| name.split('-').any(|part| part == *word));
    Some(of_word.map_or(LARGE_MB, |(_, size)| *size))
}

/// The best of the models that an Island can serve; of equally near ones that whose size is nearest to `size`.
fn best<'c>(catalogue: &'c Catalogue, usable: &Usable, size: u64) -> Option<&'c Arc<Cargo>> {
    let servable = models(catalogue).filter_map(|cargo| Some((cargo, *usable.get(&cargo.entry.slug)?)));
    let key = |(cargo, nearness): &(&Arc<Cargo>, Nearness)| {
        (cargo.entry.slug.as_str() == SHIPPED, *nearness, cargo.entry.required_ram_mb.abs_diff(size))
    };
    servable.min_by_key(key).map(|(cargo, _)| cargo)
}

fn models(catalogue: &Catalogue) -> impl Iterator<Item = &Arc<Cargo>> {
    catalogue.own().filter(|cargo| cargo.is_language_model())
}
