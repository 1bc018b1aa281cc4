//! One channel of several: as ffmpeg mixes them for the reference libraries, which read files by `ffmpeg -ac 1 -f f32le`.

use std::f32::consts::FRAC_1_SQRT_2;

use symphonia::core::audio::{Channels, Position};

use crate::error::{EngineError, invalid_input};

/// Weight of each channel, in their order. Two channels of equal sound are louder than one by a factor of the root of two, as in the
/// reference.
pub(super) fn weights(channels: &Channels) -> Result<Vec<f32>, EngineError> {
    let count = channels.count();
    let weights = match channels {
        _ if count <= 1 => Some(vec![1.0]),
        _ if count == 2 => Some(vec![FRAC_1_SQRT_2; 2]),
        Channels::Positioned(positions) if !is_guessed(*positions, count) => {
            let bits = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|bit| positions.bits() & bit != 0);
            bits.map(|bit| weight(Position::from_bits_truncate(bit))).collect()
        }
        _ => None,
    };
    weights.ok_or_else(|| {
        invalid_input(format!(
            "audio has {count} channels, {channels}, whose places are not known; one or two channels have none"
        ))
    })
}

/// Whether the decoder made the places up, since the file does not name them. ffmpeg gives such a file others, unless it has six channels.
fn is_guessed(positions: Position, count: usize) -> bool {
    count != 6 && u32::try_from(count).ok().and_then(Position::from_count) == Some(positions)
}

/// Weight of a place among several.
fn weight(place: Position) -> Option<f32> {
    const FRONT: Position = Position::FRONT_LEFT
        .union(Position::FRONT_RIGHT)
        .union(Position::FRONT_LEFT_CENTER)
        .union(Position::FRONT_RIGHT_CENTER);
    const BACK: Position = Position::REAR_LEFT
        .union(Position::REAR_RIGHT)
        .union(Position::REAR_CENTER)
        .union(Position::SIDE_LEFT)
        .union(Position::SIDE_RIGHT);
    if FRONT.contains(place) {
        Some(FRAC_1_SQRT_2)
    } else if BACK.contains(place) {
        Some(0.5)
    } else if place == Position::FRONT_CENTER {
        Some(1.0)
    } else {
        (place == Position::LFE1).then_some(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: f32 = FRAC_1_SQRT_2;

    fn of_mask(mask: u64) -> Option<Vec<f32>> {
        weights(&Channels::Positioned(Position::from_bits_truncate(mask))).ok()
    }

    #[test]
    fn channels_have_the_weights_of_ffmpeg() {
        // Measured with ffmpeg 9.0 and files with one channel that is not silent, by the mask of the places.
        let measured: [(u64, &[f32]); 12] = [
            (0x4, &[1.0]),
            (0x3, &[ROOT, ROOT]),
            (0xB, &[ROOT, ROOT, 0.0]),
            (0x33, &[ROOT, ROOT, 0.5, 0.5]),
            (0x107, &[ROOT, ROOT, 1.0, 0.5]),
            (0x37, &[ROOT, ROOT, 1.0, 0.5, 0.5]),
            (0x3F, &[ROOT, ROOT, 1.0, 0.0, 0.5, 0.5]),
            (0x60F, &[ROOT, ROOT, 1.0, 0.0, 0.5, 0.5]),
            (0x70F, &[ROOT, ROOT, 1.0, 0.0, 0.5, 0.5, 0.5]),
            (0x637, &[ROOT, ROOT, 1.0, 0.5, 0.5, 0.5, 0.5]),
            (0x63F, &[ROOT, ROOT, 1.0, 0.0, 0.5, 0.5, 0.5, 0.5]),
            (0xC7, &[ROOT, ROOT, 1.0, ROOT, ROOT]),
        ];
        for (mask, expected) in measured {
            assert_eq!(of_mask(mask).as_deref(), Some(expected), "{mask:#x}");
        }
        // What decoders call one channel is in front on the left, too.
        assert_eq!(of_mask(0x1), Some(vec![1.0]));
    }

    #[test]
    fn channels_without_places_are_refused() {
        // Three, four, five, seven and eight channels of a file without a mask, and a height channel.
        for mask in [0x7, 0xF, 0x1F, 0x7F, 0xFF, 0x1 | 0x2 | 0x800] {
            assert_eq!(of_mask(mask), None, "{mask:#x}");
        }
        let refused = weights(&Channels::Discrete(4)).expect_err("no places").message();
        assert!(refused.contains("4 channels"), "{refused}");
    }
}
