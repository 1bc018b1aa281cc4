//! After a restart: what the journal, the spools and the workers that still run say is put together again.

use std::{collections::BTreeMap, io, sync::Arc};

use island_protocol::{
    ids::AttemptKey,
    job::{Failure, FailureCode},
};

use super::Supervisor;
use crate::{
    attempt::handle::AttemptHandle,
    clock,
    job::Held,
    journal::{Record, boot_id},
    spool::Spool,
    worker::{Command, WorkerHandle},
};

impl Supervisor {
    /// Takes up what an earlier agent left. Called once, before anything is assigned.
    pub async fn recover(self: &Arc<Self>) -> io::Result<()> {
        let mut held: BTreeMap<AttemptKey, Arc<WorkerHandle>> = BTreeMap::new();
        for (worker, jobs) in self.parts.pool.recover().await? {
            held.extend(jobs.iter().map(|job| (job.key, Arc::clone(&worker))));
        }
        let boot = boot_id();
        for record in self.parts.journal.read_all()? {
            let worker = held.remove(&record.assignment.key);
            if let Err(error) = self.take_up(record, worker, &boot) {
                tracing::warn!(error, "an attempt of the last start is lost");
            }
        }
        for (key, worker) in held {
            tracing::info!(%key, instance = %worker.instance, "a worker holds an attempt that nobody knows");
            let failure = Failure::interrupted(FailureCode::IslandLost, "the attempt is not known any more");
            worker.send(Command::Cancel(key, failure));
            worker.send(Command::Spooled(key, u64::MAX));
        }
        self.parts.egress_mounts.sweep(&self.holding())?;
        self.sweep_spools()
    }

    fn take_up(
        self: &Arc<Self>,
        record: Record,
        worker: Option<Arc<WorkerHandle>>,
        boot: &str,
    ) -> Result<(), String> {
        let key = record.assignment.key;
        if record.boot_id != boot {
            self.parts.journal.remove(key);
            return Err(format!("{key} ran before the machine was started"));
        }
        let spool = Spool::open(&self.parts.spool_dir, key, record.assignment.first_event)
            .map_err(|error| error.to_string())?;
        let age_ms = (clock::now().unix_ms() - record.accepted_at.unix_ms()).max(0) as u64;
        let now = clock::boot_ms();
        // Silent until the coordinator has confirmed that the attempt is still ours.
        let attempt = AttemptHandle::new(record.assignment, spool, now.saturating_sub(age_ms), 0);
        tracing::info!(%key, in_worker = worker.is_some(), "taking up an attempt");
        self.lock().insert(&attempt);
        self.spawn(attempt, Some(worker.map_or(Held::Nowhere, Held::In)));
        Ok(())
    }

    /// Removes spools that no record names.
    fn sweep_spools(&self) -> io::Result<()> {
        let known: Vec<String> = self.holding().into_iter().map(crate::spool::file_name).collect();
        for entry in std::fs::read_dir(&self.parts.spool_dir)? {
            let entry = entry?;
            if !known.iter().any(|name| entry.file_name() == name.as_str()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
