//! Noise that is equal for a seed on every machine.

use island_runtimes_kit::noise;

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

/// Noise of a seed.
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
        noise::normal([self.0, picture as u64, kind, step as u64], count)
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
