//! Two clocks: wall-clock time, for what people and other machines read, and one that counts suspended time, for leases.

use island_protocol::time::Timestamp;
use jiff::Zoned;
use rustix::time::{ClockId, clock_gettime};

/// Returns the wall-clock time.
pub fn now() -> Timestamp {
    Timestamp::from_unix_ms(island_daemon::wall_clock::unix_ms())
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
    // On macOS the monotonic clock counts suspended time, elsewhere it does not.
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::Monotonic;
    #[cfg(not(target_os = "macos"))]
    const CLOCK: ClockId = ClockId::Boottime;
    let since = clock_gettime(CLOCK);
    since.tv_sec as u64 * 1000 + since.tv_nsec as u64 / 1_000_000
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
