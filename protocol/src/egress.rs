//! Where the program of a container may connect to: what its Cargo declares, and what an Island's owner allows.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::Value;

use crate::cargo::{CargoSpec, RuntimeType};

/// Places that one Cargo may declare.
pub const MAX_PLACES: usize = 64;
/// Bytes of a name, as the domain name system bounds it.
const MAX_NAME: usize = 253;
/// Bytes between two dots of it.
const MAX_LABEL: usize = 63;

/// A text that names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// No port, or none that there is.
    #[error("'{0}' is no host:port")]
    NoPort(String),
    /// Not the name of a host. Addresses are none, however they are written.
    #[error("'{0}' is no name of a host: letters, digits and hyphens between dots, and no address")]
    NoName(String),
}

/// The name of a host, in small letters, fully qualified. Never an address, in whatever form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// The name, without a dot at its end.
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
        // What ends in a number is an address to many a resolver: 127.1, 0x7f.1, 2130706433.
        let named = name
            .rsplit_once('.')
            .is_some_and(|(_, last)| last.starts_with(|c: char| c.is_ascii_alphabetic()));
        if name.len() > MAX_NAME || !named || !name.split('.').all(sound) {
            return Err(PlaceError::NoName(text.to_owned()));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

/// A host and a port: what a Cargo declares, and what its program may then connect to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place {
    /// Which host.
    pub host: HostName,
    /// Which port of it.
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

/// Digits and nothing else; the parser of numbers would take a sign.
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
    /// Whatever a Cargo declares.
    Declared,
    /// Of what it declares, these hosts, each at one port or at any.
    Listed(Vec<(HostName, Option<u16>)>),
}

/// [`Egress`] as people write it.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "none, declared or a list of hosts")]
enum Form {
    Word(String),
    List(Vec<String>),
}

impl Egress {
    /// Whether it allows this place.
    pub fn allows(&self, place: &Place) -> bool {
        match self {
            Self::None => false,
            Self::Declared => true,
            Self::Listed(hosts) => hosts
                .iter()
                .any(|(host, port)| *host == place.host && port.is_none_or(|port| port == place.port)),
        }
    }

    /// The first of `places` that it does not allow.
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

/// The places that the `[engine]` table of a container Cargo declares, or which of them is none. Whether the table makes sense
/// otherwise is for its engine to say.
pub fn declared(engine: &Value) -> Result<Vec<Place>, PlaceError> {
    let read = |value: &Value| match value.as_str() {
        Some(text) => text.parse(),
        None => Err(PlaceError::NoPort(value.to_string())),
    };
    engine.get("egress").and_then(Value::as_array).into_iter().flatten().map(read).collect()
}

impl CargoSpec {
    /// The places that it declares, which only containers may.
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
    fn names_and_nothing_else() {
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
    fn an_owner_says_none_all_or_which() {
        let read = |value: serde_json::Value| serde_json::from_value::<Egress>(value);
        let place = |text: &str| text.parse::<Place>().expect("a place");
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
            assert_eq!(read(text).expect("read again"), egress);
        }
        for wrong in
            [json!(true), json!("all"), json!(["127.0.0.1"]), json!(["*"]), json!(["*.org"]), json!([1])]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_and_read_again(text in "[a-zA-Z0-9.:-]{1,40}") {
            if let Ok(place) = text.parse::<Place>() {
                prop_assert_eq!(place.to_string().parse::<Place>(), Ok(place.clone()));
                prop_assert!(place.host.as_str().parse::<std::net::IpAddr>().is_err());
            }
        }
    }
}
