//! `catalogue`: maintenance of the catalogue.

mod check;
mod hub;
mod online;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Subcommand;
use island_daemon::chain::Chain;
use island_protocol::{
    address::{Address, HubAddress},
    artifact::Artifact,
};

use super::print;
use hub::Hub;
use island_coordinator_domain::{
    catalogue::{Cargo, Catalogue, pins::Pins},
    config::Config,
};

/// Commands of `catalogue`.
#[derive(Debug, Subcommand)]
pub(super) enum CatalogueCommand {
    /// Pin the commit, length and hash of every file whose entry leaves one out, as the hub reports them. Islands
    /// preload only pinned files, and a file that its publisher changes later is refused.
    Pin {
        /// Cargos to pin; all by default.
        slugs: Vec<String>,
        /// Address of the hub; HF_ENDPOINT by default.
        #[arg(long, env = "HF_ENDPOINT", default_value = hub::PUBLIC)]
        hub: String,
        /// Pin files again that are pinned already.
        #[arg(long)]
        again: bool,
    },
    /// Check all entries, as at start, and load the models whose files are at hand, as an Island does before a job. With
    /// --online, compare the entries with what the hub has instead.
    Check {
        /// Cargos to check; all by default.
        slugs: Vec<String>,
        /// Folder with the files of Cargos: one folder for each, named by its slug, with the files at their paths in the
        /// repository. For a single Cargo also that folder itself. Files that are part of the catalogue need none.
        #[arg(long, value_name = "DIR")]
        files: Option<PathBuf>,
        /// Folder with the `island-worker-…` programs; by default the folder of this program, then PATH,
        /// then /usr/lib/island of the package island-agent.
        #[arg(long, value_name = "DIR")]
        workers: Option<PathBuf>,
        /// Compare revisions, hashes and lengths with the hub's, and list files that their publishers have changed.
        #[arg(long, conflicts_with_all = ["files", "workers"])]
        online: bool,
        /// Address of the hub; HF_ENDPOINT by default.
        #[arg(long, env = "HF_ENDPOINT", default_value = hub::PUBLIC)]
        hub: String,
    },
}

/// Runs the command.
pub(super) async fn run(config: &Config, command: CatalogueCommand) -> anyhow::Result<ExitCode> {
    match command {
        CatalogueCommand::Pin { slugs, hub, again } => pin(config, &slugs, &hub, again).await,
        CatalogueCommand::Check { slugs, online: true, hub, .. } => online::run(config, &slugs, &hub).await,
        CatalogueCommand::Check { slugs, files, workers, .. } => {
            check::run(config, &slugs, files.as_deref(), workers.as_deref()).await
        }
    }
}

/// The Cargos with these slugs or aliases, each once; all without any.
fn chosen<'c>(catalogue: &'c Catalogue, slugs: &[String]) -> anyhow::Result<Vec<&'c Cargo>> {
    let mut named = BTreeSet::new();
    for slug in slugs {
        let cargo = catalogue.named(slug).with_context(|| format!("there is no Cargo {slug}"))?;
        named.insert(cargo.entry.slug.clone());
    }
    let all = catalogue.iter().map(AsRef::as_ref);
    Ok(all.filter(|cargo: &&Cargo| slugs.is_empty() || named.contains(&cargo.entry.slug)).collect())
}

/// The files of one repository at one revision.
type Wanted = BTreeMap<(String, String, Option<String>), Vec<(HubAddress, Artifact)>>;

async fn pin(config: &Config, slugs: &[String], hub: &str, again: bool) -> anyhow::Result<ExitCode> {
    let settings = &config.catalogue;
    let path = settings.pins();
    let mut pins = Pins::read(&path).with_context(|| format!("read {}", path.display()))?;
    let catalogue = Catalogue::load(&settings.dir, settings.fixtures)?;
    let chosen = chosen(&catalogue, slugs)?;
    let artifacts = |cargo: &Cargo| cargo.spec.artifacts.clone();
    pins.keep(&catalogue.iter().flat_map(|cargo| artifacts(cargo)).map(|artifact| artifact.url).collect());
    let (wanted, unnamed) = wanted(chosen.into_iter().flat_map(artifacts), &pins, again);
    let hub = Hub::new(hub)?;
    let (mut pinned, mut failed) = (0, unnamed);
    for ((owner, repo, revision), files) in wanted {
        match hub.pins(&owner, &repo, revision.as_deref(), &files).await {
            Ok(found) => {
                for (address, pin) in found {
                    pinned += 1;
                    pins.insert(&address, pin);
                }
                // Written after each repository, so that an error in a later one loses nothing.
                write(&pins, &path)?;
            }
            Err(error) => failed.push(format!("{owner}/{repo}: {}", Chain(error.as_ref()))),
        }
    }
    write(&pins, &path)?;
    print(&format!("{pinned} files pinned in {}\n", path.display()));
    for failure in &failed {
        print(&format!("not pinned: {failure}\n"));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(pins: &Pins, path: &Path) -> anyhow::Result<()> {
    pins.write(path).with_context(|| format!("write {}", path.display()))
}

/// Groups the files to be pinned by repository, and lists those that cannot be.
fn wanted(artifacts: impl Iterator<Item = Artifact>, pins: &Pins, again: bool) -> (Wanted, Vec<String>) {
    let (mut wanted, mut unnamed, mut known) = (Wanted::new(), Vec::new(), BTreeSet::new());
    for artifact in artifacts {
        let Ok(Address::Hub(address)) = artifact.url.parse::<Address>() else { continue };
        let is_whole =
            artifact.sha256.is_some() && artifact.size_bytes.is_some() && address.revision.is_some();
        if is_whole || (pins.has(&artifact.url) && !again) || !known.insert(artifact.url.clone()) {
            continue;
        }
        if address.file.is_none() {
            unnamed.push(format!("{}: the address names no file", artifact.url));
            continue;
        }
        let repository = (address.owner.clone(), address.repo.clone(), address.revision.clone());
        wanted.entry(repository).or_default().push((address, artifact));
    }
    (wanted, unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_entry_leaves_out_is_asked_for() {
        let artifact = |url: &str, sha256: Option<u8>, size_bytes: Option<u64>| Artifact {
            name: "model".to_owned(),
            url: url.to_owned(),
            sha256: sha256.map(|byte| island_protocol::digest::Digest::from_bytes([byte; 32])),
            size_bytes,
        };
        let artifacts = [
            artifact("hf://o/r:whole@c0ffee", Some(1), Some(5)),
            artifact("hf://o/r:loose", Some(1), Some(5)),
            artifact("hf://o/r:loose", None, None),
            artifact("hf://o/r:other@v1", None, None),
            artifact("hf://o/s", None, None),
            artifact("https://example.org/x", None, None),
        ];
        let (wanted, unnamed) = wanted(artifacts.into_iter(), &Pins::default(), false);
        let files: Vec<String> = wanted.values().flatten().map(|(address, _)| address.to_string()).collect();
        assert_eq!(files, ["hf://o/r:loose", "hf://o/r:other@v1"]);
        assert_eq!(unnamed, ["hf://o/s: the address names no file"]);
    }
}
