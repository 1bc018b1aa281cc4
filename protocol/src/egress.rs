//! Addresses that a container may connect to: those its Cargo declares, limited to those the Island's owner allows.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::Value;

use crate::cargo::{CargoSpec, RuntimeType};

/// Maximum number of addresses that one Cargo may declare.
pub const MAX_PLACES: usize = 64;
/// Maximum length of a host name in bytes, from RFC 1035.
const MAX_NAME: usize = 253;
/// Maximum length of a label of it in bytes.
const MAX_LABEL: usize = 63;

/// Text that is not a valid `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The port is missing or invalid.
    #[error("'{0}' is not a valid host:port")]
    NoPort(String),
    /// Not a host name. IP addresses are rejected in every notation.
    #[error(
        "'{0}' is not a valid host name: letters, digits and hyphens between dots; IP addresses are not allowed"
    )]
    NoName(String),
}

/// A fully qualified host name in lower case. Never an IP address, in any notation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// Returns the name, without a trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let sound = |label: &str| {
            (1..=MAX_LABEL).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // Resolvers read a name that ends in a number as an address: 127.1, 0x7f.1, 2130706433.
        let named = name
            .rsplit_once('.')
            .is_some_and(|(_, last)| last.starts_with(|c: char| c.is_ascii_alphabetic()));
        if name.len() > MAX_NAME || !named || !name.split('.').all(sound) {
            return Err(PlaceError::NoName(text.to_owned()));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

/// A host and a port: what a Cargo declares and its program may connect to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place {
    /// Host name.
    pub host: HostName,
    /// Port.
    pub port: u16,
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let no_port = || PlaceError::NoPort(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        Ok(Self { host: host.parse()?, port: port_of(port).ok_or_else(no_port)? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host.0, self.port)
    }
}

impl TryFrom<String> for Place {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, PlaceError> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

/// Accepts digits only; `u16::from_str` would also accept a sign.
fn port_of(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

/// What an owner allows containers to connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub enum Egress {
    /// Nothing.
    #[default]
    None,
    /// Everything that a Cargo declares.
    Declared,
    /// Of what a Cargo declares, only these hosts, each at one port or at any.
    Listed(Vec<(HostName, Option<u16>)>),
}

/// [`Egress`] as written in settings.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "none, declared or a list of hosts")]
enum Form {
    Word(String),
    List(Vec<String>),
}

impl Egress {
    /// Returns whether `place` is allowed.
    pub fn allows(&self, place: &Place) -> bool {
        match self {
            Self::None => false,
            Self::Declared => true,
            Self::Listed(hosts) => hosts
                .iter()
                .any(|(host, port)| *host == place.host && port.is_none_or(|port| port == place.port)),
        }
    }

    /// Returns the first of `places` that is not allowed.
    pub fn refused<'a>(&self, places: &'a [Place]) -> Option<&'a Place> {
        places.iter().find(|place| !self.allows(place))
    }
}

impl TryFrom<Form> for Egress {
    type Error = serde::de::value::Error;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        match form {
            Form::Word(word) if word == "none" => Ok(Self::None),
            Form::Word(word) if word == "declared" => Ok(Self::Declared),
            Form::Word(word) => {
                Err(Self::Error::custom(format!("'{word}' is neither none, declared nor a list of hosts")))
            }
            Form::List(hosts) => {
                let hosts: Result<_, PlaceError> = hosts.iter().map(|text| host_of(text)).collect();
                hosts.map(Self::Listed).map_err(Self::Error::custom)
            }
        }
    }
}

/// `host` or `host:port`.
fn host_of(text: &str) -> Result<(HostName, Option<u16>), PlaceError> {
    if text.contains(':') {
        return text.parse().map(|place: Place| (place.host, Some(place.port)));
    }
    text.parse().map(|host| (host, None))
}

impl From<Egress> for Form {
    fn from(egress: Egress) -> Self {
        match egress {
            Egress::None => Self::Word("none".to_owned()),
            Egress::Declared => Self::Word("declared".to_owned()),
            Egress::Listed(hosts) => Self::List(hosts.into_iter().map(written).collect()),
        }
    }
}

fn written((host, port): (HostName, Option<u16>)) -> String {
    match port {
        Some(port) => Place { host, port }.to_string(),
        None => host.0,
    }
}

/// Returns the addresses that the `[engine]` table of a container Cargo declares, or the first invalid one. The engine validates
/// the rest of the table.
pub fn declared(engine: &Value) -> Result<Vec<Place>, PlaceError> {
    let read = |value: &Value| match value.as_str() {
        Some(text) => text.parse(),
        None => Err(PlaceError::NoPort(value.to_string())),
    };
    engine.get("egress").and_then(Value::as_array).into_iter().flatten().map(read).collect()
}

impl CargoSpec {
    /// Returns the addresses that the Cargo declares; empty for all engines but containers.
    pub fn egress(&self) -> Result<Vec<Place>, PlaceError> {
        if self.runtime_type == RuntimeType::Container { declared(&self.engine) } else { Ok(Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_host_names_are_accepted() {
        for text in ["example.org:443", "a-b.xn--p1ai:1", "EXAMPLE.org.:65535", "1.2.3.4.example.org:80"] {
            let place: Place = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(place.to_string(), text.to_lowercase().replace(".:", ":"));
        }
        for text in [
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:+80",
            "example.org:80:80",
            "localhost:80",
            "127.0.0.1:80",
            "127.1:80",
            "0x7f.1:80",
            "0x7f.0x1:80",
            "0177.0.0.1:80",
            "2130706433:80",
            "[::1]:80",
            "::1:80",
            "[::ffff:127.0.0.1]:80",
            "user@example.org:80",
            "example.org/x:80",
            "exa mple.org:80",
            "example.org\r\n:80",
            "-a.org:80",
            "a-.org:80",
            "a..org:80",
            ".org:80",
            "..:80",
            "ex\u{e4}mple.org:80",
            "\u{ff11}27.0.0.\u{ff11}:80",
            "",
            ":80",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        assert!(format!("{}.org:1", "a".repeat(64)).parse::<Place>().is_err());
        assert!(format!("{}org:1", "a.".repeat(126)).parse::<Place>().is_err());
    }

    #[test]
    fn owner_allows_none_all_or_listed_hosts() {
        let read = |value: serde_json::Value| serde_json::from_value::<Egress>(value);
        let place = |text: &str| text.parse::<Place>().expect("valid");
        let listed = read(json!(["a.org", "b.org:443"])).expect("a list");
        for (egress, text, allowed) in [
            (Egress::None, "a.org:1", false),
            (Egress::Declared, "a.org:1", true),
            (listed.clone(), "a.org:1", true),
            (listed.clone(), "b.org:443", true),
            (listed.clone(), "b.org:80", false),
            (listed.clone(), "c.a.org:443", false),
        ] {
            assert_eq!(egress.allows(&place(text)), allowed, "{egress:?} {text}");
        }
        for egress in [Egress::None, Egress::Declared, listed] {
            let text = serde_json::to_value(&egress).expect("JSON");
            assert_eq!(read(text).expect("parse"), egress);
        }
        for wrong in
            [json!(true), json!("all"), json!(["127.0.0.1"]), json!(["*"]), json!(["*.org"]), json!([1])]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(text in "[a-zA-Z0-9.:-]{1,40}") {
            if let Ok(place) = text.parse::<Place>() {
                prop_assert_eq!(place.to_string().parse::<Place>(), Ok(place.clone()));
                prop_assert!(place.host.as_str().parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
