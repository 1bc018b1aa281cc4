//! HTTP under `/api/v1`.
//!
//! | module | content |
//! | --- | --- |
//! | `http` | state of the handlers, and what every operation shares: keys, bodies, queries, limits, errors |
//! | `native` | operations of Island's own API: one module for each noun, one file for each verb |
//! | `openai`, `anthropic` | operations in the form of the APIs of others |
//! | [`batches`] | many requests in one file, of any form |
//! | `routes` | the table of all operations, and the OpenAPI document made from it |
//! | `openapi`, [`oidc`], [`server`] | the form of that document; sign-in; connections |

// A guard in a scrutinee lives to the end of the block, and the block may wait for what needs the guard.
#![warn(clippy::significant_drop_in_scrutinee)]
#![expect(
    missing_docs,
    reason = "items are public for the coordinator's other crates; documented where names and types do not suffice"
)]

mod anthropic;
pub mod batches;
mod http;
mod native;
pub mod oidc;
mod openai;
mod openapi;
mod routes;
pub mod server;

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Extension, Router,
    extract::Request,
    http::{Extensions, Uri},
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use futures::FutureExt as _;
use island_coordinator_domain::config::Http;
use island_protocol_api::{PREFIX, problem::Code};

pub use http::state::{Api, FabricAccess, Parts, Rules, Stops};
pub(crate) use http::{
    body::{MAX_BODY, MAX_INPUT},
    error::ApiError,
};
pub use native::metrics;

use http::{client, cors, limits, observe};
use native::session;
use routes::{
    Routes,
    document::{self, Document},
};
use server::Peer;

/// Proxies that are trusted with the addresses of clients, and origins that may use the API from browsers.
#[derive(Debug, Clone)]
pub struct Access {
    addresses: http::client::Addresses,
    cors_origins: Vec<String>,
}

impl Access {
    pub fn new(http: &Http) -> Self {
        let addresses = http::client::Addresses {
            trusted: http.trusted_proxies.clone().into(),
            is_direct: http.tls.is_some(),
        };
        Self { addresses, cors_origins: http.cors_origins.clone() }
    }
}

/// The whole API, and the console if there is one.
pub fn router(api: Arc<Api>, access: Access, console: Option<island_console::Settings>) -> Router {
    let admission = limits::Admission::new(api.rules.max_requests);
    let observer = observe::Observer { requests: api.metrics.requests.clone(), traces: api.traces.clone() };
    let document = Arc::new(Document::new(&api.catalogue()));
    let with_layers = |router: Router<Arc<Api>>| {
        router
            .fallback(unknown_route)
            .method_not_allowed_fallback(|| async {
                ApiError::new(Code::MethodNotAllowed, "this route does not take that method")
            })
            .layer(middleware::from_fn(limits::add_headers))
            .layer(middleware::from_fn_with_state(admission.clone(), limits::admit))
            .layer(middleware::from_fn_with_state(access.addresses.clone(), client::identify))
            .layer(middleware::from_fn(contain_panics))
            .layer(middleware::from_fn_with_state(observer.clone(), observe::observe))
            .layer(Extension(document.clone()))
            .with_state(api.clone())
    };
    let base = || Router::new().nest(PREFIX, Routes::all().router).route("/docs", get(document::page));
    let router = match console {
        None => with_layers(base().route("/", get(|| async { Redirect::temporary("/docs") }))),
        Some(settings) => {
            let inside = with_layers(base().merge(session::routes()));
            island_console::router(inside, carried, settings)
                .layer(middleware::from_fn(contain_panics))
                .fallback_service(with_layers(base()))
        }
    };
    // Without origins, `OPTIONS` is a method like any other.
    if access.cors_origins.is_empty() { router } else { router.layer(cors::layer(&access.cors_origins)) }
}

/// Copies the connection of a request to the console into its requests to the API.
fn carried(from: &Extensions, to: &mut Extensions) {
    if let Some(peer) = from.get::<Peer>() {
        to.insert(*peer);
    }
}

/// Names the prefix where it is missing, which is a common mistake in a client's base URL.
async fn unknown_route(uri: Uri) -> ApiError {
    let is_prefixed =
        uri.path().strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let message = if is_prefixed {
        "there is no such route".to_owned()
    } else {
        format!("there is no such route: all routes of the API begin with {PREFIX}")
    };
    ApiError::new(Code::NotFound, message)
}

/// Answers a panic in a handler with 500 and a request id; the connection continues.
async fn contain_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::new(Code::InternalError, "internal error").into_response(),
    }
}
