//! Non-maximum suppression.

use super::Found;

/// Keeps at most `most` boxes, in descending order of score, none of which overlaps another of its class by more than `share` of their union.
pub fn suppress(mut boxes: Vec<Found>, share: f32, most: usize) -> Vec<Found> {
    boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Found> = Vec::new();
    for candidate in boxes {
        if kept.len() == most {
            break;
        }
        let is_covered = |other: &Found| {
            other.class == candidate.class && overlap(&other.corners, &candidate.corners) > share
        };
        if !kept.iter().any(is_covered) {
            kept.push(candidate);
        }
    }
    kept
}

/// Intersection over union of two boxes.
pub fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let area = |sides: &[f32; 4]| (sides[2] - sides[0]).max(0.0) * (sides[3] - sides[1]).max(0.0);
    let common = area(&[a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    let whole = area(a) + area(b) - common;
    if whole > 0.0 { common / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(class: usize, score: f32, left: f32) -> Found {
        Found { class, score, corners: [left, 0.0, left + 10.0, 10.0] }
    }

    #[test]
    fn box_with_the_highest_score_of_a_class_is_kept() {
        let kept = suppress(
            vec![
                candidate(0, 0.5, 1.0),
                candidate(0, 0.9, 0.0),
                candidate(1, 0.4, 0.0),
                candidate(0, 0.3, 50.0),
            ],
            0.5,
            10,
        );
        let left: Vec<(usize, f32)> = kept.iter().map(|found| (found.class, found.score)).collect();
        assert_eq!(left, [(0, 0.9), (1, 0.4), (0, 0.3)]);
    }

    #[test]
    fn overlap_is_relative_to_the_union() {
        assert!((overlap(&[0.0, 0.0, 10.0, 10.0], &[5.0, 0.0, 15.0, 10.0]) - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(overlap(&[0.0; 4], &[0.0; 4]), 0.0);
    }
}
