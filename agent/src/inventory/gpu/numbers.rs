//! Numbers of GPUs. A GPU keeps its number when others are added or removed, and across restarts.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use island_daemon::{chain::Chain, files::write_atomic};

/// Identities in the order of their numbers.
const FILE: &str = "gpus.json";

/// Numbers of GPUs by identity.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    ids: Vec<String>,
    file: Option<PathBuf>,
}

impl Numbers {
    /// Loads the numbers from the folder `state`.
    pub(super) fn load(state: &Path) -> Self {
        let file = state.join(FILE);
        let ids = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %file.display(), %error, "the numbers of GPUs cannot be read and are assigned again");
                Vec::new()
            }),
            Err(_) => Vec::new(),
        };
        Self { ids, file: Some(file) }
    }

    /// The same numbers without writing them.
    #[must_use]
    pub(super) fn read_only(self) -> Self {
        Self { file: None, ..self }
    }

    /// Returns the number of a GPU; a new one gets the next.
    pub(super) fn of(&mut self, id: &str) -> u32 {
        if let Some(at) = self.ids.iter().position(|known| known == id) {
            return at as u32;
        }
        self.ids.push(id.to_owned());
        if let Some(file) = &self.file
            && let Err(error) = keep(file, &self.ids)
        {
            tracing::warn!(path = %file.display(), error = %Chain(&error), "the numbers of GPUs cannot be stored");
        }
        self.ids.len() as u32 - 1
    }
}

fn keep(file: &Path, ids: &[String]) -> io::Result<()> {
    write_atomic(file, &serde_json::to_vec(ids).map_err(io::Error::other)?, 0o600)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Each case writes to disk.
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn a_number_belongs_to_one_gpu_forever(seen in prop::collection::vec(0_u8..6, 1..40), restart in 0_usize..40) {
            let state = tempfile::tempdir().expect("a folder");
            let mut numbers = Numbers::load(state.path());
            let mut given = std::collections::BTreeMap::new();
            for (at, gpu) in seen.into_iter().enumerate() {
                if at == restart {
                    numbers = Numbers::load(state.path());
                }
                let number = numbers.of(&gpu.to_string());
                prop_assert_eq!(*given.entry(gpu).or_insert(number), number);
            }
            let distinct: std::collections::BTreeSet<_> = given.values().collect();
            prop_assert_eq!(distinct.len(), given.len());
        }
    }

    #[test]
    fn a_read_only_view_writes_nothing() {
        let state = tempfile::tempdir().expect("a folder");
        assert_eq!(Numbers::load(state.path()).read_only().of("a"), 0);
        assert!(!state.path().join(FILE).exists());
    }
}
