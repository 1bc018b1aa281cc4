//! One connection of a program: a request, an answer, and what is carried then.
//!
//! Nothing in here is a task of its own: all of it ends with the future that [`run`] gives.

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

/// Bytes of a request's head.
const REQUEST_HEAD: usize = 16 << 10;
/// Bytes of an answer's head, which the outside writes.
const ANSWER_HEAD: usize = 64 << 10;
/// Fields of either.
const FIELDS: usize = 100;
/// Addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// What all connections of a job go by.
pub(crate) struct Rules {
    pub(crate) places: Vec<Place>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) bounds: Bounds,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) log: JobLog,
}

type Answer = Response<Either<Full<Bytes>, Incoming>>;
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Follows one connection to its end, and writes a line about it.
pub(crate) async fn run(stream: UnixStream, rules: &Rules) {
    let traffic = Arc::new(Traffic::new(Arc::clone(&rules.allowance)));
    let connection = Connection { rules, traffic: Arc::clone(&traffic), state: Mutex::default() };
    tokio::select! {
        biased;
        () = connection.serve(stream) => {}
        () = traffic.idle(rules.bounds.idle) => connection.note("nothing came or went for too long"),
    }
}

/// One connection. Dropping it, for whatever reason, writes the line.
struct Connection<'a> {
    rules: &'a Rules,
    traffic: Arc<Traffic>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was asked for: method and place, nothing of what a consumer may have put into an address.
    asked: Option<String>,
    /// What came of it.
    came: Vec<String>,
    /// What becomes of the connection once the answer is sent.
    tunnel: Option<(OnUpgrade, Metered)>,
    /// Moves the bytes of a plain request.
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
            // One request, one connection, one line.
            .keep_alive(false);
        let service = service_fn(|request| async { Ok::<_, Infallible>(self.answer(request).await) });
        let served = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let served = tokio::select! {
            // The driver comes into being while the request is served, and is looked at in the same turn.
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

    /// Moves the bytes of a plain request, once there is one.
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
        match self.go(request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                self.note(&format!("refused: {}", refusal.in_full()));
                said(refusal.status(), &format!("island: {refusal}\n"))
            }
        }
    }

    async fn go(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let target = Target::of(request.method(), request.uri());
        let wanted =
            target.as_ref().map_or_else(|_| "no place".to_owned(), |target| target.place.to_string());
        self.state().asked = Some(format!("{} {wanted}", request.method()));
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
                Ok(said(StatusCode::OK, ""))
            }
            How::Request => self.pass_on(request, place, outside).await,
        }
    }

    /// Connects to an address that was looked at, and to no other: the name is resolved this once.
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

    /// Sends a plain request on, freed of what was meant for us, and gives what comes back.
    async fn pass_on(
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
            // What goes wrong shows in the request, too.
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
        let asked = state.asked.as_deref().unwrap_or("no request");
        let came = state.came.join(", ");
        let took = time.as_secs_f32();
        self.rules
            .log
            .note(&format!("egress: {asked}: {came}; {sent} bytes sent, {received} received, {took:.1} s"));
    }
}

/// Copies both ways until both sides have ended.
async fn carry(
    inside: OnUpgrade,
    outside: &mut Metered,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut inside = TokioIo::new(inside.await?);
    copy_bidirectional(&mut inside, outside).await?;
    Ok(())
}

/// Makes a request to a proxy one to the place itself. Which host it names is not the program's to choose: it was the place that was
/// compared.
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

fn said(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::copy_from_slice(text.as_bytes()))));
    *answer.status_mut() = status;
    answer
}
