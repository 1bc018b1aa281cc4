//! Noise that is equal for a key on every machine.

use chacha20::ChaCha20Rng;
use rand::{Rng as _, SeedableRng as _};

/// `count` standard normal numbers: ChaCha with 20 rounds, then Box-Muller.
pub fn normal(key: [u64; 4], count: usize) -> Vec<f32> {
    let mut seed = [0; 32];
    let words = seed.as_chunks_mut::<8>().0;
    words.iter_mut().zip(key).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    let mut bits = ChaCha20Rng::from_seed(seed);
    // The center of each of 2^53 parts of (0, 1): neither end is ever drawn.
    let mut share = || ((bits.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let mut noise = Vec::with_capacity(count + 1);
    while noise.len() < count {
        let radius = (-2.0 * share().ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * share()).sin_cos();
        noise.extend([(radius * cosine) as f32, (radius * sine) as f32]);
    }
    noise.truncate(count);
    noise
}
