//! What a Cargo that an account publishes may name, beyond the rules of every catalogue file.
//!
//! Its author is not trusted, and its files are read by other people's machines: nothing of it is on the coordinator's
//! machine or in a network of its own, all bytes are known before they are reviewed, and its schemas are evaluated in
//! linear time and a limited number of steps.

use std::{ops::Range, path::Path};

use super::{
    Cargo, Fault, artifacts, choice, evaluation,
    file::{self, CargoFile, Checker, Origin},
};
use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
    egress::HostName,
};

/// Name of a manifest in the faults about it.
const NAME: &str = "manifest";

/// Reads a manifest. Schemas of tasks are those of the catalogue in `dir`.
pub fn read(dir: &Path, text: &str) -> Result<Cargo, Vec<Fault>> {
    // No file of a publisher is hashed.
    let mut hashes = artifacts::Hashes::default();
    let read = file::parse(Path::new(NAME), dir, text, Origin::Publisher, &mut hashes)?;
    // No file of it is built on this machine.
    let unbuilt = || Fault { file: NAME.into(), line: 1, message: "a file is not built".to_owned() };
    read.map(|(cargo, _)| cargo).ok_or_else(|| vec![unbuilt()])
}

/// Checks what only manifests are checked for, apart from their files.
pub(super) fn check(check: &mut Checker<'_>, file: &CargoFile) {
    if choice::is_reserved(file.slug.get_ref()) {
        let message =
            format!("the slug {} is reserved: clients mean any suitable model by it", file.slug.get_ref());
        check.fault(file.slug.span(), message);
    }
    for alias in &file.aliases {
        check.fault(alias.span(), "a published Cargo has no aliases: clients name it by its slug");
    }
    let schemas = [(&file.input_schema, "input_schema"), (&file.output_schema, "output_schema")];
    for (schema, name) in schemas {
        let Some(schema) = schema else { continue };
        if let Some(why) = evaluation::unbounded(schema.get_ref()) {
            check.fault(schema.span(), format!("{name} {why}"));
        }
    }
}

/// Checks one of its files, which `span` names.
pub(super) fn check_artifact(check: &mut Checker<'_>, span: Range<usize>, artifact: &Artifact) {
    let Artifact { name, url, sha256, size_bytes } = artifact;
    if !is_public(url) {
        let message = "an address of a published Cargo is hf://owner/repo:file@revision or https://host/path, \
             where the host has a name";
        check.fault(span.clone(), message);
    }
    if !artifacts::is_inside(name) {
        check.fault(span.clone(), format!("{name:?} is not a path inside a folder"));
    }
    if sha256.is_none() || size_bytes.is_none() {
        check.fault(span, format!("{name:?} needs its hash and its length in bytes"));
    }
}

/// Whether an address means one file that every Island can download.
fn is_public(url: &str) -> bool {
    match url.parse() {
        Ok(Address::Hub(HubAddress { file, .. })) => file.is_some(),
        Ok(Address::Web(_)) => url.strip_prefix("https://").is_some_and(has_host_name),
        Ok(Address::Local(_)) | Err(_) => false,
    }
}

/// Whether the host of an address has a name: a number may be a machine in an owner's own network.
fn has_host_name(rest: &str) -> bool {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = host.rsplit_once(':').unwrap_or((host, "443"));
    host.parse::<HostName>().is_ok() && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_public() {
        for good in
            ["hf://o/r:a/b.gguf@main", "hf://o/r:a", "https://example.org/a", "https://example.org:8443/a?b"]
        {
            assert!(is_public(good), "{good}");
        }
        for bad in [
            "file:///etc/passwd",
            "file://built/a",
            "hf://o/r",
            "http://example.org/a",
            "https://127.0.0.1/a",
            "https://2130706433/a",
            "https://[::1]/a",
            "https://localhost/a",
            "https://user@example.org/a",
            "https://user:1@example.org/a",
            "docker://image@sha256:0",
        ] {
            assert!(!is_public(bad), "{bad}");
        }
    }
}
