//! Images as planes of numbers, for drivers, and as rows of pixels, for the library.

use half::f16;
use ndarray::{Array4, ArrayD, ArrayView4, Ix4};

use crate::package::interface::Color;

/// Pixel formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Blue, green, red and alpha, one byte each.
    Bgra,
    /// One byte of grayscale.
    Gray,
    /// Grayscale in f16.
    GrayHalf,
}

impl Format {
    /// The format of a number in the library: four characters.
    pub fn of_code(code: u32) -> Option<Self> {
        Some(match &code.to_be_bytes() {
            b"BGRA" => Self::Bgra,
            b"L008" => Self::Gray,
            b"L00h" => Self::GrayHalf,
            _ => return None,
        })
    }

    /// Its number in the library.
    pub fn code(self) -> u32 {
        u32::from_be_bytes(*match self {
            Self::Bgra => b"BGRA",
            Self::Gray => b"L008",
            Self::GrayHalf => b"L00h",
        })
    }

    /// Bytes of a pixel.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bgra => 4,
            Self::Gray => 1,
            Self::GrayHalf => 2,
        }
    }

    /// Channels of a model's input.
    pub fn channels(self) -> usize {
        if self == Self::Bgra { 3 } else { 1 }
    }
}

/// Layout of an image in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Pixel format.
    pub format: Format,
    /// Width.
    pub width: usize,
    /// Height.
    pub height: usize,
    /// Row stride in bytes.
    pub step: usize,
}

impl Rows {
    /// Bytes of a row without padding.
    fn used(&self) -> usize {
        self.width * self.format.bytes()
    }

    /// Whether an image of this layout fits this number of bytes without overlapping rows.
    fn fit(&self, bytes: usize) -> Result<(), String> {
        let end = self
            .height
            .saturating_sub(1)
            .checked_mul(self.step)
            .and_then(|last| last.checked_add(self.used()));
        if self.step > 0 && self.used() <= self.step && end.is_some_and(|end| end <= bytes) {
            return Ok(());
        }
        Err(format!("an image {self:?} does not fit {bytes} bytes"))
    }
}

/// The index of a channel among a pixel's bytes; programs count channels in the order of their description.
fn place(color: Color, channel: usize) -> usize {
    if color == Color::Bgr { channel } else { 2 - channel }
}

/// Writes `[1, channels, height, width]`, 0 to 255, to memory.
pub fn draw(planes: &ArrayD<f32>, color: Color, memory: &mut [u8], rows: Rows) -> Result<(), String> {
    let Rows { format, width, height, step } = rows;
    rows.fit(memory.len())?;
    let wanted = [1, format.channels(), height, width];
    let planes: ArrayView4<'_, f32> = match planes.view().into_dimensionality::<Ix4>() {
        Ok(planes) if planes.shape() == wanted => planes,
        _ => return Err(format!("an array {:?} is not an image {wanted:?}", planes.shape())),
    };
    for (y, row) in memory.chunks_mut(step).take(height).enumerate() {
        for (x, pixel) in row[..rows.used()].chunks_exact_mut(format.bytes()).enumerate() {
            match format {
                Format::Bgra => {
                    for channel in 0..3 {
                        pixel[place(color, channel)] = level(planes[[0, channel, y, x]]);
                    }
                    pixel[3] = 255;
                }
                Format::Gray => pixel[0] = level(planes[[0, 0, y, x]]),
                Format::GrayHalf => pixel.copy_from_slice(&f16::from_f32(planes[[0, 0, y, x]]).to_ne_bytes()),
            }
        }
    }
    Ok(())
}

/// A level as a byte.
fn level(number: f32) -> u8 {
    number.round().clamp(0.0, 255.0) as u8
}

/// Reads memory as `[1, channels, height, width]`, 0 to 255.
pub fn see(memory: &[u8], color: Color, rows: Rows) -> Result<ArrayD<f32>, String> {
    let Rows { format, width, height, step } = rows;
    rows.fit(memory.len())?;
    let number = |(_, channel, y, x): (usize, usize, usize, usize)| {
        let pixel = &memory[y * step + x * format.bytes()..][..format.bytes()];
        match format {
            Format::Bgra => f32::from(pixel[place(color, channel)]),
            Format::Gray => f32::from(pixel[0]),
            Format::GrayHalf => f16::from_ne_bytes([pixel[0], pixel[1]]).to_f32(),
        }
    };
    Ok(Array4::from_shape_fn((1, format.channels(), height, width), number).into_dyn())
}

#[cfg(test)]
mod tests {
    use ndarray::IxDyn;

    use super::*;

    #[test]
    fn channels_have_the_library_order() {
        let planes = ArrayD::from_shape_vec(IxDyn(&[1, 3, 1, 2]), vec![10.0, 11.0, 20.0, 21.4, 300.0, -1.0]);
        let planes = planes.expect("six");
        let rows = Rows { format: Format::Bgra, width: 2, height: 1, step: 12 };
        let mut memory = [7; 12];
        draw(&planes, Color::Rgb, &mut memory, rows).expect("fits");
        assert_eq!(memory, [255, 20, 10, 255, 0, 21, 11, 255, 7, 7, 7, 7]);
        draw(&planes, Color::Bgr, &mut memory, rows).expect("fits");
        assert_eq!(memory[..4], [10, 20, 255, 255]);
    }

    #[test]
    fn written_image_is_read_back() {
        for (format, color) in [
            (Format::Bgra, Color::Rgb),
            (Format::Bgra, Color::Bgr),
            (Format::Gray, Color::Gray),
            (Format::GrayHalf, Color::Gray),
        ] {
            let rows = Rows { format, width: 3, height: 2, step: 16 };
            let shape = IxDyn(&[1, format.channels(), 2, 3]);
            let planes = ArrayD::from_shape_fn(shape, |at| (at[1] * 100 + at[2] * 10 + at[3]) as f32);
            let mut memory = [0; 28];
            draw(&planes, color, &mut memory, rows).expect("fits");
            assert_eq!(see(&memory, color, rows), Ok(planes));
            assert_eq!(Format::of_code(format.code()), Some(format));
        }
        assert_eq!(Format::of_code(0), None);
    }

    #[test]
    fn images_outside_their_memory_are_rejected() {
        let rows = Rows { format: Format::Gray, width: 4, height: 2, step: 4 };
        let planes = ArrayD::zeros(IxDyn(&[1, 1, 2, 4]));
        assert!(draw(&planes, Color::Gray, &mut [0; 7], rows).is_err());
        assert!(see(&[0; 7], Color::Gray, rows).is_err());
        assert!(see(&[0; 99], Color::Gray, Rows { step: 3, ..rows }).is_err());
        assert!(see(&[0; 99], Color::Gray, Rows { step: usize::MAX, height: 3, ..rows }).is_err());
        assert!(draw(&ArrayD::zeros(IxDyn(&[1, 3, 2, 4])), Color::Gray, &mut [0; 8], rows).is_err());
    }
}
