//! Scalar functions in a form that compilers vectorize, accurate to the last bit or two.

/// Independent partial sums, since a sum in strict order cannot be vectorized.
pub(super) const LANES: usize = 16;

/// Rounds to integers when added.
const ROUNDER: f32 = 12_582_912.0;

/// The exponential function, within two units in the last place.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
#[expect(clippy::excessive_precision, reason = "ln 2 in two parts, and a minimax polynomial")]
pub(super) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.3, 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let whole = shifted - ROUNDER;
    let rest = x - whole * 0.693_359_375 + whole * 2.121_944_4e-4;
    let tail = 1.987_569_2e-4;
    let tail = tail * rest + 1.398_199_9e-3;
    let tail = tail * rest + 8.333_452e-3;
    let tail = tail * rest + 4.166_579_6e-2;
    let tail = tail * rest + 0.166_666_65;
    let tail = tail * rest + 0.5;
    let value = tail * rest * rest + rest + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23;
    value * f32::from_bits(exponent)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x · Φ(x)` by the error function, within 2e-7.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
pub(super) fn gelu(x: f32) -> f32 {
    // Abramowitz and Stegun 7.1.26, of the absolute argument; the sign follows by symmetry.
    let size = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * size);
    let tail = 1.061_405_4 * t - 1.453_152;
    let tail = tail * t + 1.421_413_7;
    let tail = tail * t - 0.284_496_74;
    let tail = (tail * t + 0.254_829_6) * t * exp(-size * size);
    // With Φ(|x|) = 1 - tail / 2; for negative numbers x · tail / 2 has no cancellation.
    let half = 0.5 * tail * x;
    if x < 0.0 { half } else { x - half }
}

/// The sum of numbers.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
pub(super) fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += of(*value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|value| of(*value)).sum::<f32>()
}

/// The maximum.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled for the instructions of its caller")]
pub(super) fn greatest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}
