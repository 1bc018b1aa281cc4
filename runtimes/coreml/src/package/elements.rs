//! Stored elements to numbers.

use half::{bf16, f16};

use crate::program::{
    types::{Class, Element},
    value::Data,
};

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Too few or too many bytes.
    #[error("{bytes} bytes are not {count} elements of {bits} bits")]
    Size {
        /// Bytes.
        bytes: usize,
        /// Expected elements.
        count: u64,
        /// Bits of an element.
        bits: u64,
    },
    /// Strings are not stored as bytes.
    #[error("strings cannot be stored there")]
    Text,
}

/// Decodes `count` elements; the last byte of small elements may have padding.
pub fn decode(bytes: &[u8], element: Element, count: u64) -> Result<Data, Unreadable> {
    let bits = element.bits();
    let needed = count.checked_mul(bits).map(|bits| bits.div_ceil(8));
    if element == Element::Text {
        return Err(Unreadable::Text);
    }
    if needed != Some(bytes.len() as u64) {
        return Err(Unreadable::Size { bytes: bytes.len(), count, bits });
    }
    Ok(match element.class() {
        Class::Float => Data::Floats(floats(bytes, element)),
        Class::Bool => Data::Bools(bytes.iter().map(|&byte| byte != 0).collect()),
        _ if bits < 8 => Data::Ints(small(bytes, bits as u32, element.is_signed(), count as usize)),
        _ => Data::Ints(ints(bytes, element)),
    })
}

fn each<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|word| number(*word)).collect()
}

fn floats(bytes: &[u8], element: Element) -> Vec<f32> {
    match element {
        Element::F16 => each(bytes, |word| f16::from_le_bytes(word).to_f32()),
        Element::Bf16 => each(bytes, |word| bf16::from_le_bytes(word).to_f32()),
        Element::F64 => each(bytes, |word| f64::from_le_bytes(word) as f32),
        Element::F8E4M3 => bytes.iter().map(|&byte| tiny(byte, 3)).collect(),
        Element::F8E5M2 => bytes.iter().map(|&byte| tiny(byte, 2)).collect(),
        _ => each(bytes, f32::from_le_bytes),
    }
}

fn ints(bytes: &[u8], element: Element) -> Vec<i64> {
    match element {
        Element::I8 => bytes.iter().map(|&byte| i64::from(byte.cast_signed())).collect(),
        Element::I16 => each(bytes, |word| i64::from(i16::from_le_bytes(word))),
        Element::U16 => each(bytes, |word| i64::from(u16::from_le_bytes(word))),
        Element::I32 => each(bytes, |word| i64::from(i32::from_le_bytes(word))),
        Element::U32 => each(bytes, |word| i64::from(u32::from_le_bytes(word))),
        Element::I64 | Element::U64 => each(bytes, i64::from_le_bytes),
        _ => bytes.iter().map(|&byte| i64::from(byte)).collect(),
    }
}

/// Elements of at most a byte, without their signs, each as a byte: as `i64`, those of a bit would take 64 times the memory of their file.
pub fn codes(bytes: &[u8], bits: u32, count: usize) -> Vec<u8> {
    (0..count).map(|index| code(bytes, bits, index)).collect()
}

fn small(bytes: &[u8], bits: u32, is_signed: bool, count: usize) -> Vec<i64> {
    let sign = if is_signed { 1_i64 << (bits - 1) } else { 0 };
    (0..count).map(|index| (i64::from(code(bytes, bits, index)) ^ sign) - sign).collect()
}

/// Elements of less than a byte are adjacent, the lowest bits first.
fn code(bytes: &[u8], bits: u32, index: usize) -> u8 {
    let place = index * bits as usize;
    let low = u32::from(bytes.get(place / 8).copied().unwrap_or(0));
    let high = u32::from(bytes.get(place / 8 + 1).copied().unwrap_or(0));
    (((low | high << 8) >> (place % 8)) & ((1_u32 << bits) - 1)) as u8
}

/// A float of eight bits with this number of fraction bits.
fn tiny(byte: u8, mantissa_bits: u32) -> f32 {
    let exponent_bits = 7 - mantissa_bits;
    let bias = (1_i32 << (exponent_bits - 1)) - 1;
    let exponent = i32::from((byte & 0x7f) >> mantissa_bits);
    let mantissa = f32::from(byte & ((1 << mantissa_bits) - 1)) / (1_u32 << mantissa_bits) as f32;
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let top = (1 << exponent_bits) - 1;
    let size = match exponent {
        0 => mantissa * 2.0_f32.powi(1 - bias),
        // The form with four exponent bits has no infinity: only its last code is NaN.
        _ if exponent == top && mantissa_bits == 3 && byte & 7 == 7 => f32::NAN,
        _ if exponent == top && mantissa_bits == 2 => {
            if mantissa == 0.0 {
                f32::INFINITY
            } else {
                f32::NAN
            }
        }
        _ => (1.0 + mantissa) * 2.0_f32.powi(exponent - bias),
    };
    sign * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_elements_begin_at_the_lowest_bits() {
        assert_eq!(small(&[0b0110_1100, 0b11], 2, false, 5), [0, 3, 2, 1, 3]);
        assert_eq!(small(&[0x7f, 0x08], 4, true, 3), [-1, 7, -8]);
        assert_eq!(small(&[0b1100_0001, 0b0000_1111], 6, false, 2), [1, 63]);
        assert_eq!(codes(&[0b1100_0001, 0b0000_1111], 6, 2), [1, 63]);
        assert_eq!(codes(&[0b0000_0101], 1, 4), [1, 0, 1, 0]);
        assert_eq!(codes(&[7, 255], 8, 2), [7, 255]);
    }

    #[test]
    fn eight_bit_floats_equal_their_tables() {
        let bits = |byte: u8, mantissa: u32| tiny(byte, mantissa).to_bits();
        let wide = [(0x38, 1.0), (0x7e, 448.0), (0x01, 2.0_f32.powi(-9)), (0xb8, -1.0)];
        let short = [(0x3c, 1.0), (0x7b, 57344.0), (0x01, 2.0_f32.powi(-16))];
        assert!(wide.iter().all(|&(byte, number)| bits(byte, 3) == f32::to_bits(number)));
        assert!(short.iter().all(|&(byte, number)| bits(byte, 2) == f32::to_bits(number)));
        assert!(tiny(0x7f, 3).is_nan() && tiny(0x7c, 2).is_infinite());
    }

    #[test]
    fn wrong_lengths_are_rejected() {
        assert!(decode(&[0; 7], Element::F32, 2).is_err());
        assert!(decode(&[0; 8], Element::F32, u64::MAX).is_err());
        assert_eq!(decode(&[0; 2], Element::U3, 5), Ok(Data::Ints(vec![0; 5])));
    }
}
