//! The owner's socket, and the page on 127.0.0.1.

use std::{
    fs, io,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path as UrlPath, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use island_console_blocks::static_files;
use island_daemon::chain::Chain;
use island_protocol::host::Capabilities;
use island_protocol_api::problem::Code;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::{
    metrics::{prometheus, series},
    page,
    status::{Sources, Status},
};
use crate::{
    config::Config,
    owner::policy::{OwnerOrder, Verdict},
};

/// Name of the socket in the state folder.
pub const SOCKET: &str = "control.sock";

/// An address that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket.
    #[error("listen on {0}")]
    Socket(PathBuf, #[source] io::Error),
    /// The page.
    #[error("listen on 127.0.0.1:{0}")]
    Page(u16, #[source] io::Error),
    /// Serving failed.
    #[error("serve the control socket or page")]
    Serve(#[source] io::Error),
}

/// Serves the socket until stopped. It is accessible only to the user to whom its folder belongs.
pub async fn serve_socket(
    sources: Arc<Sources>,
    state: PathBuf,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let path = state.join(SOCKET);
    let listener = listen(&path).map_err(|error| ServeError::Socket(path.clone(), error))?;
    let ending = stop.clone();
    let router = Router::new()
        .route("/status", get(status))
        .route("/metrics", get(numbers))
        .route("/settings", get(settings))
        .route("/capabilities", get(capabilities))
        .route("/order", post(order))
        .route("/hold", post(hold))
        .route("/check", post(async move |sources| check(sources, ending).await))
        .with_state(sources);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    let _ = fs::remove_file(&path);
    served.map_err(ServeError::Serve)
}

/// Serves the page until stopped; without a port it only waits. The page is read-only: any user of this machine can open it.
pub async fn serve_page(
    sources: Arc<Sources>,
    port: Option<u16>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let Some(port) = port else {
        stop.cancelled().await;
        return Ok(());
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.map_err(|error| ServeError::Page(port, error))?;
    let at = listener.local_addr().map_or(port, |address| address.port());
    tracing::info!("the page is served at http://127.0.0.1:{at}/");
    let router = routes_of_page().with_state(sources);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(ServeError::Serve)
}

fn routes_of_page() -> Router<Arc<Sources>> {
    Router::new()
        .route("/", get(shown))
        .route(&format!("{}/{{name}}", page::ASSETS), get(asset))
        .route("/status", get(status))
        .route("/metrics", get(numbers))
        .layer(middleware::from_fn(known_host))
}

/// Rejects requests with another host name, so that a page elsewhere cannot read this one by DNS rebinding.
async fn known_host(headers: HeaderMap, request: Request, next: Next) -> Response {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !matches!(name, "127.0.0.1" | "localhost") {
        return (StatusCode::MISDIRECTED_REQUEST, "this page is only for http://127.0.0.1\n").into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(static_files::POLICY));
    // A file may be another one after an update of the agent.
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

async fn shown(State(sources): State<Arc<Sources>>) -> Response {
    match page::html(&sources.status()) {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("render the page: {error}\n")).into_response()
        }
    }
}

async fn asset(UrlPath(name): UrlPath<String>) -> Response {
    match static_files::FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, content)) => ([(header::CONTENT_TYPE, *kind)], *content).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn status(State(sources): State<Arc<Sources>>) -> Json<Status> {
    Json(sources.status())
}

async fn numbers(State(sources): State<Arc<Sources>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::text(series(&sources.status())))
}

async fn settings(State(sources): State<Arc<Sources>>) -> Json<Config> {
    Json(sources.settings.config.clone().without_secrets())
}

async fn capabilities(State(sources): State<Arc<Sources>>) -> Json<Capabilities> {
    Json(sources.supervisor.capabilities())
}

async fn order(State(sources): State<Arc<Sources>>, Json(order): Json<OwnerOrder>) -> Response {
    match sources.governor.set_order(order) {
        Ok(verdict) => Json(verdict).into_response(),
        Err(error) => {
            let message = format!("the order cannot be stored: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    }
}

async fn hold(State(sources): State<Arc<Sources>>, Json(seconds): Json<u64>) -> Json<Verdict> {
    Json(sources.governor.hold_for(Duration::from_secs(seconds)))
}

/// A request that waits for a test job does not delay stopping.
async fn check(State(sources): State<Arc<Sources>>, stop: CancellationToken) -> Response {
    let checked = tokio::select! {
        biased;
        () = stop.cancelled() => {
            return (StatusCode::SERVICE_UNAVAILABLE, "the agent is stopping\n").into_response();
        }
        checked = sources.checker.check() => checked,
    };
    match checked {
        Ok(check) => Json(check).into_response(),
        Err(error) => {
            let is_soon = error.code() == Some(Code::RateLimited.as_str());
            let status = if is_soon { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::BAD_GATEWAY };
            (status, format!("{}\n", Chain(&error))).into_response()
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // The agent holds the lock of its state folder, so an existing socket is that of an agent that has ended.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The first line of the answer to a request with this header.
    async fn answer(port: u16, host: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("connect");
        let request = format!("GET / HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("read");
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_page_elsewhere_cannot_read_this_one_under_its_own_name() {
        let router = Router::new().route("/", get(async || "secret")).layer(middleware::from_fn(known_host));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        for host in ["127.0.0.1", "localhost"] {
            assert!(answer(port, &format!("Host: {host}:{port}\r\n")).await.contains("200"), "{host}");
        }
        for host in [
            "Host: rebound.example\r\n",
            "Host: 127.0.0.1.rebound.example\r\n",
            "Host: localhost.rebound.example:80\r\n",
            "Host: rebound.example:127.0.0.1\r\n",
            "Host:\r\n",
            "",
        ] {
            let line = answer(port, host).await;
            assert!(line.starts_with("HTTP/1.1 4"), "{host:?}: {line}");
        }
        server.abort();
    }
}
