//! Comparison of images.

use std::path::Path;

use super::Case;

/// Grayscale: pixels differ by at most the tolerance, except for a share of them.
pub(super) fn picture_differs(path: &Path, bytes: &[u8], case: &Case) -> Option<String> {
    let wanted = image::open(path).expect("the reference's picture").into_luma8();
    let got = match image::load_from_memory_with_format(bytes, image::ImageFormat::Png) {
        Ok(got) => got,
        Err(error) => return Some(format!("is not a PNG: {error}")),
    };
    if got.color() != image::ColorType::L8 {
        return Some(format!("is {:?}, not gray", got.color()));
    }
    let got = got.into_luma8();
    if wanted.dimensions() != got.dimensions() {
        return Some(format!("has {:?} pixels, not {:?}", got.dimensions(), wanted.dimensions()));
    }
    let differ = wanted
        .iter()
        .zip(got.iter())
        .filter(|(wanted, got)| f64::from(wanted.abs_diff(**got)) > case.tolerance);
    let share = differ.count() as f64 / wanted.len() as f64;
    (share > case.mask_tolerance).then(|| format!("{:.2} % of its pixels differ", share * 100.0))
}
