//! Hours of the week, as owners write them: `mon-fri 18:00-08:00`. A window that ends before it begins ends on the next day.

use std::{fmt, str::FromStr};

use island_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// A moment in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// Day of the week, 0 for Monday.
    pub weekday: u8,
    /// Minute of the day, 0 to 1439.
    pub minute: u16,
}

impl Moment {
    /// Now, in the time zone of this machine.
    pub fn now() -> Self {
        let local = jiff::Zoned::now();
        Self {
            now: Timestamp::from_unix_ms(local.timestamp().as_millisecond()),
            weekday: local.weekday().to_monday_zero_offset() as u8,
            minute: u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs()),
        }
    }
}

/// Some hours on some days of the week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    first: u8,
    last: u8,
    begin: u16,
    end: u16,
}

/// A text that is not a window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a window of hours; write them as 'mon-fri 18:00-08:00' or 'sun 00:00-24:00'")]
pub struct WindowError(String);

impl Window {
    /// Whether the moment is inside the window.
    pub fn covers(&self, moment: &Moment) -> bool {
        let (day, minute) = (moment.weekday, moment.minute);
        let yesterday = (day + 6) % 7;
        if self.begin < self.end {
            return self.on(day) && (self.begin..self.end).contains(&minute);
        }
        (self.on(day) && minute >= self.begin) || (self.on(yesterday) && minute < self.end)
    }

    fn on(&self, day: u8) -> bool {
        if self.first <= self.last {
            (self.first..=self.last).contains(&day)
        } else {
            day >= self.first || day <= self.last
        }
    }
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        parse(text).ok_or_else(|| WindowError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Window> {
    let (days, hours) = text.trim().split_once(' ')?;
    let day = |name: &str| DAYS.iter().position(|known| name.eq_ignore_ascii_case(known)).map(|at| at as u8);
    let (first, last) = match days.split_once('-') {
        Some((first, last)) => (day(first)?, day(last)?),
        None => (day(days)?, day(days)?),
    };
    let (begin, end) = hours.trim().split_once('-')?;
    let (begin, end) = (minute(begin)?, minute(end)?);
    // A window starts within its day and is not empty.
    (begin < DAY && begin != end).then_some(Window { first, last, begin, end })
}

/// `HH:MM`, up to 24:00.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| {
        let plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u16>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= DAY).then_some(hours * 60 + minutes)
}

impl TryFrom<String> for Window {
    type Error = WindowError;

    fn try_from(text: String) -> Result<Self, WindowError> {
        text.parse()
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (DAYS[usize::from(self.first)], DAYS[usize::from(self.last)]);
        let days = if first == last { first.to_owned() } else { format!("{first}-{last}") };
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        write!(f, "{days} {}-{}", clock(self.begin), clock(self.end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(text: &str) -> Window {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn covers(text: &str, weekday: u8, clock: &str) -> bool {
        let minute = minute(clock).expect("a time");
        window(text).covers(&Moment { now: Timestamp::from_unix_ms(0), weekday, minute })
    }

    #[test]
    fn a_night_ends_on_the_next_day() {
        assert!(covers("mon-fri 18:00-08:00", 0, "18:00"));
        assert!(covers("mon-fri 18:00-08:00", 5, "07:59"), "Friday's night");
        assert!(!covers("mon-fri 18:00-08:00", 0, "07:59"), "there is no window on Sunday");
        assert!(!covers("mon-fri 18:00-08:00", 2, "12:00"));
        assert!(covers("sun 00:00-24:00", 6, "23:59"));
        assert!(covers("sat-mon 00:00-24:00", 0, "10:00"), "over the end of the week");
        assert!(!covers("sat-mon 00:00-24:00", 1, "10:00"));
    }

    #[test]
    fn invalid_windows_are_rejected() {
        for text in
            ["", "mon", "mon 8-9", "mon 08:00-08:00", "mon 24:00-25:00", "mon 08:60-09:00", "my 08:00-09:00"]
        {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn windows_survive_formatting_and_parsing(first in 0_u8..7, last in 0_u8..7, begin in 0_u16..1440, end in 0_u16..=1440) {
            prop_assume!(begin != end);
            let made = Window { first, last, begin, end };
            prop_assert_eq!(window(&made.to_string()), made);
        }
    }
}
