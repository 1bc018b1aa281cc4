//! Resizing planes of numbers as PyTorch's `interpolate` does: centers of pixels are aligned, and downsampling skips what lies between its
//! samples.

use ndarray::{Array2, ArrayView2};

/// Interpolation between neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two neighbors in each direction.
    Linear,
    /// Four neighbors in each direction.
    Cubic,
}

/// PyTorch's cubic coefficient; Pillow's is -0.5.
const SHARPNESS: f32 = -0.75;

/// The source of one sample: indices and weights.
type Taps = Vec<(usize, f32)>;

/// The plane resized to `height` × `width`.
pub fn interpolate(plane: ArrayView2<'_, f32>, height: usize, width: usize, kind: Kind) -> Array2<f32> {
    let (rows, columns) = plane.dim();
    if (rows, columns) == (height, width) || rows == 0 || columns == 0 {
        return plane.to_owned();
    }
    let across = taps(columns, width, kind);
    let down = taps(rows, height, kind);
    let mut wide = Array2::zeros((rows, width));
    for (row, mut target) in plane.rows().into_iter().zip(wide.rows_mut()) {
        for (number, taps) in target.iter_mut().zip(&across) {
            *number = taps.iter().map(|&(place, weight)| row[place] * weight).sum();
        }
    }
    let mut whole = Array2::zeros((height, width));
    for (mut target, taps) in whole.rows_mut().into_iter().zip(&down) {
        for &(place, weight) in taps {
            target.scaled_add(weight, &wide.row(place));
        }
    }
    whole
}

fn taps(from: usize, to: usize, kind: Kind) -> Vec<Taps> {
    let scale = from as f32 / to as f32;
    let last = from as isize - 1;
    let at = |sample: usize| scale * (sample as f32 + 0.5) - 0.5;
    let inside = |place: isize| place.clamp(0, last) as usize;
    let linear = |sample: usize| {
        let at = at(sample).max(0.0);
        let (first, share) = (at.floor() as isize, at - at.floor());
        vec![(inside(first), 1.0 - share), (inside(first + 1), share)]
    };
    let cubic = |sample: usize| {
        let at = at(sample);
        let (first, share) = (at.floor() as isize, at - at.floor());
        let distances = [1.0 + share, share, 1.0 - share, 2.0 - share];
        let places = (first - 1..).map(inside);
        places.zip(distances.map(weight)).collect()
    };
    match kind {
        Kind::Linear => (0..to).map(linear).collect(),
        Kind::Cubic => (0..to).map(cubic).collect(),
    }
}

/// The cubic weight of a neighbor at this distance.
fn weight(distance: f32) -> f32 {
    let a = SHARPNESS;
    if distance <= 1.0 {
        ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    } else {
        ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn pixel_centers_are_aligned() {
        let plane = array![[0.0, 1.0]];
        // torch.nn.functional.interpolate(..., size=(1, 4), mode="bilinear")
        assert_eq!(interpolate(plane.view(), 1, 4, Kind::Linear), array![[0.0, 0.25, 0.75, 1.0]]);
    }

    #[test]
    fn cubic_preserves_flat_planes_and_overshoots_edges() {
        let flat = Array2::from_elem((3, 5), 2.0);
        let larger = interpolate(flat.view(), 7, 11, Kind::Cubic);
        assert!(larger.iter().all(|number: &f32| (number - 2.0).abs() < 1e-5));
        let edge = array![[0.0, 0.0, 1.0, 1.0]];
        assert!(interpolate(edge.view(), 1, 8, Kind::Cubic).iter().any(|&number| number > 1.0));
    }
}
