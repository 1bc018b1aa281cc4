//! What an owner should know at once about an Island.

use island_console::session::Alert;
use island_protocol::fabric::Heartbeat;

/// Degrees Celsius above which a GPU is hot.
const HOT_C: u32 = 85;
/// Part of a disk above which it is almost full.
const FULL: f64 = 0.95;

/// The alerts of an Island, by its status and by what it sent last while it is online.
pub(super) fn alerts(status: &str, heartbeat: Option<&Heartbeat>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    match status {
        "offline" => alerts.push(Alert::Offline),
        "suspended" => alerts.push(Alert::Suspended),
        _ => {}
    }
    let Some(Heartbeat { gpus, system, .. }) = heartbeat else { return alerts };
    let hottest = gpus.iter().filter_map(|gpu| gpu.temperature_c).max();
    alerts.extend(hottest.filter(|degrees| *degrees > HOT_C).map(Alert::Hot));
    if system.disk_total_gb > 0.0 && system.disk_used_gb / system.disk_total_gb > FULL {
        alerts.push(Alert::DiskFull(system.disk_total_gb - system.disk_used_gb));
    }
    alerts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What an Island sends, with some values changed.
    fn heartbeat(changes: impl FnOnce(&mut Value)) -> Heartbeat {
        let sample = include_str!("../../../../protocol/tests/wire/heartbeat.json");
        let mut sample = serde_json::from_str(sample).expect("JSON");
        changes(&mut sample);
        serde_json::from_value(sample).expect("a heartbeat")
    }

    #[test]
    fn owners_are_told_what_is_too_hot_or_full() {
        assert!(alerts("online", Some(&heartbeat(|_| {}))).is_empty());
        let hot = heartbeat(|sent| sent["gpus"][0]["temperature_c"] = json!(HOT_C + 1));
        assert_eq!(alerts("online", Some(&hot)), [Alert::Hot(HOT_C + 1)]);
        let full = heartbeat(|sent| {
            sent["system"]["disk_total_gb"] = json!(500);
            sent["system"]["disk_used_gb"] = json!(490);
        });
        assert_eq!(alerts("draining", Some(&full)), [Alert::DiskFull(10.0)]);
    }

    #[test]
    fn owners_are_told_what_does_not_work() {
        assert_eq!(alerts("offline", None), [Alert::Offline]);
        assert_eq!(alerts("suspended", Some(&heartbeat(|_| {}))), [Alert::Suspended]);
        for status in ["online", "draining", "paused"] {
            assert!(alerts(status, None).is_empty(), "{status}");
        }
    }
}
