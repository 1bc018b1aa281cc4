//! Values of flags that have a form of their own.

use std::{path::PathBuf, time::Duration};

use island_protocol::{credits::MicroCredits, time::Timestamp};

/// When something ends, as a person says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// So long from now.
    In(Duration),
    /// At this moment.
    At(Timestamp),
}

impl Expiry {
    /// The moment, said at `now`.
    pub(crate) fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(span) => now.plus_ms(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
            Self::At(moment) => moment,
        }
    }
}

/// A file, and the field of the input that it goes into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileField {
    /// Name of the field.
    pub(crate) field: String,
    /// Where the file lies.
    pub(crate) path: PathBuf,
}

pub(super) fn file_field(text: &str) -> Result<FileField, String> {
    match text.split_once('=') {
        Some((field, path)) if !field.is_empty() && !path.is_empty() => {
            Ok(FileField { field: field.to_owned(), path: path.into() })
        }
        _ => Err("must be a field of the input and a file, such as audio=talk.mp3".into()),
    }
}

pub(super) fn expiry(text: &str) -> Result<Expiry, String> {
    if let Ok(span) = humantime::parse_duration(text) {
        return Ok(Expiry::In(span));
    }
    let moment = serde_json::from_value(text.into()).map(Expiry::At);
    moment.map_err(|_| "must be a span such as 30d, or a moment such as 2027-01-01T00:00:00Z".into())
}

pub(super) fn credits(text: &str) -> Result<MicroCredits, String> {
    let credits = text.parse::<f64>().ok().filter(|credits| *credits > 0.0);
    credits
        .and_then(|credits| serde_json::from_value(credits.into()).ok())
        .ok_or_else(|| "must be a number of credits above 0".into())
}

pub(super) fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(value),
        _ => Err("must be a number from 0.0 to 2.0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn temperatures(value in -1.0_f64..3.0) {
            prop_assert_eq!(temperature(&value.to_string()).is_ok(), (0.0..=2.0).contains(&value));
        }

        #[test]
        fn spans_count_from_now(hours in 1_i64..10_000, now in 0_i64..2_000_000_000_000) {
            let moment = expiry(&format!("{hours}h")).expect("a span").moment(Timestamp::from_unix_ms(now));
            prop_assert_eq!(moment.unix_ms(), now + hours * 3_600_000);
        }
    }

    #[test]
    fn a_file_has_a_field() {
        let read = file_field("audio=a=b.mp3").expect("a field and a file");
        assert_eq!((read.field.as_str(), read.path.to_str()), ("audio", Some("a=b.mp3")));
        assert!(["", "audio", "=x", "audio="].iter().all(|text| file_field(text).is_err()));
    }

    #[test]
    fn moments_and_nonsense() {
        let moment = expiry("2027-01-01T00:00:00Z").expect("a moment").moment(Timestamp::from_unix_ms(0));
        assert_eq!(moment.to_string(), "2027-01-01T00:00:00.000Z");
        assert!(expiry("soon").is_err());
        assert_eq!(credits("0.5"), Ok(MicroCredits(500_000)));
        assert!(["0", "-1", "NaN", "inf", "much"].iter().all(|text| credits(text).is_err()));
        assert!(temperature("NaN").is_err());
    }
}
