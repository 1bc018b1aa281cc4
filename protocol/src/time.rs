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

impl Timestamp {
    /// Returns the begin of this time's day, UTC.
    #[must_use]
    pub fn day_begin(self) -> Self {
        Self::from_unix_ms(self.0 - self.0.rem_euclid(DAY_MS))
    }

    /// Returns the begin of the following day, UTC.
    #[must_use]
    pub fn next_day(self) -> Self {
        self.day_begin().plus_ms(DAY_MS)
    }

    /// Returns the begin of this time's calendar month, UTC.
    #[must_use]
    pub fn month_begin(self) -> Self {
        let days_before = OffsetDateTime::from_unix_timestamp(self.0.div_euclid(1000))
            .map_or(0, |moment| i64::from(moment.day()) - 1);
        self.day_begin().plus_ms(-days_before * DAY_MS)
    }

    /// Returns the begin of the following calendar month, UTC.
    #[must_use]
    pub fn next_month(self) -> Self {
        // From the first day of a month, 32 days lead into the next one, whatever its length.
        self.month_begin().plus_ms(32 * DAY_MS).month_begin()
    }
}

const DAY_MS: i64 = 24 * 3_600_000;

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
    fn months_begin_on_their_first_day() {
        let parse = |text: &str| serde_json::from_value::<Timestamp>(text.into()).expect("a time");
        for (time, begin, next) in [
            ("2026-11-25T12:53:10.123Z", "2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z"),
            ("2026-12-31T23:59:59.999Z", "2026-12-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z"),
            ("2028-02-29T00:00:00.000Z", "2028-02-01T00:00:00.000Z", "2028-03-01T00:00:00.000Z"),
            ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"),
            ("1969-12-31T23:00:00.000Z", "1969-12-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z"),
        ] {
            let time = parse(time);
            assert_eq!(
                (time.month_begin().to_string(), time.next_month().to_string()),
                (begin.into(), next.into())
            );
        }
        let time = parse("2026-11-25T12:53:10.123Z");
        assert_eq!(time.day_begin().to_string(), "2026-11-25T00:00:00.000Z");
        assert_eq!(time.next_day().to_string(), "2026-11-26T00:00:00.000Z");
    }

    #[test]
    fn looks_like_iso_8601() {
        assert_eq!(Timestamp::from_unix_ms(1_795_210_800_123).to_string(), "2026-11-20T21:40:00.123Z");
    }
}
