//! Text as it may be shown: without what could command a terminal, and numbers as people read them.

use std::{
    borrow::Cow,
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use island_protocol::{
    cargo::{CargoEntry, TokenPrices},
    credits::MicroCredits,
    job::JobStatus,
    time::Timestamp,
};

/// Control characters but tab and line end, and direction overrides.
fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Text without what could command a terminal.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(is_hostile) {
        Cow::Owned(text.chars().filter(|c| !is_hostile(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The same on one line, so that no name can pretend to be another row.
pub(super) fn on_one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The same for JSON text, where it can be written as escapes and nothing is lost.
pub(super) fn plain_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hostile(c) {
            // All of them lie below U+10000, so one escape is enough.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Milliseconds as a person reads them.
pub(crate) fn duration(ms: Option<u64>) -> String {
    match ms {
        None => "-".into(),
        Some(ms) if ms < 1000 => format!("{ms} ms"),
        Some(ms) if ms < 60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        Some(ms) => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// A balance: two decimals.
pub(crate) fn credits(amount: MicroCredits) -> String {
    format!("{:.2}", amount.0 as f64 / 1e6)
}

/// An exact amount with its unit.
pub(crate) fn amount(credits: MicroCredits) -> String {
    let unit = if credits == MicroCredits(1_000_000) { "credit" } else { "credits" };
    format!("{credits} {unit}")
}

/// Formats the time between two moments for people: `5 min ago`, `in 30 d`.
pub(crate) fn distance(moment: Timestamp, now: Timestamp) -> String {
    let ms = now.unix_ms().saturating_sub(moment.unix_ms());
    let seconds = ms.unsigned_abs() / 1000;
    let span = match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    };
    if ms < 0 { format!("in {span}") } else { format!("{span} ago") }
}

/// Now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A price: four decimals.
pub(crate) fn price(amount: MicroCredits) -> String {
    format!("{:.4}", amount.0 as f64 / 1e6)
}

/// The prices of a Cargo: of a job or its unit, and of 1,000 tokens of prompts and replies if they have prices.
pub(crate) fn prices(cargo: &CargoEntry) -> String {
    let TokenPrices { price_per_1k_input, price_per_1k_output } = cargo.token_prices;
    if cargo.token_prices.is_zero() {
        let price = price(cargo.price_per_job);
        return if cargo.price_unit.is_job() {
            price
        } else {
            format!("{price} /{}", cargo.price_unit.as_str())
        };
    }
    let tokens = format!("{price_per_1k_input} + {price_per_1k_output} /1k");
    if cargo.price_per_job.is_zero() { tokens } else { format!("{} + {tokens}", price(cargo.price_per_job)) }
}

/// Something that may not be there.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// Yes or no.
pub(crate) fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}

/// The color class of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusColor {
    Good,
    Bad,
    Busy,
    Neutral,
}

/// The mood of a cell, by the word in it.
pub(super) fn status_color(cell: &str) -> StatusColor {
    match (cell.parse().ok(), cell) {
        (Some(JobStatus::Completed), _) | (None, "online") => StatusColor::Good,
        (Some(JobStatus::Failed | JobStatus::Timeout), _) | (None, "offline") => StatusColor::Bad,
        (Some(JobStatus::Running | JobStatus::Queued), _) | (None, "draining") => StatusColor::Busy,
        (None, cell) if cell.starts_with("expired") => StatusColor::Bad,
        _ => StatusColor::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn json_keeps_its_meaning_and_commands_nothing(text in "(\\PC|\\x1b|\u{9b}|\u{7f}|\u{202e}|\n|\"|\\\\){0,20}") {
            let json = serde_json::to_string(&text).expect("json");
            let shown = plain_json(&json);
            prop_assert!(!shown.contains(|c: char| is_hostile(c) || c == '\n'));
            prop_assert_eq!(serde_json::from_str::<String>(&shown).expect("json"), text);
        }

        #[test]
        fn plain_text_is_plain(text in "(\\PC|\\x1b|\u{9b}|\r|\u{2066}|\n|\t){0,20}") {
            prop_assert!(!plain(&text).contains(is_hostile));
            prop_assert!(!on_one_line(&text).contains(['\n', '\t', '\r', '\x1b']));
        }
    }

    #[test]
    fn a_model_cannot_command_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}31mc\rd\u{202e}e\n\tf\x07"), "a[2Jb31mcde\n\tf");
        assert!(matches!(plain("Grüße, 世界\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn distances_and_amounts() {
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let at = |seconds: i64| distance(now.plus_ms(-seconds * 1000), now);
        assert_eq!(
            [at(0), at(59), at(60), at(7200), at(200_000), at(-90)],
            ["0 s ago", "59 s ago", "1 min ago", "2 h ago", "2 d ago", "in 1 min"]
        );
        assert_eq!(amount(MicroCredits(1_000_000)), "1 credit");
        assert_eq!(amount(MicroCredits(1_000)), "0.001 credits");
    }

    #[test]
    fn durations() {
        let shown: Vec<String> =
            [None, Some(999), Some(1500), Some(61_000)].into_iter().map(duration).collect();
        assert_eq!(shown, ["-", "999 ms", "1.5 s", "1 min 1 s"]);
    }
}
