//! The catalogue that is served, replaced as a whole. Who reads it keeps the one that it began with.

use std::sync::Arc;

use parking_lot::RwLock;

use super::Catalogue;

/// The catalogue of this moment.
#[derive(Debug)]
pub struct Served(RwLock<Arc<Catalogue>>);

impl Served {
    pub fn new(catalogue: Catalogue) -> Self {
        Self(RwLock::new(Arc::new(catalogue)))
    }

    /// The catalogue as it is now.
    pub fn now(&self) -> Arc<Catalogue> {
        self.0.read().clone()
    }

    /// Serves another one.
    pub fn replace(&self, catalogue: Catalogue) {
        *self.0.write() = Arc::new(catalogue);
    }
}
