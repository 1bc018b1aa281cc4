//! `/hosts/alerts`: what owners should know at once about their Islands.

use island_protocol::ids::HostId;
use serde::{Deserialize, Serialize};

/// An entry of `GET /hosts/alerts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostAlert {
    /// The Island.
    pub host_id: HostId,
    /// Its name.
    pub name: String,
    /// The alert.
    #[serde(flatten)]
    pub alert: Alert,
}

/// What an owner should know at once about an Island.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "alert")]
pub enum Alert {
    /// Nothing has arrived from it for a while.
    Offline,
    /// An operator suspended it.
    Suspended,
    /// A GPU is hot.
    Hot {
        /// Its temperature in degrees Celsius.
        degrees: u32,
    },
    /// The disk is almost full.
    DiskFull {
        /// Gigabytes that are free.
        free_gb: f64,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_an_alert_are_beside_those_of_its_island() {
        let id = "0192f1a0-0000-7000-8000-000000000000";
        let entry = |alert| HostAlert { host_id: id.parse().expect("an id"), name: "attic".into(), alert };
        for (alert, fields) in [
            (Alert::Offline, json!({"alert": "offline"})),
            (Alert::Suspended, json!({"alert": "suspended"})),
            (Alert::Hot { degrees: 91 }, json!({"alert": "hot", "degrees": 91})),
            (Alert::DiskFull { free_gb: 9.5 }, json!({"alert": "disk_full", "free_gb": 9.5})),
        ] {
            let mut expected = json!({"host_id": id, "name": "attic"});
            for (name, value) in fields.as_object().expect("an object") {
                expected[name] = value.clone();
            }
            assert_eq!(serde_json::to_value(entry(alert)).expect("JSON"), expected);
            assert_eq!(serde_json::from_value::<HostAlert>(expected).expect("an alert"), entry(alert));
        }
    }
}
