//! `GET /hosts/alerts`: what an owner should know at once about the Islands of the account.

use std::sync::Arc;

use axum::{Json, extract::State};
use island_protocol::fabric::Heartbeat;
use island_protocol_api::{
    Data,
    alert::{Alert, HostAlert},
};
use tokio::time::Instant;

use crate::{Api, http::auth::Caller};
use island_coordinator_domain::fleet::OwnedIsland;

/// Degrees Celsius above which a GPU is hot.
const HOT_C: u32 = 85;
/// Part of a disk above which it is almost full.
const FULL: f64 = 0.95;

/// All alerts of the caller's Islands, those of one Island after another.
pub(crate) async fn list(State(api): State<Arc<Api>>, caller: Caller) -> Json<Data<Vec<HostAlert>>> {
    let own = api.fleet.of_account(caller.account, Instant::now());
    Json(Data { data: own.iter().flat_map(of_island).collect() })
}

/// The alerts of one Island.
pub(crate) fn of_island(island: &OwnedIsland) -> impl Iterator<Item = HostAlert> {
    let alerts = alerts(island.status, island.heartbeat.as_deref());
    alerts.into_iter().map(move |alert| HostAlert { host_id: island.id, name: island.name.clone(), alert })
}

/// The alerts of an Island, by its status and by what it sent last while it is online.
fn alerts(status: &str, heartbeat: Option<&Heartbeat>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    match status {
        "offline" => alerts.push(Alert::Offline),
        "suspended" => alerts.push(Alert::Suspended),
        _ => {}
    }
    let Some(Heartbeat { gpus, system, .. }) = heartbeat else { return alerts };
    let hottest = gpus.iter().filter_map(|gpu| gpu.temperature_c).max();
    alerts.extend(hottest.filter(|degrees| *degrees > HOT_C).map(|degrees| Alert::Hot { degrees }));
    if system.disk_total_gb > 0.0 && system.disk_used_gb / system.disk_total_gb > FULL {
        alerts.push(Alert::DiskFull { free_gb: system.disk_total_gb - system.disk_used_gb });
    }
    alerts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What an Island sends, with some values changed.
    fn heartbeat(changes: impl FnOnce(&mut Value)) -> Heartbeat {
        let sample = include_str!("../../../../../protocol/tests/wire/heartbeat.json");
        let mut sample = serde_json::from_str(sample).expect("JSON");
        changes(&mut sample);
        serde_json::from_value(sample).expect("a heartbeat")
    }

    #[test]
    fn owners_are_told_what_is_too_hot_or_full() {
        assert!(alerts("online", Some(&heartbeat(|_| {}))).is_empty());
        let hot = heartbeat(|sent| sent["gpus"][0]["temperature_c"] = json!(HOT_C + 1));
        assert_eq!(alerts("online", Some(&hot)), [Alert::Hot { degrees: HOT_C + 1 }]);
        let full = heartbeat(|sent| {
            sent["system"]["disk_total_gb"] = json!(500);
            sent["system"]["disk_used_gb"] = json!(490);
        });
        assert_eq!(alerts("draining", Some(&full)), [Alert::DiskFull { free_gb: 10.0 }]);
    }

    #[test]
    fn owners_are_told_what_does_not_work() {
        assert_eq!(alerts("offline", None), [Alert::Offline]);
        assert_eq!(alerts("suspended", Some(&heartbeat(|_| {}))), [Alert::Suspended]);
        for status in ["online", "draining", "paused"] {
            assert!(alerts(status, None).is_empty(), "{status}");
        }
    }

    #[test]
    fn an_alert_has_the_id_and_the_name_of_its_island() {
        let hot = heartbeat(|sent| sent["gpus"][0]["temperature_c"] = json!(HOT_C + 1));
        let id = hot.host_id;
        let name = "attic".to_owned();
        let island =
            OwnedIsland { id, name: name.clone(), status: "suspended", heartbeat: Some(Arc::new(hot)) };
        let expected = [Alert::Suspended, Alert::Hot { degrees: HOT_C + 1 }].map(|alert| HostAlert {
            host_id: id,
            name: name.clone(),
            alert,
        });
        assert_eq!(of_island(&island).collect::<Vec<_>>(), expected);
    }
}
