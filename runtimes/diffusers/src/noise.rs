//! Noise that is equal for a seed on every machine.

use chacha20::ChaCha20Rng;
use rand::{Rng as _, SeedableRng as _};

/// Purpose of noise. Each has its own stream, so that one more draw for one changes no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The initial latents, or the noise added to those of an image.
    Start,
    /// The sample of an image's latent distribution.
    Posterior,
    /// The same for the image without its masked part.
    MaskedPosterior,
    /// Noise that a scheduler adds at a step.
    Step(usize),
}

/// A source of noise.
pub trait Noise: Send + Sync {
    /// `count` standard normal numbers for the image with this index.
    fn draw(&self, picture: usize, purpose: Purpose, count: usize) -> Vec<f32>;
}

/// Noise of a seed: ChaCha with 20 rounds, then Box-Muller.
#[derive(Debug, Clone, Copy)]
pub struct Seeded(pub u64);

impl Noise for Seeded {
    fn draw(&self, picture: usize, purpose: Purpose, count: usize) -> Vec<f32> {
        let (kind, step) = match purpose {
            Purpose::Start => (0, 0),
            Purpose::Posterior => (1, 0),
            Purpose::MaskedPosterior => (2, 0),
            Purpose::Step(step) => (3, step),
        };
        let mut seed = [0; 32];
        let words = [self.0, picture as u64, kind, step as u64];
        seed.as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(words)
            .for_each(|(bytes, word)| *bytes = word.to_le_bytes());
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_normal_and_depends_on_all_arguments() {
        let noise = Seeded(7).draw(0, Purpose::Start, 100_000);
        let mean = noise.iter().sum::<f32>() / noise.len() as f32;
        let variance = noise.iter().map(|value| value * value).sum::<f32>() / noise.len() as f32;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
        assert_eq!(noise[..9], Seeded(7).draw(0, Purpose::Start, 9));
        for other in [
            Seeded(8).draw(0, Purpose::Start, 9),
            Seeded(7).draw(1, Purpose::Start, 9),
            Seeded(7).draw(0, Purpose::Posterior, 9),
            Seeded(7).draw(0, Purpose::Step(0), 9),
            Seeded(7).draw(0, Purpose::Step(1), 9),
        ] {
            assert_ne!(noise[..9], other);
        }
    }

    /// Computed independently: ChaCha20 and the formula, in Python.
    #[test]
    fn noise_of_a_seed_never_changes() {
        let noise = Seeded(42).draw(0, Purpose::Start, 4);
        assert_eq!(noise, [-0.355_009_53, -1.273_099, 0.495_113_94, 0.681_501_45]);
    }
}
