//! What operators have set for the whole network, in memory: which published Cargos it serves, whether it accepts jobs, and of which Cargos, and
//! notices.
//! What one coordinator changes, it respects at once; the others within [`INTERVAL`].

mod publications;

use std::{path::PathBuf, sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::{ids::Slug, time::Timestamp};
use island_protocol_api::{
    network::{NetworkNotices, Notice},
    problem::Code,
};
use parking_lot::RwLock;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use island_coordinator_domain::{
    catalogue::{Cargo, Catalogue, Fault},
    job::Job,
    metrics,
};
use island_coordinator_storage::{
    Store, StoreError,
    network::{self, NetworkState},
};
pub use publications::JobCargo;
use publications::Publications;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(2);

/// Why no job is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
    #[error("this network accepts no new jobs for some time: {0}")]
    Maintenance(String),
    #[error("this Cargo is disabled: {0}")]
    Disabled(String),
}

impl NotAccepted {
    /// The code of the answer.
    pub fn code(&self) -> Code {
        match self {
            Self::Maintenance(_) => Code::Maintenance,
            Self::Disabled(_) => Code::WorkloadDisabled,
        }
    }
}

/// The state, which a task keeps up to date.
#[derive(Debug)]
pub struct Network {
    store: Store,
    state: RwLock<Arc<NetworkState>>,
    publications: Publications,
}

impl Network {
    /// Reads the state. Published Cargos are added to the catalogue of the folder `dir`.
    pub async fn load(store: Store, catalogue: Catalogue, dir: PathBuf) -> Result<Self, StoreError> {
        let publications = Publications::new(store.clone(), catalogue, dir);
        let network = Self { store, state: RwLock::default(), publications };
        network.refresh().await?;
        Ok(network)
    }

    /// The state that was read last.
    pub fn state(&self) -> Arc<NetworkState> {
        self.state.read().clone()
    }

    /// Reads the state again.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let state = network::read(self.store.reader()).await?;
        *self.state.write() = Arc::new(state);
        self.publications.refresh().await
    }

    /// The Cargos that are served.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.publications.catalogue()
    }

    /// The Cargo of a job that was accepted, in the version that was agreed to, also if it is no longer served.
    pub(crate) async fn cargo_of_job(&self, job: &Job) -> Result<JobCargo, StoreError> {
        self.publications.of_job(&job.workload, job.agreement.version.as_deref()).await
    }

    /// Whether a slug or alias is that of the operators' own catalogue.
    pub fn is_own(&self, name: &str) -> bool {
        self.publications.is_own(name)
    }

    /// Reads the manifest of a Cargo that is to be published, and checks it.
    pub fn check_manifest(&self, manifest: &str) -> Result<Cargo, Vec<Fault>> {
        self.publications.check(manifest)
    }

    /// Whether new jobs of a Cargo are accepted.
    pub fn accepts(&self, cargo: &Slug) -> Result<(), NotAccepted> {
        let state = self.state();
        if let Some(maintenance) = &state.maintenance {
            return Err(NotAccepted::Maintenance(maintenance.reason.clone()));
        }
        state
            .disabled
            .get(cargo)
            .map_or(Ok(()), |disabled| Err(NotAccepted::Disabled(disabled.reason.clone())))
    }

    /// Whether operators have not disabled a Cargo.
    pub fn is_enabled(&self, cargo: &Slug) -> bool {
        !self.state().disabled.contains_key(cargo)
    }

    /// The notices that have not expired, newest first.
    pub fn notices(&self, now: Timestamp) -> Vec<Notice> {
        let state = self.state();
        let shown = state.notices.iter().filter(|notice| notice.until.is_none_or(|until| until > now));
        shown.cloned().collect()
    }

    /// What everybody may read.
    pub fn view(&self, now: Timestamp) -> NetworkNotices {
        NetworkNotices { maintenance: self.state().maintenance.clone(), notices: self.notices(now) }
    }

    /// Reads the state at intervals until `stop` is triggered.
    pub async fn run(self: Arc<Self>, metrics: metrics::State, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let refreshing = async {
            loop {
                ticks.tick().await;
                if let Err(error) = self.refresh().await {
                    tracing::warn!(error = %Chain(&error), "state of the network not read; will retry");
                }
                metrics.set_maintenance(self.state().maintenance.is_some());
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = refreshing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::ids::NoticeId;
    use island_protocol_api::{admin::Suspension, network::NetworkMaintenance};
    use uuid::Uuid;

    use super::*;
    use island_coordinator_domain::config::Database;

    #[tokio::test]
    async fn jobs_are_accepted_unless_the_network_or_their_cargo_is_closed() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let network = Network::load(store.clone(), Catalogue::default(), dir.path().to_owned());
        let network = network.await.expect("loaded");
        let slug = |name: &str| name.parse::<Slug>().expect("a slug");
        assert_eq!(network.accepts(&slug("echo")), Ok(()));
        let now = Timestamp::from_unix_ms(1_000);
        let reason = || "r".to_owned();
        let set = |state| *network.state.write() = Arc::new(state);
        let disabled = [(slug("echo"), Suspension { at: now, reason: reason() })].into();
        set(NetworkState { disabled, ..NetworkState::default() });
        assert_eq!(network.accepts(&slug("echo")), Err(NotAccepted::Disabled(reason())));
        assert_eq!(network.accepts(&slug("other")), Ok(()));
        let maintenance = Some(NetworkMaintenance { since: now, reason: reason() });
        set(NetworkState { maintenance, ..NetworkState::default() });
        assert_eq!(network.accepts(&slug("other")), Err(NotAccepted::Maintenance(reason())));
        let notice = |until| Notice { id: NoticeId(Uuid::nil()), text: reason(), created_at: now, until };
        let notices = vec![notice(None), notice(Some(now.plus_ms(5)))];
        set(NetworkState { notices, ..NetworkState::default() });
        assert_eq!(network.notices(now).len(), 2);
        assert_eq!(network.notices(now.plus_ms(5)), [notice(None)]);
        store.close().await;
    }
}
