//! Attention, a block of rows at a time: the matrix of scores is never whole in memory.

use candle_core::{Result as Computed, Tensor, bail};
use pulp::Arch;
use rayon::prelude::*;

use super::{
    floats::Floats,
    math,
    product::{Matrix, product},
};

/// Scores per task.
const SCORES: usize = 1 << 18;

/// Attention of queries `[batch, rows, heads · width]` to keys and values `[batch, others, heads · width]`. With a causal mask a row attends to
/// itself and earlier rows.
pub fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    heads: usize,
    causal: bool,
) -> Computed<Tensor> {
    let ((batch, rows, channels), (key_batch, others, key_channels)) = (query.dims3()?, key.dims3()?);
    let fits = key_batch == batch && key_channels == channels && key.dims() == value.dims();
    if heads == 0 || channels % heads != 0 || !fits || others == 0 {
        bail!("{heads} heads do not fit {:?} and {:?}", query.dims(), key.dims());
    }
    let width = channels / heads;
    let scale = 1.0 / (width as f32).sqrt();
    let (queries, keys, values) = (Floats::of(query)?, Floats::of(key)?, Floats::of(value)?);
    let mut out = vec![0.0; queries.len()];
    let even = (batch * rows).div_ceil(rayon::current_num_threads());
    let block = (SCORES / others).clamp(16, 256).min(even.max(1));
    for (picture, out) in out.chunks_exact_mut(rows * channels).enumerate() {
        let queries = &queries[picture * rows * channels..][..rows * channels];
        let keys = &keys[picture * others * channels..][..others * channels];
        let values = &values[picture * others * channels..][..others * channels];
        out.par_chunks_mut(block * channels).enumerate().for_each_init(Vec::new, |scores, (at, out)| {
            let first = at * block;
            let count = out.len() / channels;
            scores.resize(count * others, 0.0);
            for head in 0..heads {
                let from = head * width;
                let query = Matrix::rows(&queries[first * channels + from..], channels);
                let key = Matrix::rows(&keys[from..], channels).transposed();
                product(scores, others, (count, others, width), query, key, false, scale, false);
                let inverses: Vec<f32> = scores
                    .chunks_exact_mut(others)
                    .enumerate()
                    .map(|(row, scores)| {
                        let seen = if causal { (first + row + 1).min(others) } else { others };
                        weigh(scores, seen)
                    })
                    .collect();
                let value = Matrix::rows(&values[from..], channels);
                let out = &mut out[from..];
                let size = (count, width, others);
                product(out, channels, size, Matrix::rows(scores, others), value, false, 1.0, false);
                for (row, inverse) in out.chunks_mut(channels).zip(inverses) {
                    row.iter_mut().take(width).for_each(|value| *value *= inverse);
                }
            }
        });
    }
    Tensor::from_vec(out, query.shape(), query.device())
}

/// Turns the first `seen` scores into weights and the others into zeros; returns the factor that normalizes their sum.
fn weigh(scores: &mut [f32], seen: usize) -> f32 {
    let (seen, unseen) = scores.split_at_mut(seen);
    unseen.fill(0.0);
    Arch::new().dispatch(|| {
        let greatest = math::greatest(seen);
        for score in seen.iter_mut() {
            *score = math::exp(*score - greatest);
        }
        1.0 / math::sum(seen, |weight| weight)
    })
}
