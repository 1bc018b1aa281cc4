//! Whom a request of the console to the API acts for.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Extension of requests that the console makes in this process. No request from outside has it.
#[derive(Debug, Clone)]
pub struct OnBehalf {
    token: Option<Arc<str>>,
    is_counted: Arc<AtomicBool>,
}

impl OnBehalf {
    /// For one page: of a session, or of somebody who is not signed in.
    pub(crate) fn page(token: Option<&str>) -> Self {
        Self { token: token.map(Arc::from), is_counted: Arc::default() }
    }

    /// Token of the session; none for somebody who is not signed in.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether this is the first call for the page.
    pub fn is_first(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_first_once() {
        let page = OnBehalf::page(Some("token"));
        let request = page.clone();
        assert!(request.is_first());
        assert!(!page.is_first());
        assert!(OnBehalf::page(None).is_first());
    }
}
