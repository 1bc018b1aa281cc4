//! An image in a registry, identified by its content. A tag may refer to another image later, so a reference needs a digest.

use std::fmt;

use island_protocol::digest::Digest;

/// Maximum bytes of a name.
const MAX_BYTES: usize = 255;

/// `registry/name@sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    name: String,
    digest: Digest,
}

impl Reference {
    /// Reads a reference without its scheme.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, digest) = text
            .split_once('@')
            .ok_or_else(|| format!("{text:?} has no digest; write registry/name@sha256:…"))?;
        let digest = digest.parse().map_err(|error| format!("{text:?}: {error}"))?;
        let sound = |part: &str| {
            let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let inner = |byte: u8| edge(byte) || b"._-".contains(&byte);
            let (first, last) = (part.bytes().next(), part.bytes().next_back());
            first.is_some_and(edge)
                && last.is_some_and(edge)
                && part.bytes().all(inner)
                && !part.contains("..")
        };
        let mut parts = name.split('/');
        let registry = parts.next().unwrap_or_default();
        let (host, port) = registry.split_once(':').unwrap_or((registry, "1"));
        let path: Vec<_> = parts.collect();
        let known_host =
            sound(host) && (host.contains('.') || host == "localhost") && port.parse::<u16>().is_ok();
        if name.len() > MAX_BYTES || !known_host || path.is_empty() || !path.iter().all(|part| sound(part)) {
            return Err(format!("{name:?} is not an image in a registry; write registry.example/path/name"));
        }
        Ok(Self { name: name.to_owned(), digest })
    }

    /// Registry and path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest of its content.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether one of the prefixes covers it: complete parts of a path only.
    pub fn is_allowed(&self, prefixes: &[String]) -> bool {
        prefixes.iter().any(|prefix| {
            let prefix = prefix.trim_end_matches('/');
            let rest = self.name.strip_prefix(prefix);
            !prefix.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    #[test]
    fn only_digests_in_registries_are_references() {
        for name in ["registry.example/tool", "registry.example:5000/team/tool-2", "localhost/x"] {
            let text = format!("{name}@{}", digest());
            assert_eq!(Reference::parse(&text).expect("a reference").to_string(), text);
        }
        for text in [
            "registry.example/tool".to_owned(),
            "registry.example/tool:latest".to_owned(),
            format!("registry.example/tool:latest@{}", digest()),
            format!("tool@{}", digest()),
            format!("library/tool@{}", digest()),
            format!("registry.example/../tool@{}", digest()),
            format!("registry.example//tool@{}", digest()),
            format!("registry.example/Tool@{}", digest()),
            format!("registry.example/tool&fromSrc=-@{}", digest()),
            format!("registry.example/tool@{}0", digest()),
            "registry.example/tool@sha256:../../x".to_owned(),
        ] {
            assert!(Reference::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_cover_whole_parts() {
        let reference =
            Reference::parse(&format!("registry.example/team/tool@{}", digest())).expect("a reference");
        let allowed = |prefix: &str| reference.is_allowed(&[prefix.to_owned()]);
        assert!(
            allowed("registry.example")
                && allowed("registry.example/team/")
                && allowed("registry.example/team/tool")
        );
        assert!(
            !allowed("registry.exam") && !allowed("registry.example/te") && !allowed("") && !allowed("/")
        );
        assert!(!reference.is_allowed(&[]));
    }
}
