//! Resizing exactly as Pillow does: filters widen with the reduction, so that no pixel is skipped; horizontally and vertically one after the
//! other, each in fixed-point numbers. Faster crates round differently by one level here and there, which changes the results of small models.

use image::RgbImage;
use ndarray::Array2;

/// Fractional bits of a weight.
const BITS: u32 = 32 - 8 - 2;

/// Resampling filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The nearest pixel.
    Nearest,
    /// Windowed sinc with three lobes.
    Lanczos,
    /// A triangle.
    Bilinear,
    /// Catmull and Rom's cubic.
    Bicubic,
    /// Equal weights.
    Box,
    /// A raised cosine.
    Hamming,
}

impl Filter {
    /// The filter with this number in Pillow; settings contain these numbers.
    pub fn of_code(code: u64) -> Option<Self> {
        [Self::Nearest, Self::Lanczos, Self::Bilinear, Self::Bicubic, Self::Box, Self::Hamming]
            .get(usize::try_from(code).ok()?)
            .copied()
    }

    /// Support of the filter in pixels.
    fn reach(self) -> f64 {
        match self {
            Self::Nearest | Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        use std::f64::consts::PI;
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
        let distance = x.abs();
        match self {
            Self::Nearest | Self::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Self::Bilinear => (1.0 - distance).max(0.0),
            Self::Hamming if distance >= 1.0 => 0.0,
            Self::Hamming => sinc(x) * (0.54 + 0.46 * (PI * x).cos()),
            Self::Bicubic => {
                let a = -0.5;
                if distance < 1.0 {
                    ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
                } else if distance < 2.0 {
                    (((distance - 5.0) * distance + 8.0) * distance - 4.0) * a
                } else {
                    0.0
                }
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

/// The source of one sample: the first index, and the weights from there.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

/// The image resized to `width` × `height` pixels, neither of which may be 0.
pub fn resize(picture: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let (from_width, from_height) = picture.dimensions();
    let from = (from_width as usize, from_height as usize);
    let pixels = resample::<3>(picture.as_raw(), from, (width as usize, height as usize), filter);
    RgbImage::from_raw(width, height, pixels).unwrap_or_else(|| RgbImage::new(width, height))
}

/// The same for a grayscale plane.
pub fn resize_gray(plane: &Array2<u8>, width: usize, height: usize, filter: Filter) -> Array2<u8> {
    let pixels: Vec<u8> = plane.iter().copied().collect();
    let resized = resample::<1>(&pixels, (plane.ncols(), plane.nrows()), (width, height), filter);
    Array2::from_shape_vec((height, width), resized).unwrap_or_else(|_| Array2::zeros((height, width)))
}

/// The image resized to `width` × `height` pixels from four neighbors each, whatever the reduction skips: as OpenCV does, up to one level of
/// rounding.
pub fn interpolated(picture: &RgbImage, width: u32, height: u32) -> RgbImage {
    let (from_width, from_height) = (picture.width() as usize, picture.height() as usize);
    let row = width as usize * 3;
    let wide =
        across::<3>(picture.as_raw(), from_width, &taps(from_width, width as usize, Filter::Bilinear, false));
    let whole = down(&wide, row, &taps(from_height, height as usize, Filter::Bilinear, false));
    RgbImage::from_raw(width, height, whole).unwrap_or_else(|| RgbImage::new(width, height))
}

fn resample<const N: usize>(
    pixels: &[u8],
    (from_width, from_height): (usize, usize),
    (width, height): (usize, usize),
    filter: Filter,
) -> Vec<u8> {
    if filter == Filter::Nearest {
        let place = |at: usize, from: usize, to: usize| {
            (((at as f64 + 0.5) * from as f64 / to as f64) as usize).min(from - 1)
        };
        let columns: Vec<usize> = (0..width).map(|x| place(x, from_width, width) * N).collect();
        let row = |y| place(y, from_height, height) * from_width * N;
        let pixel = |row: usize, column: usize| pixels[row + column..row + column + N].iter().copied();
        return (0..height)
            .flat_map(|y| columns.iter().flat_map(move |&column| pixel(row(y), column)))
            .collect();
    }
    if is_vertical_first((from_width, from_height), (width, height)) {
        let low = down(pixels, from_width * N, &taps(from_height, height, filter, true));
        if width == from_width {
            return low;
        }
        return across::<N>(&low, from_width, &taps(from_width, width, filter, true));
    }
    let mut resized = Vec::new();
    if width != from_width {
        resized = across::<N>(pixels, from_width, &taps(from_width, width, filter, true));
    }
    let wide = if width == from_width { pixels } else { &resized };
    if height == from_height {
        return wide.to_vec();
    }
    down(wide, width * N, &taps(from_height, height, filter, true))
}

/// Whether Pillow 13 reduces the height before the width, which rounds differently.
///
/// Found by comparison with both orders for 1,500 sizes; before version 13, Pillow did so only for images a hundred times as high as wide.
fn is_vertical_first((from_width, from_height): (usize, usize), (width, height): (usize, usize)) -> bool {
    let (less_width, less_height) = (from_width as i64 - width as i64, from_height as i64 - height as i64);
    less_height > 0 && less_height > 2 * less_width
}

fn across<const N: usize>(pixels: &[u8], from: usize, taps: &[Taps]) -> Vec<u8> {
    let mut resized = Vec::with_capacity(pixels.len() / from * taps.len());
    for row in pixels.chunks_exact(from * N) {
        for Taps { first, weights } in taps {
            let mut sums = [1 << (BITS - 1); N];
            for (pixel, weight) in row[first * N..].chunks_exact(N).zip(weights) {
                for (sum, &byte) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(byte) * weight;
                }
            }
            resized.extend(sums.map(level));
        }
    }
    resized
}

fn down(pixels: &[u8], stride: usize, taps: &[Taps]) -> Vec<u8> {
    let mut resized = Vec::with_capacity(taps.len() * stride);
    let mut sums = vec![0; stride];
    for Taps { first, weights } in taps {
        sums.fill(1 << (BITS - 1));
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(row) {
                *sum += i32::from(byte) * weight;
            }
        }
        resized.extend(sums.iter().map(|&sum| level(sum)));
    }
    resized
}

fn level(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

/// The sources of all samples. With `widens`, the filter's support grows with the reduction.
fn taps(from: usize, to: usize, filter: Filter, widens: bool) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let width = if widens { scale.max(1.0) } else { 1.0 };
    let reach = filter.reach() * width;
    let of = |sample: usize| {
        let middle = (sample as f64 + 0.5) * scale;
        let first = (middle - reach + 0.5).max(0.0) as usize;
        let end = ((middle + reach + 0.5) as usize).min(from);
        let weight = |place: usize| filter.weight((place as f64 - middle + 0.5) / width);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let share = |weight: f64| if sum == 0.0 { weight } else { weight / sum };
        // Rounds half away from zero, as a cast does.
        let whole = |weight: f64| (share(weight) * f64::from(1 << BITS)).round() as i32;
        Taps { first, weights: weights.into_iter().map(whole).collect() }
    };
    (0..to).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_images_are_resized_vertically_first() {
        let image = RgbImage::from_fn(3, 9, |x, y| image::Rgb([(x * 97 + y * y * 61 + x * y * 13) as u8; 3]));
        let resized = resize(&image, 4, 4, Filter::Bicubic);
        let levels: Vec<u8> = resized.pixels().map(|pixel| pixel.0[0]).collect();
        // Pillow 13's; in the other order, five levels are one or two apart.
        assert_eq!(levels, [65, 109, 134, 126, 145, 143, 143, 146, 210, 147, 123, 153, 126, 77, 85, 144]);
        let wide = |from, to| is_vertical_first(from, to);
        assert!(wide((64, 120), (20, 31)) && !wide((64, 120), (20, 32)), "twice the reduction of the width");
        assert!(!wide((33, 35), (48, 48)), "the height is not reduced");
    }

    #[test]
    fn reduction_covers_every_pixel() {
        let stripes = RgbImage::from_fn(64, 4, |x, _| image::Rgb([if x % 2 == 0 { 0 } else { 200 }; 3]));
        let reduced = resize(&stripes, 8, 2, Filter::Bilinear);
        assert!(reduced.iter().all(|&value| (95..=105).contains(&value)), "{reduced:?}");
    }

    #[test]
    fn filters_preserve_flat_images() {
        let flat = RgbImage::from_pixel(13, 7, image::Rgb([3, 128, 255]));
        for code in 0..6 {
            let filter = Filter::of_code(code).expect("a filter");
            for (width, height) in [(5, 3), (40, 21), (13, 2), (1, 1)] {
                let resized = resize(&flat, width, height, filter);
                assert!(
                    resized.pixels().all(|pixel| pixel.0 == [3, 128, 255]),
                    "{filter:?} {width} × {height}"
                );
            }
        }
        assert_eq!(Filter::of_code(6), None);
    }

    #[test]
    fn levels_equal_pillows() {
        // Image.fromarray(np.array([[0, 50, 200, 255, 10]], np.uint8)).resize((3, 1), filter)
        let row = Array2::from_shape_vec((1, 5), vec![0, 50, 200, 255, 10]).expect("five");
        let levels = |filter| resize_gray(&row, 3, 1, filter).into_raw_vec_and_offset().0;
        assert_eq!(levels(Filter::Nearest), [0, 200, 10]);
        assert_eq!(levels(Filter::Lanczos), [5, 201, 121]);
        assert_eq!(levels(Filter::Bilinear), [21, 179, 115]);
        assert_eq!(levels(Filter::Bicubic), [14, 191, 118]);
        assert_eq!(levels(Filter::Box), [25, 200, 133]);
        assert_eq!(levels(Filter::Hamming), [19, 186, 102]);
    }
}
