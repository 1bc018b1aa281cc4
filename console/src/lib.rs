//! The web console of a coordinator: pages for consumers, owners and operators, rendered on the server.
//!
//! | module | content |
//! | --- | --- |
//! | `backend` | requests to the API in this process, which check every right |
//! | `on_behalf`, [`session`] | whom those requests act for |
//! | `guard`, `cookie` | content policy, origin of changes, the cookie of a session |
//! | `compression` | what is sent in fewer bytes, and what is not |
//! | `posted` | forms that were sent, and those that the API refused |
//! | `web` | the person behind a request, and answers |
//! | `view` | the frame of pages around the blocks of `console/blocks` |
//! | `pages` | one module for each noun, as in the API |
//! | `input`, `output` | forms from the schemas of Cargos, and results as what they are |
//! | `menu`, `texts`, `assets` | which pages there are, every text, scripts and styles |
//!
//! There are no rules of business here and no state: a page shows what the API's handlers answer to the session of its
//! reader (0120). Sessions are rows of the coordinator's database, so any coordinator of a network serves them.
//!
//! What a person or a model wrote is text. Templates escape it, scripts set it as text, and the content policy has no
//! place for a script within a page.

mod assets;
mod backend;
mod compression;
mod cookie;
mod guard;
mod input;
mod menu;
mod on_behalf;
mod output;
mod pages;
mod posted;
pub mod session;
mod texts;
mod view;
mod web;

use std::sync::Arc;

use axum::{Router, middleware, routing::get};

pub use backend::Carry;
pub use on_behalf::OnBehalf;
pub use session::{LINKS, SIGNED_IN};

use backend::Backend;
use cookie::Cookies;
use texts::t;
use web::Console;

/// What the coordinator decides about the console.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether browsers reach the coordinator with TLS.
    pub is_encrypted: bool,
    /// Address of Grafana, to which operators get links.
    pub grafana: Option<String>,
    /// Address at which browsers reach the coordinator with TLS, if a proxy in front of it has the TLS.
    pub public_url: Option<String>,
}

/// The pages, at `/` and below `/console`. `api` answers their requests; `carry` copies to those what the API must know
/// about the connection.
pub fn router(api: Router, carry: Carry, settings: Settings) -> Router {
    let console = Arc::new(Console {
        backend: Backend { router: api, carry },
        cookies: Cookies { is_encrypted: settings.is_encrypted },
        grafana: settings.grafana,
        public_url: settings.public_url,
    });
    pages::routes()
        .route("/console/assets/{folder}/{name}", get(assets::get))
        .layer(middleware::from_fn(guard::guard))
        .layer(middleware::from_fn(compression::compress))
        .with_state(console)
}
