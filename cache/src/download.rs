//! Downloads one file over several connections, in pieces that survive a kill, and hashes it meanwhile.

mod part;

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use island_protocol::digest::Digest;
use reqwest::Url;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::part::Part;
use crate::{
    GetError, Progress, Transfer,
    pace::Pace,
    patience::Patience,
    pieces::{PIECE, Pieces},
    size::{self, Extent, FileSize, Intake, Refused},
    space::Space,
    web::{About, Opened, Web, WebError, digest, host, transport},
};

/// Connections per file.
const CONNECTIONS: usize = 6;
/// Number of times that a file may change before the download fails.
const VERSIONS: u32 = 3;
/// Bytes that are buffered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Space that is claimed at a time for a body of unknown length.
const CLAIM_BYTES: u64 = 8 << 20;

/// What to download, and where to write it.
pub(crate) struct Download<'a> {
    pub(crate) web: &'a Web,
    pub(crate) pace: &'a Pace,
    pub(crate) url: &'a Url,
    /// Length in bytes, if the artifact states it.
    pub(crate) stated: Option<u64>,
    /// Digest, if the artifact states it.
    pub(crate) expected: Option<Digest>,
    /// Path of the partial file; its side files are next to it.
    pub(crate) part: &'a Partial<'a>,
    /// Claims disk space for it.
    pub(crate) space: &'a Space,
    pub(crate) progress: &'a Progress,
    pub(crate) cancel: &'a CancellationToken,
}

/// A partial file. On drop it is removed, unless a later download can continue it.
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    path: &'a Path,
    is_of_use: AtomicBool,
}

impl<'a> Partial<'a> {
    /// Opens the file at `path`, with what an earlier download left.
    pub(crate) fn new(path: &'a Path) -> Self {
        Self { path, is_of_use: AtomicBool::new(true) }
    }

    /// Records whether a later download can continue the file.
    pub(crate) fn set_of_use(&self, is_of_use: bool) {
        self.is_of_use.store(is_of_use, Ordering::Relaxed);
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if !self.is_of_use.load(Ordering::Relaxed) {
            Part::remove(self.path);
        }
    }
}

/// A file that is complete on disk and not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// The hash that the hub reported.
    pub(crate) promised: Option<Digest>,
}

impl Download<'_> {
    /// Downloads the file. Pieces on disk stay for the next download if it can use them.
    pub(crate) async fn run(&self) -> Result<Fetched, GetError> {
        let mut versions = 0;
        let fetched = loop {
            let fetched = tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(GetError::Cancelled),
                fetched = self.once() => fetched,
            };
            versions += 1;
            match fetched {
                Err(GetError::Fetch { source: WebError::Changed { .. }, .. }) if versions < VERSIONS => {
                    Part::remove(self.part.path);
                }
                other => break other,
            }
        };
        if fetched.as_ref().is_err_and(|error| !error.leaves_partial()) {
            self.part.set_of_use(false);
        }
        fetched
    }

    async fn once(&self) -> Result<Fetched, GetError> {
        let (response, about) = self.open_patiently().await?;
        let extent = size::extent(self.stated, about.total).map_err(|refused| {
            let host = host(&about.place);
            self.failed(match refused {
                Refused::Differs { stated, announced } => WebError::Size { host, stated, announced },
                Refused::TooLarge { most, bytes } => WebError::TooLarge { host, most, bytes },
            })
        })?;
        let promised = about.sha256.as_deref().and_then(digest);
        let (digest, size) = match extent {
            Extent::Known(size) if about.has_ranges => self.in_pieces(response, &about, size).await?,
            extent => self.in_one(response, &about, extent).await?,
        };
        Ok(Fetched { digest, size, promised })
    }

    async fn open_patiently(&self) -> Result<(Opened, About), GetError> {
        let mut patience = Patience::new();
        loop {
            match self.web.open(self.url, 0, PIECE, self.expected).await {
                Ok(opened) => return Ok(opened),
                Err(error) => {
                    self.pause(patience.after(&error, rand::random()), error)
                        .await
                        .map_err(|error| self.failed(error))?;
                }
            }
        }
    }

    /// Waits before a request is repeated, and reports it if a server required that. Returns the error if it is final.
    async fn pause(&self, wait: Option<Duration>, error: WebError) -> Result<(), WebError> {
        let Some(time) = wait else { return Err(error) };
        if let WebError::Busy { host, .. } = error {
            (self.progress)(Transfer::Waiting { host, time });
        }
        tokio::time::sleep(time).await;
        Ok(())
    }

    /// A server without range requests sends the whole file from the start each time.
    async fn in_one(
        &self,
        response: Opened,
        about: &About,
        extent: Extent,
    ) -> Result<(Digest, u64), GetError> {
        let (most, claimed) = match extent {
            Extent::Known(size) => (size.bytes(), size.bytes()),
            Extent::AtMost(most) => (most, most.min(CLAIM_BYTES)),
        };
        let claim = self.space.claim(self.part.path, claimed, self.cancel).await?;
        self.part.set_of_use(false);
        let part = Part::start_over(self.part.path, about, claimed)?;
        drop(claim);
        let is_exact = matches!(extent, Extent::Known(_));
        let mut span = Span { start: 0, most, is_exact, claimed };
        let mut next = Some(response);
        let mut patience = Patience::new();
        loop {
            let response = match next.take() {
                Some(response) => Ok(response),
                None => self.request_part(self.url, about, 0, PIECE).await.map(|(response, _)| response),
            };
            let whole = match response {
                Ok(response) => self.whole(response, about, &part, &mut span).await,
                Err(error) => Err(Broken::Web(error)),
            };
            match whole {
                Ok(size) => {
                    let digest = part.hash(size, self.cancel).await?;
                    return Ok((digest, size));
                }
                Err(Broken::Web(error)) => {
                    self.pause(patience.after(&error, rand::random()), error)
                        .await
                        .map_err(|error| self.failed(error))?;
                }
                Err(broken) => return Err(self.broken(broken)),
            }
        }
    }

    async fn whole(
        &self,
        response: Opened,
        about: &About,
        part: &Part,
        span: &mut Span,
    ) -> Result<u64, Broken> {
        let report = |done| (self.progress)(Transfer::Bytes { done, total: about.total });
        let got = self.write_body(response, about, part, span, &report).await?;
        if span.is_exact && got != span.most {
            return Err(Broken::Web(WebError::Length { host: host(&about.place), expected: span.most, got }));
        }
        // Space that was claimed in advance is released.
        part.set_length(got).map_err(Broken::Write)?;
        Ok(got)
    }

    async fn in_pieces(
        &self,
        first: Opened,
        about: &About,
        size: FileSize,
    ) -> Result<(Digest, u64), GetError> {
        let total = size.bytes();
        let claim = self.space.claim(self.part.path, total, self.cancel).await?;
        let (part, pieces) = Part::resume(self.part.path, about, size)?;
        drop(claim);
        self.part.set_of_use(about.can_be_resumed());
        let (prefix, seen) = watch::channel(pieces.prefix());
        let shared = Shared { pieces: Mutex::new(pieces), prefix, place: Mutex::new(about.place.clone()) };
        let hash = part.follow(total, seen, self.cancel);
        let fetch = async {
            let mut first = Some(first);
            let lanes = (0..CONNECTIONS).map(|_| self.lane(&shared, &part, about, total, first.take()));
            let fetched = futures::future::try_join_all(lanes).await;
            // The hasher must not wait for bytes that will not arrive.
            drop(shared);
            fetched
        };
        let (fetched, digest) = tokio::join!(fetch, hash);
        fetched.map_err(|broken| self.broken(broken))?;
        Ok((digest?, total))
    }

    /// One connection: downloads piece after piece until none is left.
    async fn lane(
        &self,
        shared: &Shared,
        part: &Part,
        about: &About,
        total: u64,
        mut opened: Option<Opened>,
    ) -> Result<(), Broken> {
        loop {
            let Some(index) = shared.pieces().take() else { return Ok(()) };
            // The first answer contains the first piece.
            let response = opened.take().filter(|_| index == 0);
            if let Err(broken) = self.piece(shared, part, about, index, response).await {
                shared.pieces().release(index);
                return Err(broken);
            }
            part.mark(index).map_err(Broken::Write)?;
            let (prefix, done) = {
                let mut pieces = shared.pieces();
                pieces.land(index);
                (pieces.prefix(), pieces.done())
            };
            shared.prefix.send_if_modified(|known| std::mem::replace(known, prefix) != prefix);
            (self.progress)(Transfer::Bytes { done, total: Some(total) });
        }
    }

    /// Downloads a piece, with retries.
    async fn piece(
        &self,
        shared: &Shared,
        part: &Part,
        about: &About,
        index: usize,
        mut opened: Option<Opened>,
    ) -> Result<(), Broken> {
        let (start, length) = shared.pieces().span(index);
        let mut patience = Patience::new();
        loop {
            let response = match opened.take() {
                Some(response) => Ok(response),
                None => self.reopen(shared, about, start, start + length).await,
            };
            let written = match response {
                Ok(response) => self.write_piece(response, about, part, start, length).await,
                Err(error) => Err(Broken::Web(error)),
            };
            match written {
                Err(Broken::Web(error)) => {
                    tracing::debug!(index, %error, "a piece failed");
                    let wait = if error.is_expired() {
                        shared.reset_redirect(self.url);
                        patience.again()
                    } else {
                        patience.after(&error, rand::random())
                    };
                    self.pause(wait, error).await.map_err(Broken::Web)?;
                }
                other => return other,
            }
        }
    }

    async fn reopen(&self, shared: &Shared, about: &About, start: u64, end: u64) -> Result<Opened, WebError> {
        let (response, now) = self.request_part(&shared.place(), about, start, end).await?;
        shared.remember_place(now.place);
        Ok(response)
    }

    /// Requests a part of the file in `about`, and of no other version of it.
    async fn request_part(
        &self,
        place: &Url,
        about: &About,
        start: u64,
        end: u64,
    ) -> Result<(Opened, About), WebError> {
        let (response, now) = self.web.open(place, start, end, self.expected).await?;
        if about.is_same(&now) { Ok((response, now)) } else { Err(WebError::Changed { host: host(place) }) }
    }

    async fn write_piece(
        &self,
        response: Opened,
        about: &About,
        part: &Part,
        start: u64,
        expected: u64,
    ) -> Result<(), Broken> {
        let mut span = Span { start, most: expected, is_exact: true, claimed: expected };
        let got = self.write_body(response, about, part, &mut span, &|_| {}).await?;
        if got == expected {
            return Ok(());
        }
        Err(Broken::Web(WebError::Length { host: host(&about.place), expected, got }))
    }

    /// Writes a body to its span and returns its length, which is at most the span's.
    async fn write_body(
        &self,
        response: Opened,
        about: &About,
        part: &Part,
        span: &mut Span,
        report: &(dyn Fn(u64) + Sync),
    ) -> Result<u64, Broken> {
        let Opened { response, connection: _connection } = response;
        let mut body = response.bytes_stream();
        let mut waiting: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
        let mut intake = Intake::new(span.most);
        let mut written = 0;
        loop {
            let chunk = body.next().await.transpose();
            let chunk = chunk.map_err(|source| Broken::Web(transport(&about.place, source)))?;
            let is_last = chunk.is_none();
            let chunk = chunk.unwrap_or_default();
            intake.take(chunk.len() as u64).map_err(|got| Broken::Web(span.exceeded(about, got)))?;
            self.pace.take(chunk.len() as u64).await;
            waiting.extend_from_slice(&chunk);
            if waiting.len() >= WRITE_BYTES || (is_last && !waiting.is_empty()) {
                self.claim_up_to(intake.taken(), part, span).await?;
                let length = waiting.len() as u64;
                waiting = part.write_at(waiting, span.start + written).await.map_err(Broken::Write)?;
                written += length;
                report(written);
            }
            if is_last {
                return Ok(written);
            }
        }
    }

    /// Claims more space if a body of unknown length is longer than what was claimed.
    async fn claim_up_to(&self, length: u64, part: &Part, span: &mut Span) -> Result<(), Broken> {
        while span.claimed < length {
            let claimed = span.claimed.saturating_add(CLAIM_BYTES).min(span.most);
            let claim = self.space.claim(self.part.path, claimed, self.cancel).await.map_err(Broken::Get)?;
            part.set_length(claimed).map_err(Broken::Write)?;
            drop(claim);
            span.claimed = claimed;
        }
        Ok(())
    }

    fn broken(&self, broken: Broken) -> GetError {
        match broken {
            Broken::Web(error) => self.failed(error),
            Broken::Write(source) => GetError::Write { path: self.part.path.to_owned(), source },
            Broken::Get(error) => error,
        }
    }

    fn failed(&self, source: WebError) -> GetError {
        GetError::Fetch { host: host(self.url), source }
    }
}

/// Shared state of the connections of one file.
struct Shared {
    pieces: Mutex<Pieces>,
    prefix: watch::Sender<u64>,
    place: Mutex<Url>,
}

impl Shared {
    fn pieces(&self) -> std::sync::MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn place(&self) -> Url {
        self.place.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn remember_place(&self, place: Url) {
        *self.place.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = place;
    }

    fn reset_redirect(&self, first: &Url) {
        self.remember_place(first.clone());
    }
}

/// Why a piece was not downloaded.
enum Broken {
    Web(WebError),
    Write(std::io::Error),
    Get(GetError),
}

/// Where a body is written.
struct Span {
    /// First byte in the file.
    start: u64,
    /// Maximum bytes of the body.
    most: u64,
    /// Whether exactly this number is expected.
    is_exact: bool,
    /// Bytes for which there is space.
    claimed: u64,
}

impl Span {
    /// The error of a body that continues after `got` bytes.
    fn exceeded(&self, about: &About, got: u64) -> WebError {
        let (host, most) = (host(&about.place), self.most);
        if self.is_exact {
            WebError::Excess { host, expected: most, got }
        } else {
            WebError::TooLarge { host, most, bytes: got }
        }
    }
}
