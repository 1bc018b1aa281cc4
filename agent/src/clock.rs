//! Wall-clock time, for what people read; the same without its steps, for what is signed; and a clock that counts suspended time,
//! for leases.

use island_protocol::time::Timestamp;
use jiff::Zoned;

/// Returns the wall-clock time.
pub fn now() -> Timestamp {
    Timestamp::from_unix_ms(island_daemon::wall_clock::unix_ms())
}

/// Returns the time for signed messages, which does not follow steps of the system clock.
pub fn steady() -> Timestamp {
    Timestamp::from_unix_ms(island_daemon::wall_clock::steady_unix_ms())
}

/// Sets [`steady`] to the wall-clock time, or back: nobody accepts what is signed with it.
pub fn resynchronize() {
    island_daemon::wall_clock::resynchronize();
}

/// Returns how long ago a message was signed, by the clock for which it is less.
pub fn age_ms(sent_at: Timestamp) -> i64 {
    let age = |now: Timestamp| now.unix_ms() - sent_at.unix_ms();
    [age(now()), age(steady())].into_iter().min_by_key(|age| age.saturating_abs()).unwrap_or(i64::MAX)
}

/// Formats a time for people, in the time zone of this machine: `14:05` today, `Tue 24 Nov 14:05` otherwise, with the year if it is
/// another one.
pub fn local(moment: Timestamp) -> String {
    local_at(moment, &Zoned::now())
}

fn local_at(moment: Timestamp, now: &Zoned) -> String {
    let Ok(moment) = jiff::Timestamp::from_millisecond(moment.unix_ms()) else { return moment.to_string() };
    let local = moment.to_zoned(now.time_zone().clone());
    let format = if local.date() == now.date() {
        "%H:%M"
    } else if local.year() == now.year() {
        "%a %-d %b %H:%M"
    } else {
        "%-d %b %Y %H:%M"
    };
    local.strftime(format).to_string()
}

/// Returns the milliseconds since boot, suspended time included, because a lease also runs while a laptop is suspended.
pub fn boot_ms() -> u64 {
    u64::try_from(island_daemon::wall_clock::boot_ms()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_local() {
        let now: Zoned = "2026-11-23T09:30[Europe/Berlin]".parse().expect("a time");
        let local = |text: &str| {
            let moment: jiff::Timestamp = text.parse().expect("a time");
            local_at(Timestamp::from_unix_ms(moment.as_millisecond()), &now)
        };
        assert_eq!(local("2026-11-23T08:25:05.419Z"), "09:25");
        assert_eq!(local("2026-11-23T23:25:05.419Z"), "Tue 24 Nov 00:25");
        assert_eq!(local("2027-01-02T08:25:05.419Z"), "2 Jan 2027 09:25");
    }

    #[test]
    fn the_boot_clock_runs() {
        let before = boot_ms();
        assert!(before > 0);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(boot_ms() > before);
    }
}
