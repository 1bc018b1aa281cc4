//! Fetches one file: several connections, pieces that survive a kill, and a hash that is done when the last byte is.

mod part;

use std::{path::Path, sync::Mutex, time::Duration};

use futures::StreamExt;
use island_protocol::digest::Digest;
use reqwest::{Response, Url};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::part::Part;
use crate::{
    GetError, Progress,
    pace::Pace,
    pieces::{PIECE, Pieces},
    web::{About, Web, WebError, host, transport},
};

/// Connections per file.
const CONNECTIONS: usize = 6;
/// Tries per piece before the file is given up.
const TRIES: u32 = 6;
/// Wait before the second try; doubles from there.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// What to fetch, and where to put it.
pub(crate) struct Download<'a> {
    pub(crate) web: &'a Web,
    pub(crate) pace: &'a Pace,
    pub(crate) url: &'a Url,
    /// Where the bytes gather; its side files lie next to it.
    pub(crate) part: &'a Path,
    pub(crate) progress: &'a Progress,
    pub(crate) cancel: &'a CancellationToken,
    /// Told the size before the first byte is written; may refuse.
    pub(crate) make_room: &'a (dyn Fn(u64) -> Result<(), GetError> + Sync),
}

/// A file that is complete on disk and not yet judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// What the hub said its hash is.
    pub(crate) promised: Option<Digest>,
}

impl Download<'_> {
    /// Fetches the file; what landed stays for the next try unless it turns out to be of another version.
    pub(crate) async fn run(&self) -> Result<Fetched, GetError> {
        let mut tries = 0;
        loop {
            let fetched = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(GetError::Cancelled),
                fetched = self.once() => fetched,
            };
            tries += 1;
            match fetched {
                Err(GetError::Fetch { source: WebError::Changed { .. }, .. }) if tries < 3 => {
                    Part::remove(self.part);
                }
                other => return other,
            }
        }
    }

    /// Forgets what was fetched.
    pub(crate) fn discard(&self) {
        Part::remove(self.part);
    }

    async fn once(&self) -> Result<Fetched, GetError> {
        let (response, about) = self.open_patiently().await?;
        let promised = about.sha256.as_ref().and_then(|hex| format!("sha256:{hex}").parse().ok());
        let (digest, size) = match about.total {
            Some(total) if about.has_ranges => self.in_pieces(response, &about, total).await?,
            _ => self.in_one(response, &about).await?,
        };
        Ok(Fetched { digest, size, promised })
    }

    async fn open_patiently(&self) -> Result<(Response, About), GetError> {
        let mut wait = FIRST_WAIT;
        for tries_left in (0..TRIES).rev() {
            match self.web.open(self.url, 0, PIECE).await {
                Ok(opened) => return Ok(opened),
                Err(error) if error.is_transient() && tries_left > 0 => tokio::time::sleep(wait).await,
                Err(error) => return Err(self.failed(error)),
            }
            wait *= 2;
        }
        unreachable!("the last try answers either way")
    }

    /// A server that knows no ranges sends all of it, from the start, each time.
    async fn in_one(&self, response: Response, about: &About) -> Result<(Digest, u64), GetError> {
        (self.make_room)(about.total.unwrap_or(0))?;
        let part = Part::start_over(self.part, about)?;
        let mut next = Some(response);
        let mut wait = FIRST_WAIT;
        for tries_left in (0..TRIES).rev() {
            let response = match next.take() {
                Some(response) => Ok(response),
                None => self.web.open(self.url, 0, PIECE).await.map(|(response, _)| response),
            };
            let whole = match response {
                Ok(response) => self.whole(response, about, &part).await,
                Err(error) => Err(Broken::Web(error)),
            };
            match whole {
                Ok(size) => {
                    let digest = part.hash(size, self.cancel).await?;
                    return Ok((digest, size));
                }
                Err(Broken::Web(error)) if error.is_transient() && tries_left > 0 => {
                    tokio::time::sleep(wait).await;
                }
                Err(broken) => return Err(self.broken(broken)),
            }
            wait *= 2;
        }
        unreachable!("the last try answers either way")
    }

    async fn whole(&self, response: Response, about: &About, part: &Part) -> Result<u64, Broken> {
        let told = |done| (self.progress)(done, about.total);
        let got = write_body(response, self.pace, &about.place, part, 0, &told).await?;
        match about.total {
            Some(expected) if expected != got => {
                Err(Broken::Web(WebError::Length { host: host(&about.place), expected, got }))
            }
            _ => Ok(got),
        }
    }

    async fn in_pieces(&self, first: Response, about: &About, total: u64) -> Result<(Digest, u64), GetError> {
        let (part, pieces) = Part::resume(self.part, about, total)?;
        (self.make_room)(total - pieces.done())?;
        let (prefix, seen) = watch::channel(pieces.prefix());
        let shared = Shared { pieces: Mutex::new(pieces), prefix, place: Mutex::new(about.place.clone()) };
        let hash = part.follow(total, seen, self.cancel);
        let fetch = async {
            let mut first = Some(first);
            let lanes = (0..CONNECTIONS).map(|_| self.lane(&shared, &part, about, total, first.take()));
            let fetched = futures::future::try_join_all(lanes).await;
            // The hasher must not wait for bytes that do not come.
            drop(shared);
            fetched
        };
        let (fetched, digest) = tokio::join!(fetch, hash);
        fetched.map_err(|broken| self.broken(broken))?;
        Ok((digest?, total))
    }

    /// One connection: piece after piece until none is left.
    async fn lane(
        &self,
        shared: &Shared,
        part: &Part,
        about: &About,
        total: u64,
        mut opened: Option<Response>,
    ) -> Result<(), Broken> {
        loop {
            let Some(index) = shared.pieces().take() else { return Ok(()) };
            // The first answer is to the question for the first piece.
            let response = opened.take().filter(|_| index == 0);
            if let Err(broken) = self.piece(shared, part, about, index, response).await {
                shared.pieces().give_back(index);
                return Err(broken);
            }
            part.mark(index).map_err(Broken::Write)?;
            let (prefix, done) = {
                let mut pieces = shared.pieces();
                pieces.land(index);
                (pieces.prefix(), pieces.done())
            };
            shared.prefix.send_if_modified(|known| std::mem::replace(known, prefix) != prefix);
            (self.progress)(done, Some(total));
        }
    }

    /// Fetches a piece, again and again if need be.
    async fn piece(
        &self,
        shared: &Shared,
        part: &Part,
        about: &About,
        index: usize,
        mut opened: Option<Response>,
    ) -> Result<(), Broken> {
        let (start, length) = shared.pieces().span(index);
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            tries += 1;
            let response = match opened.take() {
                Some(response) => Ok(response),
                None => self.reopen(shared, about, start, start + length).await,
            };
            let written = match response {
                Ok(response) => write_piece(response, self.pace, about, part, start, length).await,
                Err(error) => Err(Broken::Web(error)),
            };
            match written {
                Err(Broken::Web(error)) if tries < TRIES && (error.is_transient() || error.is_expired()) => {
                    tracing::debug!(index, %error, "a piece is fetched again");
                    if error.is_expired() {
                        shared.forget_place(self.url);
                    }
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                other => return other,
            }
        }
    }

    async fn reopen(
        &self,
        shared: &Shared,
        about: &About,
        start: u64,
        end: u64,
    ) -> Result<Response, WebError> {
        let place = shared.place();
        let (response, now) = self.web.open(&place, start, end).await?;
        let is_same = now.has_ranges && now.total == about.total && now.validator == about.validator;
        if !is_same {
            return Err(WebError::Changed { host: host(&place) });
        }
        shared.remember_place(now.place);
        Ok(response)
    }

    fn broken(&self, broken: Broken) -> GetError {
        match broken {
            Broken::Web(error) => self.failed(error),
            Broken::Write(source) => GetError::Write { path: self.part.to_owned(), source },
        }
    }

    fn failed(&self, source: WebError) -> GetError {
        GetError::Fetch { host: host(self.url), source }
    }
}

/// What the connections of one file share.
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

    fn forget_place(&self, first: &Url) {
        self.remember_place(first.clone());
    }
}

/// Why a piece did not land.
enum Broken {
    Web(WebError),
    Write(std::io::Error),
}

async fn write_piece(
    response: Response,
    pace: &Pace,
    about: &About,
    part: &Part,
    start: u64,
    length: u64,
) -> Result<(), Broken> {
    let got = write_body(response, pace, &about.place, part, start, &|_| {}).await?;
    if got == length {
        return Ok(());
    }
    Err(Broken::Web(WebError::Length { host: host(&about.place), expected: length, got }))
}

/// Writes a body at `start` and gives its length.
async fn write_body(
    response: Response,
    pace: &Pace,
    from: &Url,
    part: &Part,
    start: u64,
    told: &(dyn Fn(u64) + Sync),
) -> Result<u64, Broken> {
    let mut body = response.bytes_stream();
    let mut waiting: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    let mut written = 0;
    loop {
        let chunk = body.next().await.transpose().map_err(|source| Broken::Web(transport(from, source)))?;
        let is_last = chunk.is_none();
        pace.take(chunk.as_ref().map_or(0, |chunk| chunk.len() as u64)).await;
        waiting.extend_from_slice(chunk.as_deref().unwrap_or_default());
        if waiting.len() >= WRITE_BYTES || (is_last && !waiting.is_empty()) {
            let length = waiting.len() as u64;
            waiting = part.write_at(waiting, start + written).await.map_err(Broken::Write)?;
            written += length;
            told(written);
        }
        if is_last {
            return Ok(written);
        }
    }
}
