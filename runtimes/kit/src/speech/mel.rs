//! Log-mel features, as Whisper reads them.

use std::{ops::RangeInclusive, sync::Arc};

use ndarray::{Array2, Array3, s};
use realfft::{RealFftPlanner, RealToComplex};
use serde_json::Value;

use crate::{
    error::{EngineError, invalid_model},
    keys::FEATURE_EXTRACTOR,
    repository::Repository,
    values::{count, read},
};

/// Maximum number of mel bands.
const MAX_BANDS: usize = 512;
/// Maximum length of a window in seconds.
const MAX_SECONDS: usize = 120;

/// Computes the features of one model.
pub struct LogMel {
    /// Sample rate.
    pub rate: u32,
    /// Samples between two frames.
    pub hop: usize,
    /// Samples of one window, which the model reads at once.
    pub window: usize,
    /// Samples of one frame.
    frame: usize,
    shape: Vec<f32>,
    /// The weight of each frequency in each mel band.
    filters: Array2<f32>,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl LogMel {
    /// With the settings of `preprocessor_config.json`.
    pub fn load(repository: &Repository) -> Result<Self, EngineError> {
        Self::fitted(repository, None)
    }

    /// With the settings of `preprocessor_config.json`; those it lacks follow from the mel bands and frames of a window, if they are known.
    pub fn fitted(repository: &Repository, known: Option<(usize, usize)>) -> Result<Self, EngineError> {
        let settings = super::features(repository)?;
        let number = |name: &str, otherwise: usize, fits: RangeInclusive<usize>| {
            let number = |value: &Value| count(value).filter(|number| fits.contains(number));
            Ok::<_, EngineError>(read(FEATURE_EXTRACTOR.file, &settings, name, number)?.unwrap_or(otherwise))
        };
        let rate = number("sampling_rate", 16_000, 8000..=48_000)?;
        let hop = number("hop_length", 160, 1..=rate)?;
        let frame = number("n_fft", 400, 16..=8192)?;
        let bands = number("feature_size", known.map_or(80, |(bands, _)| bands), 1..=MAX_BANDS)?;
        let usual = known.map_or(30 * rate, |(_, frames)| frames.saturating_mul(hop));
        let window = match number("chunk_length", 0, 1..=MAX_SECONDS)? {
            0 => usual,
            seconds => seconds * rate,
        };
        // What the file lacks follows from the model.
        if !(1..=MAX_BANDS).contains(&bands) || !(hop..=MAX_SECONDS * rate).contains(&window) {
            return Err(invalid_model(format!(
                "{}: the model reads {bands} bands and {window} samples at once",
                FEATURE_EXTRACTOR.file
            )));
        }
        let turn = |n: usize| n as f64 / frame as f64 * std::f64::consts::TAU;
        Ok(Self {
            rate: rate as u32,
            hop,
            window,
            frame,
            shape: (0..frame).map(|n| (0.5 - 0.5 * turn(n).cos()) as f32).collect(),
            filters: filters(bands, frame / 2 + 1, rate as f64),
            transform: RealFftPlanner::new().plan_fft_forward(frame),
        })
    }

    /// Number of mel bands.
    pub fn bands(&self) -> usize {
        self.filters.nrows()
    }

    /// Features `[bands, frames]` of samples, of whole windows or of audio of any length.
    pub fn extract(&self, samples: &[f32]) -> Array2<f32> {
        let frames = samples.len() / self.hop;
        let half = self.frame / 2;
        let mut spectrogram = Array2::<f32>::zeros((self.filters.nrows(), frames));
        let (mut input, mut output) = (self.transform.make_input_vec(), self.transform.make_output_vec());
        let mut power = ndarray::Array1::<f32>::zeros(output.len());
        for index in 0..frames {
            for (place, value) in input.iter_mut().enumerate() {
                let at = (index * self.hop + place) as isize - half as isize;
                *value = samples[reflected(at, samples.len())] * self.shape[place];
            }
            // The lengths are those of the plan.
            let _ = self.transform.process(&mut input, &mut output);
            power.iter_mut().zip(&output).for_each(|(power, value)| *power = value.norm_sqr());
            let energies = self.filters.dot(&power);
            let mut column = spectrogram.column_mut(index);
            column.iter_mut().zip(&energies).for_each(|(level, &energy)| *level = energy.max(1e-10).log10());
        }
        let maximum = spectrogram.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        spectrogram.mapv_inplace(|energy| (energy.max(maximum - 8.0) + 4.0) / 4.0);
        spectrogram
    }

    /// The window `[1, bands, frames]` of a spectrogram from frame `begin`, padded with zeros.
    pub fn window_of(&self, spectrogram: &Array2<f32>, begin: usize) -> Array3<f32> {
        let frames = self.window / self.hop;
        let end = (begin + frames).min(spectrogram.ncols());
        let mut window = Array3::zeros((1, spectrogram.nrows(), frames));
        window.slice_mut(s![0, .., ..end - begin]).assign(&spectrogram.slice(s![.., begin..end]));
        window
    }
}

impl std::fmt::Debug for LogMel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogMel")
            .field("rate", &self.rate)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// Reflects an index beyond the ends, without repeating the first or the last sample.
fn reflected(at: isize, count: usize) -> usize {
    let period = 2 * (count as isize - 1).max(1);
    let at = at.rem_euclid(period);
    (if at < count as isize { at } else { period - at }) as usize
}

/// Triangles of equal area, evenly spaced on Slaney's mel scale up to 8 kHz.
fn filters(bands: usize, frequencies: usize, rate: f64) -> Array2<f32> {
    let top = 8000.0_f64.min(rate / 2.0);
    let corner = |n: usize| hertz(pitch(top) * n as f64 / (bands + 1) as f64);
    let corners: Vec<f64> = (0..bands + 2).map(corner).collect();
    Array2::from_shape_fn((bands, frequencies), |(row, column)| {
        let frequency = rate / 2.0 * column as f64 / (frequencies - 1) as f64;
        let (low, middle, high) = (corners[row], corners[row + 1], corners[row + 2]);
        let rising = (frequency - low) / (middle - low);
        let falling = (high - frequency) / (high - middle);
        (rising.min(falling).max(0.0) * 2.0 / (high - low)) as f32
    })
}

/// Slaney's mel scale: linear below 1 kHz, logarithmic above.
fn pitch(hertz: f64) -> f64 {
    if hertz < 1000.0 { 3.0 * hertz / 200.0 } else { 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4_f64.ln() }
}

fn hertz(pitch: f64) -> f64 {
    if pitch < 15.0 { 200.0 * pitch / 3.0 } else { 1000.0 * ((pitch - 15.0) * 6.4_f64.ln() / 27.0).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mel_scale_is_invertible() {
        for frequency in [0.0, 300.0, 999.0, 1000.0, 4000.0, 8000.0] {
            assert!((hertz(pitch(frequency)) - frequency).abs() < 1e-6);
        }
    }

    #[test]
    fn indices_are_reflected_at_the_ends() {
        let seen: Vec<usize> = (-3..8).map(|at| reflected(at, 5)).collect();
        assert_eq!(seen, [3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1]);
    }
}
