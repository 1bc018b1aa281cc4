//! Values of flags that have a form of their own.

use std::{path::PathBuf, time::Duration};

use island_protocol::{credits::MicroCredits, time::Timestamp};
use island_protocol_api::batch::PREFIX as BATCH;

/// A time of expiry as typed by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// So long from now.
    In(Duration),
    /// At this moment.
    At(Timestamp),
}

impl Expiry {
    /// Returns the time, relative to `now`.
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
    /// Path of the file.
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

/// A subject of the fabric, perhaps with wildcards: parts between dots, `*` for one part, `>` at the end for all others.
pub(super) fn subject(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('.').collect();
    let is_part = |(at, part): (usize, &&str)| match *part {
        "" => false,
        "*" => true,
        ">" => at + 1 == parts.len(),
        part => !part.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>'),
    };
    if parts.iter().enumerate().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("must be parts between dots, such as 'host.*.heartbeat' or 'job.>'".into())
    }
}

/// An id, or at least four characters of its beginning.
pub(super) fn id_beginning(text: &str) -> Result<String, String> {
    let is_hex = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if is_hex && (4..=36).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("must be a UUID, or the beginning of one with four characters or more".into())
    }
}

/// The id of a batch, or the beginning of one, without `batch_`.
pub(super) fn batch_beginning(text: &str) -> Result<String, String> {
    id_beginning(text.strip_prefix(BATCH).unwrap_or(text))
        .map_err(|_| format!("must be the id of a batch, or four characters or more behind its {BATCH}"))
}

pub(super) fn expiry(text: &str) -> Result<Expiry, String> {
    if let Ok(span) = humantime::parse_duration(text) {
        return Ok(Expiry::In(span));
    }
    let moment = moment(text).map(Expiry::At);
    moment.map_err(|_| "must be a span such as 30d, or a moment such as 2027-01-01T00:00:00Z".into())
}

pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let moment = serde_json::from_value(text.into());
    moment.map_err(|_| "must be a moment such as 2027-01-01T00:00:00Z".into())
}

/// The begin of a calendar month of UTC.
pub(super) fn month(text: &str) -> Result<Timestamp, String> {
    let begin = Some(text)
        .filter(|text| text.len() == 7)
        .and_then(|text| moment(&format!("{text}-01T00:00:00Z")).ok());
    begin.ok_or_else(|| "must be a year and a month, such as 2026-11".into())
}

pub(super) fn credits(text: &str) -> Result<MicroCredits, String> {
    let credits = credits_or_none(text).ok().filter(|credits| *credits > MicroCredits(0));
    credits.ok_or_else(|| "must be a number of credits above 0".into())
}

/// Credits, also 0.
pub(super) fn credits_or_none(text: &str) -> Result<MicroCredits, String> {
    let credits = text.parse::<f64>().ok().filter(|credits| *credits >= 0.0);
    credits
        .and_then(|credits| serde_json::from_value(credits.into()).ok())
        .ok_or_else(|| "must be a number of credits, 0 or more".into())
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
    fn a_month_has_a_begin() {
        let begin = month("2026-02").expect("a month");
        assert_eq!(begin.to_string(), "2026-02-01T00:00:00.000Z");
        assert_eq!(begin.next_month().to_string(), "2026-03-01T00:00:00.000Z");
        assert!(
            ["", "2026", "2026-13", "2026-1", "26-01-01", "november"].iter().all(|text| month(text).is_err())
        );
    }

    #[test]
    fn a_file_has_a_field() {
        let read = file_field("audio=a=b.mp3").expect("a field and a file");
        assert_eq!((read.field.as_str(), read.path.to_str()), ("audio", Some("a=b.mp3")));
        assert!(["", "audio", "=x", "audio="].iter().all(|text| file_field(text).is_err()));
    }

    #[test]
    fn subjects() {
        assert!(["host.*.heartbeat", "job.>", ">", "a"].iter().all(|text| subject(text).is_ok()));
        assert!(
            ["", "bogus..x", ".a", "a.", ">.a", "a b", "a*", "x.>y"]
                .iter()
                .all(|text| subject(text).is_err())
        );
    }

    #[test]
    fn ids_may_be_shortened() {
        assert_eq!(id_beginning("0190F3F0-0").as_deref(), Ok("0190f3f0-0"));
        assert!(
            ["", "019", "seven", "0190f3f0-0000-7000-8000-0000000000001"]
                .iter()
                .all(|text| id_beginning(text).is_err())
        );
    }

    #[test]
    fn ids_of_batches_have_a_beginning_of_their_own() {
        assert_eq!(batch_beginning("batch_0190f3f0").as_deref(), Ok("0190f3f0"));
        assert_eq!(batch_beginning("0190F3F0").as_deref(), Ok("0190f3f0"));
        assert!(["batch_", "file-0190f3f0", "batch_019"].iter().all(|text| batch_beginning(text).is_err()));
    }

    #[test]
    fn moments_and_nonsense() {
        let moment = expiry("2027-01-01T00:00:00Z").expect("a moment").moment(Timestamp::from_unix_ms(0));
        assert_eq!(moment.to_string(), "2027-01-01T00:00:00.000Z");
        assert!(expiry("soon").is_err());
        assert_eq!(credits("0.5"), Ok(MicroCredits(500_000)));
        assert!(["0", "-1", "NaN", "inf", "much"].iter().all(|text| credits(text).is_err()));
        assert_eq!(credits_or_none("0"), Ok(MicroCredits(0)));
        assert!(["-1", "NaN", "inf", "much"].iter().all(|text| credits_or_none(text).is_err()));
        assert!(temperature("NaN").is_err());
    }
}
