//! Makes UUIDs: random, named, or in order of time.

use std::process::ExitCode;

use island_cargo::{Error, OrInvalid, Output, run};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Deserialize)]
struct Input {
    #[serde(default)]
    version: Version,
    #[serde(default = "one")]
    count: usize,
    namespace: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Version {
    #[default]
    V4,
    V5,
    V7,
}

#[derive(Serialize)]
struct Answer {
    uuids: Vec<Uuid>,
}

fn one() -> usize {
    1
}

fn namespace(name: Option<&str>) -> Result<Uuid, Error> {
    match name {
        None | Some("dns") => Ok(Uuid::NAMESPACE_DNS),
        Some("url") => Ok(Uuid::NAMESPACE_URL),
        Some("oid") => Ok(Uuid::NAMESPACE_OID),
        Some("x500") => Ok(Uuid::NAMESPACE_X500),
        Some(other) => Uuid::parse_str(other).or_invalid("namespace is dns, url, oid, x500 or a UUID"),
    }
}

fn make(input: Input, _: &mut Output<'_>) -> Result<Answer, Error> {
    let uuids = match input.version {
        Version::V4 => (0..input.count).map(|_| Uuid::new_v4()).collect(),
        Version::V7 => (0..input.count).map(|_| Uuid::now_v7()).collect(),
        Version::V5 => {
            let name = input.name.or_invalid("version v5 needs a name")?;
            vec![Uuid::new_v5(&namespace(input.namespace.as_deref())?, name.as_bytes())]
        }
    };
    Ok(Answer { uuids })
}

fn main() -> ExitCode {
    run(make)
}
