//! The timestamp type.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A time in milliseconds since 1970, written as `2026-11-20T21:40:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from milliseconds since 1970. Times outside the years 1 to 9999 are clamped.
    pub fn from_unix_ms(ms: i64) -> Self {
        const YEAR_1: i64 = -62_135_596_800_000;
        const YEAR_9999: i64 = 253_402_300_799_999;
        Self(ms.clamp(YEAR_1, YEAR_9999))
    }

    /// Returns the milliseconds since 1970.
    pub fn unix_ms(self) -> i64 {
        self.0
    }

    /// Returns this time moved by `ms`, which may be negative.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_unix_ms(self.0.saturating_add(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .map_err(|_| fmt::Error)?;
        let date = moment.date();
        let (h, m, s, ms) = moment.to_hms_milli();
        write!(
            f,
            "{:04}-{:02}-{:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z",
            date.year(),
            u8::from(date.month()),
            date.day()
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let moment = OffsetDateTime::parse(&text, &Rfc3339).map_err(de::Error::custom)?;
        Ok(Self::from_unix_ms((moment.unix_timestamp_nanos() / 1_000_000) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(ms in any::<i64>()) {
            let moment = Timestamp::from_unix_ms(ms);
            let text = serde_json::to_string(&moment).expect("serialize");
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&text).expect("parse"), moment);
        }
    }

    #[test]
    fn looks_like_iso_8601() {
        assert_eq!(Timestamp::from_unix_ms(1_795_210_800_123).to_string(), "2026-11-20T21:40:00.123Z");
    }
}
