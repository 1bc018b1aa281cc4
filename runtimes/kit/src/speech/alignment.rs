//! When tokens are spoken: what some heads of a decoder attend to, as moments of the sound. Dynamic time warping gives each token a range of
//! moments, so that text and sound move forward together. The results are those of `transformers`.

use ndarray::{Array1, Array2, Array3, ArrayView2, s};
use serde_json::Value;

use crate::{
    error::{EngineError, invalid_model},
    keys::{CONFIG, GENERATION, unsupported},
    values::read,
};

/// Width of the median filter of a model that sets none.
const USUAL_WIDTH: u64 = 7;
/// Maximum width of the median filter.
const MAX_WIDTH: u64 = 99;
/// Maximum number of heads.
const MAX_HEADS: usize = 128;

/// A head of one of the decoder's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Index of the layer.
    pub layer: usize,
    /// Index in the layer.
    pub index: usize,
}

/// How a model finds the moments of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// The heads that attend to what is spoken; at least one.
    pub heads: Vec<Head>,
    /// Width of the median filter over moments.
    filter_width: usize,
}

impl Alignment {
    /// From `generation_config.json` and `config.json`. An error if they do not name the heads, or not in a supported way.
    pub fn of(generation: &Value, config: &Value) -> Result<Self, EngineError> {
        let width =
            |value: &Value| value.as_u64().filter(|width| !width.is_multiple_of(2) && *width <= MAX_WIDTH);
        let width = read(CONFIG.file, config, "median_filter_width", width)?.unwrap_or(USUAL_WIDTH);
        Ok(Self { heads: heads(generation, config)?, filter_width: width as usize })
    }

    /// The moment at which each token begins, by the `attention` to it: `[heads, tokens, moments]`, of which the first `length` moments have sound.
    pub fn moments(&self, attention: &Array3<f32>, length: usize) -> Vec<usize> {
        let (heads, tokens, moments) = attention.dim();
        if heads == 0 || tokens == 0 || moments == 0 {
            return vec![0; tokens];
        }
        let length = length.clamp(1, moments);
        let mut weights = Array2::<f32>::zeros((tokens, length));
        for head in attention.outer_iter() {
            let mut head = standardized(head.slice(s![.., ..length]));
            for mut row in head.rows_mut() {
                let smooth = filtered(&row.to_vec(), self.filter_width);
                row.assign(&Array1::from(smooth));
            }
            weights += &head;
        }
        let costs = weights.mapv(|weight| -weight / heads as f32);
        warped(&costs)
    }
}

/// The heads that a repository names: pairs of a layer and an index.
fn heads(generation: &Value, config: &Value) -> Result<Vec<Head>, EngineError> {
    const KEY: &str = "alignment_heads";
    let named = generation.get(KEY).filter(|value| !value.is_null());
    let named = named.ok_or_else(|| invalid_model(format!("{} has no {KEY}", GENERATION.file)))?;
    let count =
        |key: &str| Ok::<_, EngineError>(read(CONFIG.file, config, key, Value::as_u64)?.unwrap_or(u64::MAX));
    let (layers, each) = (count("decoder_layers")?, count("decoder_attention_heads")?);
    let below =
        |index: &Value, count: u64| index.as_u64().filter(|&index| index < count).map(|index| index as usize);
    let head = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([layer, index]) => Some(Head { layer: below(layer, layers)?, index: below(index, each)? }),
        _ => None,
    };
    let heads: Option<Vec<Head>> = named.as_array().and_then(|pairs| pairs.iter().map(head).collect());
    heads
        .filter(|heads| (1..=MAX_HEADS).contains(&heads.len()))
        .ok_or_else(|| unsupported(GENERATION.file, KEY, named))
}

/// The weights of each moment with a mean of 0 and a variance of 1 over all tokens. A moment to which all tokens attend alike counts as 0, where
/// the reference divides by 0.
fn standardized(head: ArrayView2<'_, f32>) -> Array2<f32> {
    let mut scaled = head.to_owned();
    for mut moment in scaled.columns_mut() {
        let count = moment.len() as f64;
        let mean = moment.iter().map(|&weight| f64::from(weight)).sum::<f64>() / count;
        let spread = moment.iter().map(|&weight| (f64::from(weight) - mean).powi(2)).sum::<f64>() / count;
        let spread = spread.sqrt();
        let deviation = |weight: f32| ((f64::from(weight) - mean) / spread) as f32;
        moment.mapv_inplace(|weight| if spread > 0.0 { deviation(weight) } else { 0.0 });
    }
    scaled
}

/// The median of each weight and those around it; at the ends the weights are reflected. A row that is shorter stays as it is.
fn filtered(row: &[f32], width: usize) -> Vec<f32> {
    let reach = width / 2;
    if row.len() <= reach {
        return row.to_vec();
    }
    let before = row[1..=reach].iter().rev();
    let after = row[row.len() - 1 - reach..row.len() - 1].iter().rev();
    let padded: Vec<f32> = before.chain(row).chain(after).copied().collect();
    let median = |around: &[f32]| {
        let mut around = around.to_vec();
        *around.select_nth_unstable_by(reach, f32::total_cmp).1
    };
    padded.windows(width).map(median).collect()
}

/// How a path arrives at a token and a moment.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// From the token and the moment before.
    Both,
    /// From the token before.
    Token,
    /// From the moment before.
    Moment,
}

/// The first moment of each token on the cheapest path from the first token and moment to the last ones. `costs` are `[tokens, moments]`.
fn warped(costs: &Array2<f32>) -> Vec<usize> {
    let (tokens, moments) = costs.dim();
    let mut totals = Array2::from_elem((tokens + 1, moments + 1), f32::INFINITY);
    let mut steps = Array2::from_elem((tokens + 1, moments + 1), Step::Moment);
    totals[(0, 0)] = 0.0;
    for moment in 1..=moments {
        for token in 1..=tokens {
            let both = totals[(token - 1, moment - 1)];
            let (other_token, other_moment) = (totals[(token - 1, moment)], totals[(token, moment - 1)]);
            // Equal totals are decided as in the reference.
            let (least, step) = if both < other_token && both < other_moment {
                (both, Step::Both)
            } else if other_token < both && other_token < other_moment {
                (other_token, Step::Token)
            } else {
                (other_moment, Step::Moment)
            };
            totals[(token, moment)] = least + costs[(token - 1, moment - 1)];
            steps[(token, moment)] = step;
        }
    }
    let mut begins = vec![0; tokens];
    let (mut token, mut moment) = (tokens, moments);
    while token > 0 && moment > 0 {
        begins[token - 1] = moment - 1;
        match steps[(token, moment)] {
            Step::Both => (token, moment) = (token - 1, moment - 1),
            Step::Token => token -= 1,
            Step::Moment => moment -= 1,
        }
    }
    begins
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn alignment(heads: usize, filter_width: usize) -> Alignment {
        Alignment { heads: (0..heads).map(|index| Head { layer: 0, index }).collect(), filter_width }
    }

    /// Attention that moves on by two moments with each token, with noise.
    fn attention(heads: usize, tokens: usize, moments: usize) -> Array3<f32> {
        Array3::from_shape_fn((heads, tokens, moments), |(head, token, moment)| {
            let noise = (token * 29 + moment * 17 + head * 13 + token * moment % 7 * 5) % 31;
            let is_spoken = moment.abs_diff(2 * token) <= 1;
            (noise + if is_spoken { 40 } else { 0 }) as f32
        })
    }

    #[test]
    fn tokens_begin_where_the_reference_finds_them() {
        // `_extract_token_timestamps` of transformers 4.57.
        let found = |heads, tokens, moments, length, width| {
            alignment(heads, width).moments(&attention(heads, tokens, moments), length)
        };
        assert_eq!(found(2, 6, 16, 16, 7), [0, 0, 3, 4, 6, 8]);
        assert_eq!(found(2, 6, 16, 16, 3), [0, 1, 3, 5, 7, 9]);
        assert_eq!(found(1, 6, 16, 16, 7), [0, 0, 3, 4, 8, 8]);
        assert_eq!(found(2, 6, 16, 10, 7), [0, 0, 3, 4, 6, 9], "the rest is behind the sound");
        assert_eq!(found(2, 4, 3, 3, 7), [0, 1, 2, 2], "too short for the filter");
    }

    #[test]
    fn a_text_without_sound_or_of_one_token_begins_with_its_window() {
        let two = alignment(2, 7);
        assert_eq!(two.moments(&attention(2, 3, 16), 0), [0, 0, 0]);
        assert_eq!(two.moments(&attention(2, 1, 16), 16), [0]);
        assert_eq!(two.moments(&Array3::zeros((2, 0, 16)), 16), [0_usize; 0]);
        assert_eq!(two.moments(&Array3::zeros((2, 3, 0)), 16), [0, 0, 0]);
        let alike = Array3::from_elem((2, 3, 16), 0.5);
        assert!(two.moments(&alike, 16).is_sorted(), "no moment divides by 0");
    }

    #[test]
    fn a_filter_takes_the_median_and_reflects_the_ends() {
        let row = [5.0, 1.0, 4.0, 2.0, 9.0, 3.0];
        assert_eq!(filtered(&row, 3), [1.0, 4.0, 2.0, 4.0, 3.0, 9.0]);
        assert_eq!(filtered(&row, 7), [2.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
        assert_eq!(filtered(&row, 1), row);
        assert_eq!(filtered(&row[..3], 7), row[..3]);
    }

    #[test]
    fn settings_that_cannot_be_used_are_named() {
        let config = json!({"decoder_layers": 2, "decoder_attention_heads": 4});
        let of = |generation: Value, config: &Value| {
            Alignment::of(&generation, config).map_err(|error| error.message())
        };
        let known = of(json!({"alignment_heads": [[1, 3], [0, 2]]}), &config).expect("two heads");
        assert_eq!(known.heads, [Head { layer: 1, index: 3 }, Head { layer: 0, index: 2 }]);
        assert_eq!(known.filter_width, 7);
        let absent = of(json!({"alignment_heads": null}), &config).expect_err("no heads");
        assert_eq!(absent, "generation_config.json has no alignment_heads");
        let invalid = json!([[], [[2, 0]], [[0, 4]], [[0, -1]], [[0]], "all"]);
        for heads in invalid.as_array().expect("a list") {
            let refused = of(json!({"alignment_heads": heads}), &config).expect_err("refused");
            assert!(refused.starts_with("generation_config.json: alignment_heads = "), "{refused}");
        }
        for width in [json!(0), json!(4), json!(-7), json!(101), json!("wide")] {
            let config = json!({"median_filter_width": width});
            let refused = of(json!({"alignment_heads": [[0, 0]]}), &config).expect_err("refused");
            assert!(refused.starts_with("config.json: median_filter_width = "), "{refused}");
        }
        let layers = json!({"decoder_layers": "2"});
        let refused = of(json!({"alignment_heads": [[0, 0]]}), &layers).expect_err("refused");
        assert_eq!(refused, "config.json: decoder_layers = \"2\" is not supported");
    }

    proptest! {
        /// Any attention gives each token a moment of the sound, in order.
        #[test]
        fn tokens_move_forward_with_the_sound(
            weights in proptest::collection::vec(prop_oneof![4 => 0.0_f32..1.0, 1 => Just(f32::NAN), 1 => Just(f32::INFINITY)], 2 * 5 * 9),
            length in 0_usize..12,
        ) {
            let attention = Array3::from_shape_vec((2, 5, 9), weights).expect("as many");
            let moments = alignment(2, 7).moments(&attention, length);
            prop_assert_eq!(moments.len(), 5);
            prop_assert!(moments.is_sorted());
            prop_assert!(moments.iter().all(|&moment| moment < length.clamp(1, 9)));
        }
    }
}
