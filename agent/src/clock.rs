//! The two clocks: the wall's, for what people and other machines read, and one that counts suspend, for leases.

use std::time::{SystemTime, UNIX_EPOCH};

use island_protocol::time::Timestamp;

/// The wall clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(since.as_millis() as i64)
}

/// Milliseconds since the machine was switched on, suspend included: a lease goes on while a laptop sleeps.
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
        (seconds.unwrap_or_default() * 1000.0) as u64
    }
    // No clock of the standard library counts suspend there; the wall's does, and jumps are rare.
    #[cfg(not(target_os = "linux"))]
    {
        now().unix_ms().max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_runs() {
        let before = boot_ms();
        assert!(before > 0);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(boot_ms() > before);
    }
}
