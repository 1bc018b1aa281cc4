//! Inputs that a graph needs beyond those of its task, where they can have only one value.

use ndarray::{Array2, ArrayD, Axis};
use ort::value::TensorElementType;

use crate::{Feed, Feeds, Input, filled};

/// Inputs with the shape of the tokens.
const TOKENS: [&str; 3] = ["input_ids", "inputs_embeds", "decoder_input_ids"];
const PIXELS: &str = "pixel_values";

/// The first of these inputs of a graph that a task which feeds `fed` lacks, and that has no default: every job would fail.
pub(crate) fn lacking<'n>(names: impl IntoIterator<Item = &'n str>, fed: &[&str]) -> Option<&'n str> {
    names.into_iter().find(|name| !fed.contains(name) && !has_default(name, fed))
}

/// Whether [`feed`] has this input where a task feeds `fed`.
fn has_default(name: &str, fed: &[&str]) -> bool {
    match name {
        "token_type_ids" | "attention_mask" | "position_ids" => {
            TOKENS.iter().any(|tokens| fed.contains(tokens))
        }
        "pixel_mask" => fed.contains(&PIXELS),
        "use_cache_branch" | "num_logits_to_keep" => true,
        name => name.starts_with("past_"),
    }
}

/// What determines the shapes of default inputs.
#[derive(Debug, Default)]
pub(crate) struct Known {
    batch: usize,
    /// `[B, S]` of the tokens, or of the embeddings instead.
    tokens: Option<[usize; 2]>,
    mask: Option<ArrayD<i64>>,
    pixels: Option<Vec<usize>>,
}

impl Known {
    pub(crate) fn of(feeds: &Feeds<'_>) -> Self {
        let mut known = Self { batch: 1, ..Self::default() };
        for (name, feed) in &feeds.0 {
            let shape: Vec<usize> = match feed {
                Feed::Ints(array) => array.shape().to_vec(),
                Feed::Floats(array) => array.shape().to_vec(),
                Feed::Bools(array) => array.shape().to_vec(),
                Feed::Held(value) => value.shape().iter().map(|&side| side.max(0) as usize).collect(),
            };
            match (name.as_str(), feed) {
                (name, _) if TOKENS.contains(&name) && shape.len() >= 2 => {
                    known.batch = shape[0];
                    known.tokens = Some([shape[0], shape[1]]);
                }
                ("attention_mask", Feed::Ints(mask)) => known.mask = Some(mask.clone()),
                (PIXELS, _) => {
                    known.batch = shape.first().copied().unwrap_or(1);
                    known.pixels = Some(shape);
                }
                _ => {}
            }
        }
        known
    }
}

pub(crate) fn feed<'v>(input: &Input, known: &Known) -> Option<Feed<'v>> {
    let tokens = known.tokens.map(|shape| shape.to_vec());
    match input.name.as_str() {
        "token_type_ids" => Some(Feed::Ints(filled(&tokens?, 0))),
        "attention_mask" => Some(Feed::Ints(filled(&tokens?, 1))),
        "position_ids" => positions(known).map(Feed::Ints),
        "pixel_mask" => {
            let pixels = known.pixels.as_ref()?;
            let mut shape = vec![pixels[0], *pixels.get(2)?, *pixels.get(3)?];
            // Exports with fixed dimensions contain the size of the mask.
            for (side, &declared) in shape.iter_mut().zip(&input.shape).skip(1) {
                if declared > 0 {
                    *side = declared as usize;
                }
            }
            Some(Feed::Ints(filled(&shape, 1)))
        }
        "use_cache_branch" => Some(Feed::Bools(filled(&[1], false))),
        "num_logits_to_keep" => Some(Feed::Ints(filled(&[], 0))),
        name if name.starts_with("past_") => Some(empty_cache(input, known.batch)),
        _ => None,
    }
}

/// The index of every token among the attended ones.
fn positions(known: &Known) -> Option<ArrayD<i64>> {
    let [batch, length] = known.tokens?;
    let mask = known.mask.as_ref().filter(|mask| mask.ndim() == 2 && mask.shape()[1] >= length);
    let Some(mask) = mask else {
        let count = Array2::from_shape_fn((batch, length), |(_, place)| place as i64);
        return Some(count.into_dyn());
    };
    let mut sums = mask.clone();
    sums.accumulate_axis_inplace(Axis(1), |&before, sum| *sum += before);
    let places = sums.mapv(|sum| (sum - 1).max(0));
    let skipped = mask.shape()[1] - length;
    Some(places.slice_axis(Axis(1), (skipped..).into()).into_owned())
}

/// An empty cache: any dimension but the first and the fixed ones is 0.
fn empty_cache<'v>(input: &Input, batch: usize) -> Feed<'v> {
    let side = |(place, &declared): (usize, &i64)| match declared {
        fixed if fixed >= 0 => fixed as usize,
        _ if place == 0 => batch,
        _ => 0,
    };
    let shape: Vec<usize> = input.shape.iter().enumerate().map(side).collect();
    if input.kind == TensorElementType::Int64 {
        return Feed::Ints(filled(&shape, 0));
    }
    Feed::Floats(filled(&shape, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_a_task_lacks_are_found() {
        let texts = ["input_ids", "attention_mask", "token_type_ids"];
        let of_texts = |names: &[&'static str]| lacking(names.iter().copied(), &texts);
        assert_eq!(of_texts(&["input_ids", "attention_mask", "token_type_ids", "position_ids"]), None);
        assert_eq!(of_texts(&["input_ids", "use_cache_branch", "past_key_values.0.key"]), None);
        assert_eq!(of_texts(&["input_ids", "bbox", "attention_mask"]), Some("bbox"));
        let longformer = ["input_ids", "attention_mask", "global_attention_mask"];
        assert_eq!(of_texts(&longformer), Some("global_attention_mask"));
        assert_eq!(lacking(["pixel_values", "pixel_mask"], &["pixel_values"]), None);
        assert_eq!(
            lacking(["images", "pixel_mask"], &["images"]),
            Some("pixel_mask"),
            "no pixels give its shape"
        );
        assert_eq!(lacking(["pixel_values", "input_ids"], &["pixel_values"]), Some("input_ids"));
        assert_eq!(
            lacking(["input_features", "attention_mask"], &["input_features"]),
            Some("attention_mask")
        );
    }

    #[test]
    fn what_has_a_default_is_fed() {
        let of =
            |name: &str| Input { name: name.to_owned(), kind: TensorElementType::Int64, shape: vec![-1, -1] };
        let feeds = Feeds::new()
            .ints("input_ids", filled(&[1, 2], 5_i64))
            .floats("pixel_values", filled(&[1, 3, 4, 4], 0.0_f32));
        let known = Known::of(&feeds);
        for name in [
            "token_type_ids",
            "attention_mask",
            "position_ids",
            "pixel_mask",
            "use_cache_branch",
            "num_logits_to_keep",
            "past_key_values.0.key",
            "bbox",
        ] {
            let is_fed = feed(&of(name), &known).is_some();
            assert_eq!(is_fed, has_default(name, &["input_ids", "pixel_values"]), "{name}");
            let is_fed = feed(&of(name), &Known::of(&Feeds::new())).is_some();
            assert_eq!(is_fed, has_default(name, &[]), "{name} alone");
        }
    }
}
