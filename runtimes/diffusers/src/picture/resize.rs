//! Pictures to another size by Lanczos' filter, in whole numbers as Pillow computes them: across, then down.

/// Bits behind the point of a weight.
const BITS: u32 = 32 - 8 - 2;
/// Reach of the filter, pixels.
const REACH: f64 = 3.0;
/// Numbers of a pixel.
const CHANNELS: usize = 3;

/// What one sample is made of: the first place, and the weights from there.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// A picture of `[height, width, 3]` in another size; no side is 0.
pub(super) fn resize(pixels: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let ((from_height, from_width), (height, width)) = (from, to);
    let wide = if width == from_width {
        pixels.to_vec()
    } else {
        across(pixels, from_width, &taps(from_width, width))
    };
    if height == from_height { wide } else { down(&wide, width * CHANNELS, &taps(from_height, height)) }
}

fn across(pixels: &[u8], from: usize, taps: &[Taps]) -> Vec<u8> {
    let mut resized = Vec::with_capacity(pixels.len() / from * taps.len());
    for row in pixels.chunks_exact(from * CHANNELS) {
        for Taps { first, weights } in taps {
            let mut sums = [1 << (BITS - 1); CHANNELS];
            for (pixel, weight) in row[first * CHANNELS..].chunks_exact(CHANNELS).zip(weights) {
                sums.iter_mut().zip(pixel).for_each(|(sum, byte)| *sum += i32::from(*byte) * weight);
            }
            resized.extend(sums.map(level));
        }
    }
    resized
}

fn down(pixels: &[u8], stride: usize, taps: &[Taps]) -> Vec<u8> {
    let mut resized = Vec::with_capacity(taps.len() * stride);
    for Taps { first, weights } in taps {
        let mut sums = vec![1 << (BITS - 1); stride];
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(weights) {
            sums.iter_mut().zip(row).for_each(|(sum, byte)| *sum += i32::from(*byte) * weight);
        }
        resized.extend(sums.into_iter().map(level));
    }
    resized
}

fn level(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

fn lanczos(x: f64) -> f64 {
    let sinc =
        |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
    if (-REACH..REACH).contains(&x) { sinc(x) * sinc(x / REACH) } else { 0.0 }
}

/// What samples are made of. The filter widens with the reduction, so that nothing between samples is lost.
fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let widening = scale.max(1.0);
    let reach = REACH * widening;
    let of = |sample: usize| {
        let middle = (sample as f64 + 0.5) * scale;
        let first = (middle - reach + 0.5).max(0.0) as usize;
        let end = ((middle + reach + 0.5) as usize).min(from);
        let weights: Vec<f64> =
            (first..end).map(|place| lanczos((place as f64 - middle + 0.5) / widening)).collect();
        let sum: f64 = weights.iter().sum();
        let whole = |weight: f64| (weight / sum * f64::from(1 << BITS)).round() as i32;
        Taps { first, weights: weights.into_iter().map(whole).collect() }
    };
    (0..to).map(of).collect()
}
