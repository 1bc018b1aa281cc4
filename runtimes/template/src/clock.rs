//! The date in a template, in UTC.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Formats `now`, seconds since 1970, with the directives of `strftime` that templates use; others are left unchanged.
pub(super) fn format(format: &str, now: i64) -> String {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some(directive) => text.push_str(&expand(directive, now)),
            None => text.push('%'),
        }
    }
    text
}

fn expand(directive: char, now: i64) -> String {
    let (days, second) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[(days + 3).rem_euclid(7) as usize];
    match directive {
        'Y' => year.to_string(),
        'y' => two_digits(year.rem_euclid(100)),
        'm' => two_digits(month),
        'd' => two_digits(day),
        'B' => month_name.to_owned(),
        'b' => month_name[..3].to_owned(),
        'A' => day_name.to_owned(),
        'a' => day_name[..3].to_owned(),
        'H' => two_digits(second / 3600),
        'M' => two_digits(second / 60 % 60),
        'S' => two_digits(second % 60),
        '%' => "%".to_owned(),
        unknown => format!("%{unknown}"),
    }
}

fn two_digits(number: i64) -> String {
    format!("{number:02}")
}

/// Year, month and day of a number of days since 1970, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted in eras of 400 years that begin on the first of March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(format("%A, %d %B %Y %H:%M:%S %%", 1_795_210_800), "Friday, 20 November 2026 21:40:00 %");
        assert_eq!(format("%d %b %Y", 951_782_400), "29 Feb 2000");
        assert_eq!(format("%Y-%m-%d", -1), "1969-12-31");
    }
}
