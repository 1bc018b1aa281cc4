//! The models that heartbeats report. Pure.

use std::{collections::BTreeMap, sync::Arc};

use island_cache::Entry;
use island_protocol::host::HostModel;

use crate::worker::WorkerHandle;

/// Files on disk, and files loaded in workers with their free slots.
pub(super) fn list(entries: &[Entry], workers: &[Arc<WorkerHandle>]) -> Vec<HostModel> {
    let on_disk = entries.iter().map(|entry| HostModel {
        url: entry.url.clone(),
        sha256: Some(entry.digest),
        size_mb: entry.size >> 20,
        warm: false,
        free_slots: 0,
        ram_mb: 0,
        vram_mb: 0,
    });
    let mut models: BTreeMap<String, HostModel> = on_disk.map(|model| (model.url.clone(), model)).collect();
    let loaded = |worker: &&Arc<WorkerHandle>| {
        worker.is_ready() && !worker.hangs() && !worker.launch.cargo.is_shared()
    };
    for worker in workers.iter().filter(loaded) {
        let artifacts = &worker.launch.cargo.artifacts;
        let largest =
            artifacts.iter().max_by_key(|artifact| artifact.size_bytes).map(|artifact| &artifact.url);
        for artifact in artifacts {
            let model = models.entry(artifact.url.clone()).or_insert_with(|| HostModel {
                url: artifact.url.clone(),
                sha256: artifact.sha256,
                size_mb: artifact.size_bytes.unwrap_or(0) >> 20,
                warm: false,
                free_slots: 0,
                ram_mb: 0,
                vram_mb: 0,
            });
            model.warm = true;
            model.free_slots += worker.slots.available_permits() as u32;
            if largest == Some(&artifact.url) {
                model.ram_mb += worker.resident_mb();
                model.vram_mb += worker.stats().vram_mb;
            }
        }
    }
    models.into_values().collect()
}
