//! Published Cargos in memory, merged into the operator's catalogue. A manifest never changes, so each is read once.

use std::{collections::BTreeMap, iter, path::PathBuf, sync::Arc};

use island_protocol::{
    cargo::Published,
    ids::{PublicationId, Slug},
};
use tokio::sync::Mutex;

use island_coordinator_domain::catalogue::{Cargo, Catalogue, Fault, manifest, served::Served};
use island_coordinator_storage::{
    Store, StoreError,
    publication::{self, Approved},
    workload,
};

/// The Cargo of a job that was accepted.
#[derive(Debug, Clone)]
pub enum JobCargo {
    /// The version that was agreed to.
    Found(Arc<Cargo>),
    /// The operator has replaced that version.
    Changed,
    /// The catalogue no longer has it.
    Removed,
}

/// The catalogue that is served, and what it is made of.
#[derive(Debug)]
pub(super) struct Publications {
    store: Store,
    /// The operator's catalogue, and its folder.
    own: Catalogue,
    dir: PathBuf,
    served: Served,
    /// The publications that are served; `None` for one that this version cannot serve. Locked from the read of SQL to
    /// the replacement of the catalogue, so that no older read replaces a newer one.
    known: Mutex<BTreeMap<PublicationId, Option<Arc<Cargo>>>>,
}

impl Publications {
    /// Serves the operator's catalogue until the first refresh.
    pub(super) fn new(store: Store, own: Catalogue, dir: PathBuf) -> Self {
        let served = Served::new(own.with(iter::empty()));
        Self { store, own, dir, served, known: Mutex::default() }
    }

    pub(super) fn catalogue(&self) -> Arc<Catalogue> {
        self.served.now()
    }

    /// Whether a slug or alias is that of an operator's Cargo.
    pub(super) fn is_own(&self, name: &str) -> bool {
        self.own.named(name).is_some()
    }

    /// Reads a manifest and checks it.
    pub(super) fn check(&self, manifest: &str) -> Result<Cargo, Vec<Fault>> {
        manifest::read(&self.dir, manifest)
    }

    /// Reads which publications are served, and serves them if they have changed.
    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let mut known = self.known.lock().await;
        let served = publication::served(self.store.reader()).await?;
        if known.keys().eq(&served) {
            return Ok(());
        }
        known.retain(|id, _| served.contains(id));
        for id in served {
            if known.contains_key(&id) {
                continue;
            }
            let Some(approved) = publication::approved(self.store.reader(), id).await? else { continue };
            known.insert(id, self.cargo(&approved).await?);
        }
        self.served.replace(self.own.with(known.values().flatten().cloned()));
        Ok(())
    }

    /// The Cargo of a job that was accepted, in this version; without one as it is served, or as it was served last.
    pub(super) async fn of_job(&self, slug: &Slug, version: Option<&str>) -> Result<JobCargo, StoreError> {
        let catalogue = self.catalogue();
        let served = catalogue.get(slug.as_str());
        if let Some(cargo) = served.filter(|cargo| version.is_none_or(|version| version == cargo.version())) {
            return Ok(JobCargo::Found(cargo.clone()));
        }
        let reader = self.store.reader();
        let approved = match version.map(str::parse::<PublicationId>) {
            Some(Ok(publication)) => publication::approved(reader, publication).await?,
            // The operator's catalogue has no former versions.
            Some(Err(_)) if served.is_some() => return Ok(JobCargo::Changed),
            Some(Err(_)) => None,
            None => publication::last_approved(reader, slug).await?,
        };
        let Some(approved) = approved else { return Ok(JobCargo::Removed) };
        Ok(self.cargo(&approved).await?.map_or(JobCargo::Removed, JobCargo::Found))
    }

    /// The Cargo of a publication; `None` if this version finds faults in its manifest.
    async fn cargo(&self, approved: &Approved) -> Result<Option<Arc<Cargo>>, StoreError> {
        let Approved { id, publisher, at, manifest } = approved;
        let (dir, text) = (self.dir.clone(), manifest.clone());
        // Its example is evaluated, which takes longer than a thread that answers requests may be taken.
        let read = tokio::task::spawn_blocking(move || manifest::read(&dir, &text)).await;
        let read = match read {
            Ok(read) => read.map_err(|faults| faults.first().map(ToString::to_string).unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        };
        let mut cargo = match read {
            Ok(cargo) => cargo,
            Err(first) => {
                tracing::warn!(publication = %id, first, "published Cargo left out: its manifest has faults");
                return Ok(None);
            }
        };
        let slug = &cargo.entry.slug;
        let numbers = workload::number(&self.store, iter::once(slug)).await?;
        cargo.number = numbers.get(slug).copied().unwrap_or_default();
        cargo.entry.published = Some(Published { publisher: *publisher, publication: *id, approved_at: *at });
        Ok(Some(Arc::new(cargo)))
    }
}
