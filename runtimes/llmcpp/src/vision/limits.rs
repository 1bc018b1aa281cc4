//! What llama.cpp can compute of pictures and sounds. It ends the process, and with it all jobs of the worker, for
//! some; these are refused, or extended until it can.

/// Maximum number of pixels of a picture: its copies must fit beside the jobs that share the worker's memory.
pub(super) const MAX_PIXELS: u64 = 16 << 20;

/// Maximum length of a picture's longer side, in lengths of the shorter one, as in transformers' `smart_resize`.
/// llama.cpp makes every side at least one embedding long, so a longer strip would get more embeddings than the
/// maximum.
pub(super) const MAX_RATIO: u32 = 200;

/// Maximum duration of a sound, seconds: its embeddings are computed without a pause, while other replies wait.
const MAX_SECONDS: usize = 600;

/// Maximum absolute value of a sample. The loudest is 1 by convention, and 32,768 in files that hold integers as
/// floats. The spectrum of far larger ones is infinite, and their embeddings are not numbers. Neither is a product with
/// them to which attention adds its mask, so they would spread to the other jobs, which share the cache.
const MAX_LEVEL: f32 = 65_536.0;

/// Checks the shape of a picture.
pub(super) fn check_shape(width: u32, height: u32) -> Result<(), String> {
    let (long, short) = (width.max(height), width.min(height));
    if long > short.saturating_mul(MAX_RATIO) {
        let limit = format!("one side may be at most {MAX_RATIO} times as long as the other");
        return Err(format!("it has {width} × {height} pixels, and {limit}"));
    }
    Ok(())
}

/// Checks the samples of a sound, of which there are `rate` in a second.
pub(super) fn check_samples(samples: &[f32], rate: u32) -> Result<(), String> {
    if samples.len() > MAX_SECONDS * rate as usize {
        return Err(format!("it is longer than {MAX_SECONDS} s"));
    }
    let Some(sample) = samples.iter().find(|sample| !(sample.abs() <= MAX_LEVEL)) else { return Ok(()) };
    Err(format!("it has a sample of {sample:e}, and the largest that can be computed is {MAX_LEVEL}"))
}

/// Appends silence until the last half minute of a sound lasts a tenth of a second. llama.cpp computes half minutes
/// one after the other, and ends the process if one of them has no frame.
pub(super) fn fill(samples: &mut Vec<f32>, rate: u32) {
    let (half_minute, least) = (30 * rate as usize, rate as usize / 10);
    let last = samples.len() % half_minute;
    if last != 0 && last < least {
        samples.resize(samples.len() - last + least, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_of_a_picture_is_at_most_two_hundred_times_the_other() {
        for (width, height, usable) in [
            (1, 1, true),
            (200, 1, true),
            (201, 1, false),
            (1, 200, true),
            (1, 201, false),
            (32_768, 164, true),
            (163, 32_768, false),
            (u32::MAX, u32::MAX, true),
        ] {
            assert_eq!(check_shape(width, height).is_ok(), usable, "{width} × {height}");
        }
        let problem = check_shape(3_000, 10).expect_err("a strip");
        assert_eq!(
            problem,
            "it has 3000 × 10 pixels, and one side may be at most 200 times as long as the other"
        );
    }

    #[test]
    fn sounds_are_short_and_their_samples_small() {
        for (sample, usable) in
            [(0.0, true), (-65_536.0, true), (65_537.0, false), (f32::INFINITY, false), (f32::NAN, false)]
        {
            assert_eq!(check_samples(&[0.5, sample], 16_000).is_ok(), usable, "{sample}");
        }
        assert!(check_samples(&[0.0; 600], 1).is_ok());
        assert_eq!(check_samples(&[0.0; 601], 1), Err("it is longer than 600 s".to_owned()));
    }

    #[test]
    fn the_last_half_minute_of_a_sound_is_long_enough() {
        for (samples, filled) in [
            (0, 0),
            (1, 1_600),
            (1_599, 1_600),
            (1_600, 1_600),
            (480_000, 480_000),
            (480_001, 481_600),
            (9_600_000, 9_600_000),
        ] {
            let mut sound = vec![0.5; samples];
            fill(&mut sound, 16_000);
            assert_eq!(sound.len(), filled, "{samples}");
        }
    }
}
