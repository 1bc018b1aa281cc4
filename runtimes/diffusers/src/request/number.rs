//! Integers in JSON: `1.0` is one too.

use serde::{Deserialize as _, Deserializer, de::Error};
use serde_json::Number;

/// An integer of any sign.
pub(super) fn whole<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15);
    let found = number.as_i64().or_else(|| fraction.map(|value| value as i64));
    found.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number that fits")))
}

/// A seed: an unsigned number of 64 bits.
pub(super) fn seed<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = number.as_f64().filter(|value| value.fract() == 0.0 && (0.0..9e15).contains(value));
    let found = number.as_u64().or_else(|| fraction.map(|value| value as u64));
    found
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("a seed is a number from 0 to 2^64 - 1, not {number}")))
}
