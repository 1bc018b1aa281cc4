//! Text regions of a probability map, by the published steps of differentiable binarization: connected pixels above a threshold are one
//! region; its minimum-area rectangle is a line if its mean probability is high enough, and is widened, since the map is trained to be narrower
//! than the text.

use ndarray::ArrayView2;

/// Minimum probability of a pixel of a region.
const BINARY: f32 = 0.3;
/// Minimum mean probability of a region.
const LIKELY: f32 = 0.6;
/// Widening: area / perimeter times this.
const WIDENING: f32 = 1.5;
/// Minimum side of a region, and of a widened one, in pixels of the map.
const SHORTEST: f32 = 3.0;
/// Maximum number of regions of a page.
const MAX_REGIONS: usize = 1000;

/// A point of the map.
pub type Spot = [f32; 2];

/// A rectangle: its corners clockwise from the upper left.
pub type Corners = [Spot; 4];

/// The lines of a map, unordered.
pub fn find(map: ArrayView2<'_, f32>) -> Vec<Corners> {
    let regions = touching(map).into_iter().take(MAX_REGIONS);
    regions.filter_map(|region| line(map, &region)).collect()
}

fn line(map: ArrayView2<'_, f32>, region: &[(usize, usize)]) -> Option<Corners> {
    let rectangle = Rectangle::around(&outline(region))?;
    if rectangle.shorter() < SHORTEST || mean_within(map, &rectangle) < LIKELY {
        return None;
    }
    let [wide, high] = rectangle.sides;
    let more = wide * high * WIDENING / (2.0 * (wide + high));
    let wider = rectangle.widened(more);
    (wider.shorter() >= SHORTEST + 2.0).then(|| wider.corners())
}

/// Connected pixels above the threshold.
fn touching(map: ArrayView2<'_, f32>) -> Vec<Vec<(usize, usize)>> {
    let (rows, columns) = map.dim();
    let mut seen = vec![false; rows * columns];
    let mut regions = Vec::new();
    for start in 0..rows * columns {
        if seen[start] || map[[start / columns, start % columns]] <= BINARY {
            continue;
        }
        seen[start] = true;
        let mut region = Vec::new();
        let mut edge = vec![start];
        while let Some(place) = edge.pop() {
            let (row, column) = (place / columns, place % columns);
            region.push((row, column));
            for row in row.saturating_sub(1)..=(row + 1).min(rows - 1) {
                for column in column.saturating_sub(1)..=(column + 1).min(columns - 1) {
                    let next = row * columns + column;
                    if !seen[next] && map[[row, column]] > BINARY {
                        seen[next] = true;
                        edge.push(next);
                    }
                }
            }
        }
        regions.push(region);
    }
    regions
}

/// The convex hull of a region, counter-clockwise in a plane whose rows grow downwards.
fn outline(region: &[(usize, usize)]) -> Vec<Spot> {
    // Only the ends of each row can be corners.
    let mut ends = std::collections::BTreeMap::new();
    for &(row, column) in region {
        let ends = ends.entry(row).or_insert((column, column));
        *ends = (ends.0.min(column), ends.1.max(column));
    }
    let mut spots: Vec<Spot> = ends
        .into_iter()
        .flat_map(|(row, (left, right))| [[left as f32, row as f32], [right as f32, row as f32]])
        .collect();
    spots.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    spots.dedup();
    let half = |spots: &mut dyn Iterator<Item = Spot>| {
        let mut hull: Vec<Spot> = Vec::new();
        for spot in spots {
            while hull.len() >= 2 && cross(hull[hull.len() - 2], hull[hull.len() - 1], spot) <= 0.0 {
                hull.pop();
            }
            hull.push(spot);
        }
        hull.pop();
        hull
    };
    let mut hull = half(&mut spots.iter().copied());
    hull.extend(half(&mut spots.iter().rev().copied()));
    hull
}

fn cross(a: Spot, b: Spot, c: Spot) -> f32 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// A rotated rectangle.
#[derive(Debug, Clone, Copy)]
struct Rectangle {
    middle: Spot,
    /// Direction of the first side, of length 1.
    along: Spot,
    /// Length of the first side and of the other.
    sides: [f32; 2],
}

impl Rectangle {
    /// The minimum-area rectangle of a hull; one of its sides lies on a side of the hull.
    fn around(outline: &[Spot]) -> Option<Self> {
        let mut best: Option<(f32, Self)> = None;
        for (at, a) in outline.iter().enumerate() {
            let b = outline[(at + 1) % outline.len()];
            let length = (b[0] - a[0]).hypot(b[1] - a[1]);
            if length == 0.0 {
                continue;
            }
            let along = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
            let rectangle = Self::along(outline, along);
            let area = rectangle.sides[0] * rectangle.sides[1];
            if best.is_none_or(|(least, _)| area < least) {
                best = Some((area, rectangle));
            }
        }
        best.map(|(_, rectangle)| rectangle)
    }

    fn along(outline: &[Spot], along: Spot) -> Self {
        let across = [-along[1], along[0]];
        let reach = |direction: Spot| {
            let places = outline.iter().map(|spot| spot[0] * direction[0] + spot[1] * direction[1]);
            places.fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), place| {
                (least.min(place), most.max(place))
            })
        };
        let ((left, right), (top, bottom)) = (reach(along), reach(across));
        let (x, y) = (f32::midpoint(left, right), f32::midpoint(top, bottom));
        let middle = [x * along[0] + y * across[0], x * along[1] + y * across[1]];
        Self { middle, along, sides: [right - left, bottom - top] }
    }

    fn shorter(&self) -> f32 {
        self.sides[0].min(self.sides[1])
    }

    fn widened(self, more: f32) -> Self {
        Self { sides: self.sides.map(|side| side + 2.0 * more), ..self }
    }

    /// Clockwise, the upper left first: of the two on the left the upper one, then the upper one on the right.
    fn corners(&self) -> Corners {
        let [wide, high] = self.sides.map(|side| side / 2.0);
        let ([x, y], [dx, dy]) = (self.middle, self.along);
        let corner = |a: f32, b: f32| [x + a * dx - b * dy, y + a * dy + b * dx];
        let mut corners =
            [corner(-wide, -high), corner(wide, -high), corner(wide, high), corner(-wide, high)];
        corners.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let by_height = |a: Spot, b: Spot| if a[1] <= b[1] { (a, b) } else { (b, a) };
        let (upper_left, lower_left) = by_height(corners[0], corners[1]);
        let (upper_right, lower_right) = by_height(corners[2], corners[3]);
        [upper_left, upper_right, lower_right, lower_left]
    }

    fn holds(&self, spot: Spot) -> bool {
        let (x, y) = (spot[0] - self.middle[0], spot[1] - self.middle[1]);
        let [dx, dy] = self.along;
        let half = self.sides.map(|side| side / 2.0 + 1e-3);
        (x * dx + y * dy).abs() <= half[0] && (y * dx - x * dy).abs() <= half[1]
    }
}

fn mean_within(map: ArrayView2<'_, f32>, rectangle: &Rectangle) -> f32 {
    let corners = rectangle.corners();
    let range = |axis: usize, most: usize| {
        let sides = corners.iter().map(|corner| corner[axis]);
        let (least, end) =
            sides.fold((f32::INFINITY, 0.0_f32), |(least, end), side| (least.min(side), end.max(side)));
        (least.max(0.0).floor() as usize)..((end.ceil() as usize) + 1).min(most)
    };
    let (rows, columns) = (range(1, map.nrows()), range(0, map.ncols()));
    let (mut sum, mut count) = (0.0_f64, 0_u32);
    for row in rows {
        for column in columns.clone() {
            if rectangle.holds([column as f32, row as f32]) {
                sum += f64::from(map[[row, column]]);
                count += 1;
            }
        }
    }
    if count == 0 { 0.0 } else { (sum / f64::from(count)) as f32 }
}

/// Sorts lines in reading order: top to bottom, and left to right in one row.
pub fn in_reading_order(lines: &mut [Corners]) {
    /// Lines whose tops differ by less than this number of pixels are in one row.
    const BESIDE: f32 = 10.0;
    lines.sort_by(|a, b| a[0][1].total_cmp(&b[0][1]).then(a[0][0].total_cmp(&b[0][0])));
    for last in 1..lines.len() {
        for at in (0..last).rev() {
            let (one, next) = (lines[at][0], lines[at + 1][0]);
            if (next[1] - one[1]).abs() < BESIDE && next[0] < one[0] {
                lines.swap(at, at + 1);
            } else {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::*;

    #[test]
    fn upright_region_is_widened_on_all_sides() {
        let mut map = Array2::zeros((60, 120));
        map.slice_mut(s![20..31, 10..91]).fill(0.9);
        let lines = find(map.view());
        assert_eq!(lines.len(), 1);
        // 80 × 10 pixels: 800 × 1.5 / 180 more on each side.
        let more = 800.0 * 1.5 / 180.0;
        let wanted = [[10.0 - more, 20.0 - more], [90.0 + more, 20.0 - more], [90.0 + more, 30.0 + more]];
        for (got, wanted) in lines[0].iter().zip(wanted) {
            assert!((got[0] - wanted[0]).abs() < 1e-3 && (got[1] - wanted[1]).abs() < 1e-3, "{lines:?}");
        }
    }

    #[test]
    fn rotated_region_keeps_its_angle() {
        let map = Array2::from_shape_fn((100, 100), |(row, column)| {
            let (x, y) = (column as f32 - 50.0, row as f32 - 50.0);
            let (along, across) = ((x + y) / 2_f32.sqrt(), (y - x) / 2_f32.sqrt());
            if along.abs() < 40.0 && across.abs() < 6.0 { 0.9 } else { 0.0 }
        });
        let [upper_left, upper_right, ..] = find(map.view())[0];
        let slope = (upper_right[1] - upper_left[1]) / (upper_right[0] - upper_left[0]);
        assert!((slope - 1.0).abs() < 0.1 || (slope + 1.0).abs() < 0.1, "{slope}");
    }

    #[test]
    fn faint_and_tiny_regions_are_dropped() {
        let mut map = Array2::zeros((40, 40));
        map.slice_mut(s![5..15, 5..35]).fill(0.4);
        map.slice_mut(s![30..32, 5..7]).fill(0.9);
        assert!(find(map.view()).is_empty());
    }

    #[test]
    fn lines_are_sorted_in_reading_order() {
        let at = |x: f32, y: f32| [[x, y]; 4];
        let mut lines = [at(50.0, 3.0), at(5.0, 40.0), at(5.0, 7.0), at(90.0, 0.0)];
        in_reading_order(&mut lines);
        assert_eq!(lines.map(|line| line[0]), [[5.0, 7.0], [50.0, 3.0], [90.0, 0.0], [5.0, 40.0]]);
    }
}
