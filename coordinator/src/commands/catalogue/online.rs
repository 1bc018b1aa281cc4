//! `catalogue check --online`: entries against what a hub has now.

use std::{collections::BTreeMap, fmt, process::ExitCode};

use island_daemon::chain::Chain;
use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
};

use super::{chosen, hub::Hub, print};
use island_coordinator_domain::{catalogue::Catalogue, config::Config};

/// The revision that an address without one means.
const MAIN: &str = "main";

/// What was found out about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// The entry cannot be right: Islands would refuse the file, or not find it.
    Wrong(String),
    /// The publisher has changed the file since the revision of the entry.
    Changed { since: String },
    /// The hub could not be asked: nothing is known about the entry.
    Unknown(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(why) => write!(f, "WRONG: {why}"),
            Self::Changed { since } => write!(f, "changed by its publisher since {since}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// The files of Cargos in one repository.
type Repositories<'c> = BTreeMap<(String, String), Vec<(&'c str, HubAddress, &'c Artifact)>>;

/// Compares the files of Cargos with what the hub has at the revision of their entries and at its newest one, and prints what differs.
pub(super) async fn run(config: &Config, slugs: &[String], hub: &str) -> anyhow::Result<ExitCode> {
    let catalogue = Catalogue::pinned(&config.catalogue)?;
    let cargos = chosen(&catalogue, slugs)?;
    let hub = Hub::new(hub)?;
    let mut repositories = Repositories::new();
    let (mut files, mut wrong, mut changed, mut unknown, mut elsewhere) = (0, 0, 0, 0, 0);
    for cargo in &cargos {
        let slug = cargo.entry.slug.as_str();
        for artifact in &cargo.spec.artifacts {
            match artifact.url.parse::<Address>() {
                Ok(Address::Hub(address)) => {
                    let name = (address.owner.clone(), address.repo.clone());
                    repositories.entry(name).or_default().push((slug, address, artifact));
                }
                Ok(Address::Web(url)) => {
                    elsewhere += 1;
                    print(&format!("{slug}: {url}: not compared: it is not the address of a hub\n"));
                }
                Ok(Address::Local(_)) | Err(_) => {}
            }
        }
    }
    for ((owner, repo), wanted) in &repositories {
        let mut known = BTreeMap::new();
        for (slug, address, artifact) in wanted {
            files += 1;
            let revision = address.revision.as_deref().unwrap_or(MAIN);
            for revision in [revision, MAIN] {
                if !known.contains_key(revision) {
                    let listed = hub.list(owner, repo, revision).await;
                    known.insert(revision, listed.map_err(|error| Unlisted::of(&error)));
                }
            }
            for finding in findings(&known, revision, address, artifact) {
                match finding {
                    Finding::Wrong(_) => wrong += 1,
                    Finding::Changed { .. } => changed += 1,
                    Finding::Unknown(_) => unknown += 1,
                }
                let file = address.file.as_deref().unwrap_or("a file of its choice");
                print(&format!("{slug}: {owner}/{repo}, {file}: {finding}\n"));
            }
        }
    }
    let rest = [(unknown, "unknown"), (elsewhere, "not compared")];
    let rest = rest
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("; {count} {what}"))
        .collect::<Vec<_>>()
        .concat();
    let cargos = cargos.len();
    print(&format!("{files} files of {cargos} Cargos compared, {wrong} wrong, {changed} changed{rest}\n"));
    Ok(if wrong + unknown == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file as a hub lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its length, if the hub names it.
    pub size: Option<u64>,
    /// Its SHA-256, if the hub stores it by that.
    pub sha256: Option<String>,
    /// What the hub calls its content.
    pub content: Option<String>,
}

/// Why the files of a repository are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unlisted {
    why: String,
    /// Whether the hub has answered, so that the same is to be expected the next time.
    is_answer: bool,
}

impl Unlisted {
    fn of(error: &anyhow::Error) -> Self {
        let request = error.chain().find_map(|cause| cause.downcast_ref::<reqwest::Error>());
        let is_answer = request.is_none_or(|request| {
            request.status().is_some_and(|status| status.is_client_error() && status.as_u16() != 429)
        });
        Self { why: Chain(error.as_ref()).to_string(), is_answer }
    }
}

/// The files of a repository at a revision by path, or why they are unknown.
type Files = Result<BTreeMap<String, Listed>, Unlisted>;

/// What is to be reported about a file of this entry.
fn findings(
    known: &BTreeMap<&str, Files>,
    revision: &str,
    address: &HubAddress,
    artifact: &Artifact,
) -> Vec<Finding> {
    let then = match known.get(revision) {
        Some(Ok(files)) => files,
        Some(Err(Unlisted { why, is_answer: true })) => {
            return vec![Finding::Wrong(format!("revision {revision}: {why}"))];
        }
        Some(Err(Unlisted { why, is_answer: false })) => return vec![Finding::Unknown(why.clone())],
        None => return Vec::new(),
    };
    // An address without a file means the best one there is.
    let Some(file) = &address.file else { return Vec::new() };
    let Some(then) = then.get(file) else {
        return vec![Finding::Wrong(format!("there is no such file at {revision}"))];
    };
    let stated = artifact.sha256.map(|digest| digest.hex());
    let mut findings = Vec::new();
    match (&stated, &then.sha256) {
        (Some(stated), Some(found)) if stated != found => {
            findings.push(Finding::Wrong(format!("the entry states the hash {stated}, the hub has {found}")));
        }
        _ => {}
    }
    match (artifact.size_bytes, then.size) {
        (Some(stated), Some(found)) if stated != found => {
            findings.push(Finding::Wrong(format!("the entry states {stated} bytes, the hub has {found}")));
        }
        _ => {}
    }
    if let Some(Ok(now)) = known.get(MAIN)
        && revision != MAIN
        && now.get(file).is_none_or(|now| (&now.content, &now.sha256) != (&then.content, &then.sha256))
    {
        findings.push(Finding::Changed { since: revision.to_owned() });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_entry_states_is_compared_at_its_revision_and_the_newest_one() {
        let hash = |byte: u8| island_protocol::digest::Digest::from_bytes([byte; 32]);
        let listed =
            |byte: u8, size| Listed { size: Some(size), sha256: Some(hash(byte).hex()), content: None };
        let plain = |content: &str| Listed { size: Some(2), sha256: None, content: Some(content.to_owned()) };
        let files = |model: u8, size, config: &str| {
            Ok(BTreeMap::from([
                ("m.gguf".to_owned(), listed(model, size)),
                ("c.json".to_owned(), plain(config)),
            ]))
        };
        let known =
            BTreeMap::from([("main", files(2, 6, "b")), ("v1", files(1, 5, "a")), ("v2", files(2, 6, "b"))]);
        let found = |url: &str, sha256: Option<u8>, size_bytes| {
            let Ok(Address::Hub(address)) = url.parse::<Address>() else { panic!("{url}") };
            let artifact =
                Artifact { name: "model".into(), url: url.into(), sha256: sha256.map(hash), size_bytes };
            let revision = address.revision.clone().unwrap_or_else(|| MAIN.to_owned());
            findings(&known, &revision, &address, &artifact)
        };
        let changed = || Finding::Changed { since: "v1".to_owned() };
        assert_eq!(found("hf://o/r:m.gguf@v1", Some(1), Some(5)), [changed()]);
        assert_eq!(found("hf://o/r:c.json@v1", None, None), [changed()]);
        assert_eq!(found("hf://o/r:m.gguf@v2", Some(2), Some(6)), []);
        assert_eq!(found("hf://o/r:m.gguf", Some(2), None), []);
        assert_eq!(found("hf://o/r", None, None), []);
        let wrong = found("hf://o/r:m.gguf", Some(1), Some(5));
        assert!(matches!(&wrong[..], [Finding::Wrong(_), Finding::Wrong(_)]), "{wrong:?}");
        assert!(matches!(&found("hf://o/r:none", None, None)[..], [Finding::Wrong(_)]));
        let unlisted = |why: &str, is_answer| {
            BTreeMap::from([("main", Err(Unlisted { why: why.to_owned(), is_answer }))])
        };
        let gone = unlisted("the hub answered 404", true);
        let Ok(Address::Hub(address)) = "hf://o/r:m.gguf".parse::<Address>() else { panic!("an address") };
        let artifact =
            Artifact { name: "m".into(), url: "hf://o/r:m.gguf".into(), sha256: None, size_bytes: None };
        assert!(
            matches!(&findings(&gone, MAIN, &address, &artifact)[..], [Finding::Wrong(why)] if why.contains("404"))
        );
        let away = unlisted("connection refused", false);
        let found = findings(&away, MAIN, &address, &artifact);
        assert_eq!(found, [Finding::Unknown("connection refused".to_owned())]);
    }
}
