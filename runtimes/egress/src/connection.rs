//! One connection of a program: a request, an answer, and the transferred bytes.
//!
//! No task is spawned here: everything ends with the future that [`run`] returns.

use std::{convert::Infallible, future::poll_fn, net::SocketAddr, pin::Pin, sync::Arc, task::Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode, Uri, Version,
    body::Incoming,
    client, header, server,
    service::service_fn,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use island_protocol::egress::Place;
use island_runtimes_api::JobLog;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::copy_bidirectional,
    net::{TcpStream, UnixStream},
    time::timeout,
};

use crate::{
    Bounds, Outside,
    bounds::Allowance,
    headers::strip,
    metered::{Metered, Traffic},
    refusal::Refusal,
    target::{How, Target},
};

/// Maximum bytes of the head of a request.
const REQUEST_HEAD: usize = 16 << 10;
/// Maximum bytes of the head of an answer, which the outside writes.
const ANSWER_HEAD: usize = 64 << 10;
/// Maximum fields of either.
const FIELDS: usize = 100;
/// Maximum addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// What all connections of a job share.
pub(crate) struct Rules {
    pub(crate) places: Vec<Place>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) bounds: Bounds,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) log: JobLog,
}

type Answer = Response<Either<Full<Bytes>, Incoming>>;
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves one connection to its end, and logs a line about it.
pub(crate) async fn run(stream: UnixStream, rules: &Rules) {
    let traffic = Arc::new(Traffic::new(Arc::clone(&rules.allowance)));
    let connection = Connection { rules, traffic: Arc::clone(&traffic), state: Mutex::default() };
    tokio::select! {
        biased;
        () = connection.serve(stream) => {}
        () = traffic.idle(rules.bounds.idle) => connection.note("no byte was sent or received for too long"),
    }
}

/// One connection. The line is logged on drop.
struct Connection<'a> {
    rules: &'a Rules,
    traffic: Arc<Traffic>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The request: method and address, without path, which may contain data of a consumer.
    request: Option<String>,
    /// The result.
    came: Vec<String>,
    /// What happens to the connection after the answer.
    tunnel: Option<(OnUpgrade, Metered)>,
    /// Transfers the bytes of a plain request.
    driver: Option<Driver>,
}

impl Connection<'_> {
    async fn serve(&self, stream: UnixStream) {
        let mut http = server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.rules.bounds.head)
            .max_buf_size(REQUEST_HEAD)
            .max_headers(FIELDS)
            .half_close(true)
            // One request per connection, one line in the log.
            .keep_alive(false);
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let served = tokio::select! {
            // The driver is created while the request is served, and polled in the same turn.
            biased;
            served = served => served,
            never = self.drive() => match never {},
        };
        if let Err(error) = served {
            return self.note(&format!("ended: {error}"));
        }
        let tunnel = self.state().tunnel.take();
        if let Some((inside, mut outside)) = tunnel
            && let Err(error) = carry(inside, &mut outside).await
        {
            self.note(&format!("ended: {error}"));
        }
    }

    /// Transfers the bytes of a plain request, once there is one.
    async fn drive(&self) -> Infallible {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
                state.driver = None;
            }
            Poll::Pending
        })
        .await
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.proxy(request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                self.note(&format!("refused: {}", refusal.in_full()));
                plain_answer(refusal.status(), &format!("island: {refusal}\n"))
            }
        }
    }

    async fn proxy(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let target = Target::of(request.method(), request.uri());
        let wanted =
            target.as_ref().map_or_else(|_| "no address".to_owned(), |target| target.place.to_string());
        self.state().request = Some(format!("{} {wanted}", request.method()));
        let Target { place, how } = target?;
        if !self.rules.places.contains(&place) {
            return Err(Refusal::Undeclared(place));
        }
        if self.rules.allowance.is_used_up() {
            return Err(Refusal::UsedUp);
        }
        let (stream, address) = self.connect(&place).await?;
        self.note(&format!("connected to {address}"));
        let outside = Metered::new(stream, Arc::clone(&self.traffic));
        match how {
            How::Tunnel => {
                self.state().tunnel = Some((upgrade::on(request), outside));
                Ok(plain_answer(StatusCode::OK, ""))
            }
            How::Request => self.forward(request, place, outside).await,
        }
    }

    /// Connects to an address that was checked, and no other: the name is resolved only once.
    async fn connect(&self, place: &Place) -> Result<(TcpStream, SocketAddr), Refusal> {
        let connecting = async {
            let found = self.rules.outside.resolve(&place.host, place.port).await;
            let found = found.map_err(|error| Refusal::Unresolved(place.clone(), error))?;
            let mut last = Refusal::Unresolved(place.clone(), std::io::Error::other("it has no address"));
            for address in found.into_iter().take(ADDRESSES) {
                if let Err(forbidden) = self.rules.outside.check(address) {
                    last = Refusal::NotPublic(place.clone(), forbidden);
                    continue;
                }
                match TcpStream::connect(address).await {
                    Ok(stream) => return Ok((stream, address)),
                    Err(error) => last = Refusal::Unreachable(place.clone(), error),
                }
            }
            Err(last)
        };
        let connected = timeout(self.rules.bounds.connect, connecting).await;
        connected.unwrap_or_else(|_| Err(Refusal::TooSlow(place.clone())))
    }

    /// Forwards a plain request without the fields for the proxy, and returns the answer.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
        place: Place,
        outside: Metered,
    ) -> Result<Answer, Refusal> {
        let mut http = client::conn::http1::Builder::new();
        http.max_buf_size(ANSWER_HEAD).max_headers(FIELDS);
        let no_http = |error| Refusal::NoHttp(place.clone(), error);
        let (mut sender, driver) = http.handshake(TokioIo::new(outside)).await.map_err(no_http)?;
        self.state().driver = Some(Box::pin(async {
            // Errors also appear in the request.
            let _ = driver.await;
        }));
        address_to(&mut request, &place);
        let mut answer = sender.send_request(request).await.map_err(no_http)?;
        strip(answer.headers_mut());
        Ok(answer.map(Either::Right))
    }

    fn note(&self, what: &str) {
        self.state().came.push(what.to_owned());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let (sent, received, time) = self.traffic.so_far();
        let state = self.state();
        let request = state.request.as_deref().unwrap_or("no request");
        let came = state.came.join(", ");
        let took = time.as_secs_f32();
        self.rules
            .log
            .note(&format!("egress: {request}: {came}; {sent} bytes sent, {received} received, {took:.1} s"));
    }
}

/// Copies in both directions until both sides have ended.
async fn carry(
    inside: OnUpgrade,
    outside: &mut Metered,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut inside = TokioIo::new(inside.await?);
    copy_bidirectional(&mut inside, outside).await?;
    Ok(())
}

/// Converts a request to a proxy into one to the server itself. The program cannot choose the `Host` field: it is the address that was
/// checked.
fn address_to(request: &mut Request<Incoming>, place: &Place) {
    strip(request.headers_mut());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    *request.version_mut() = Version::HTTP_11;
    let host = if place.port == 80 { place.host.as_str().to_owned() } else { place.to_string() };
    let headers = request.headers_mut();
    headers.insert(header::HOST, host.parse().expect("a name and a port make a field"));
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
}

fn plain_answer(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::copy_from_slice(text.as_bytes()))));
    *answer.status_mut() = status;
    answer
}
