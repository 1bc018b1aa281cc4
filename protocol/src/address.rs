//! Addresses of artifacts and services.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

/// Whether a host of an address is this machine.
///
/// Names other than `localhost` are not, whatever they resolve to: they may resolve to another address for the connection.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    }
}

/// Servers of an address of the fabric, which may list several, separated by commas.
pub fn fabric_servers(url: &str) -> Vec<&str> {
    url.split(',').map(str::trim).collect()
}

/// Where an artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A repository on a model hub.
    Hub(HubAddress),
    /// A file on a web server.
    Web(String),
    /// A file on this machine, used in place.
    Local(PathBuf),
}

/// `hf://owner/repo[:file][@revision]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress {
    /// Who published it.
    pub owner: String,
    /// Its name there.
    pub repo: String,
    /// File inside the repository; if absent, one is chosen.
    pub file: Option<String>,
    /// Branch, tag or commit; `main` if absent.
    pub revision: Option<String>,
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf://{}/{}", self.owner, self.repo)?;
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        self.revision.as_ref().map_or(Ok(()), |revision| write!(f, "@{revision}"))
    }
}

/// Text that is not a valid artifact address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an artifact address: {must}")]
pub struct InvalidAddress {
    text: String,
    must: &'static str,
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |must| InvalidAddress { text: text.to_owned(), must };
        if let Some(rest) = text.strip_prefix("hf://") {
            return hub(rest).map(Self::Hub).ok_or_else(|| invalid("hf://owner/repo[:file][@revision]"));
        }
        if let Some(path) = text.strip_prefix("file://") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Self::Local(path))
            } else {
                Err(invalid("file:// and an absolute path"))
            };
        }
        let has_host = |scheme: &str| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
        if has_host("https://") || has_host("http://") {
            return Ok(Self::Web(text.to_owned()));
        }
        Err(invalid("hf://, https:// or file://"))
    }
}

fn hub(text: &str) -> Option<HubAddress> {
    let (text, revision) = match text.rsplit_once('@') {
        Some((before, revision)) => (before, Some(revision.to_owned())),
        None => (text, None),
    };
    let (repo, file) = match text.split_once(':') {
        Some((before, file)) => (before, Some(file.to_owned())),
        None => (text, None),
    };
    let (owner, repo) = repo.split_once('/')?;
    let name = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let relative = |path: &str| path.split('/').all(name);
    let is_fine = name(owner)
        && name(repo)
        && file.as_deref().is_none_or(relative)
        && revision.as_deref().is_none_or(relative);
    is_fine.then(|| HubAddress { owner: owner.to_owned(), repo: repo.to_owned(), file, revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for here in ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "LocalHost"]
        {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in
            ["0.0.0.0", "10.0.0.1", "192.168.1.1", "fd00::1", "localhost.example.org", "127.0.0.1.nip.io", ""]
        {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn an_address_of_the_fabric_lists_servers() {
        assert_eq!(fabric_servers("nats://127.0.0.1:4222"), ["nats://127.0.0.1:4222"]);
        assert_eq!(fabric_servers("tls://a:1, tls://b:1"), ["tls://a:1", "tls://b:1"]);
    }

    #[test]
    fn addresses() {
        let Ok(Address::Hub(hub)) = "hf://Qwen/Qwen2.5:a/b.gguf@main".parse() else {
            panic!("a hub address")
        };
        assert_eq!((hub.owner.as_str(), hub.repo.as_str()), ("Qwen", "Qwen2.5"));
        assert_eq!((hub.file.as_deref(), hub.revision.as_deref()), (Some("a/b.gguf"), Some("main")));
        assert_eq!(hub.to_string(), "hf://Qwen/Qwen2.5:a/b.gguf@main");
        assert_eq!("file:///a/b".parse(), Ok(Address::Local("/a/b".into())));
        assert!(matches!("https://x/y".parse(), Ok(Address::Web(_))));
        for bad in
            ["", "hf://", "hf://a", "hf://a/..", "hf://a/b:../c", "hf://a/b@..", "file://x", "ftp://a", "/a"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
