//! `POST /files`: a form whose file is stored in pieces as it arrives, so that no upload is in memory as a whole.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Request, State},
};
use island_protocol::{
    ids::{AccountId, FileId},
    time::Timestamp,
};
use island_protocol_api::{
    file::{File, Purpose},
    problem::Code,
};
use multer::{Field, Multipart};
use tokio::time::timeout;
use uuid::Uuid;

use super::view;
use crate::{
    Api, ApiError,
    http::{auth::Caller, form},
};
use island_coordinator_storage::{
    commit,
    file::{self, NewFile},
};

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Pieces of an upload after which it is checked again whether its account has space: others may arrive at the same time.
const CHECKED: u64 = 16;
/// Maximum bytes of the other fields and of what separates them.
const MAX_FIELDS: u64 = 64 << 10;
/// Maximum characters of a file's name.
const MAX_NAME: usize = 255;
/// Maximum time between two parts of a body.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum time of an upload. One that is not complete after it is deleted.
const MAX_UPLOAD: Duration = Duration::from_mins(15);
const MIB: u64 = 1 << 20;

/// Stores a file.
pub(crate) async fn create(State(api): State<Arc<Api>>, request: Request) -> Result<Json<File>, ApiError> {
    receive(&api, request).await.map(Json).map_err(ApiError::in_openai_form)
}

async fn receive(api: &Arc<Api>, request: Request) -> Result<File, ApiError> {
    let max_file = u64::from(api.rules.files.max_mb) * MIB;
    let (mut parts, body) = request.into_parts();
    let caller = Caller::read(&mut parts, api, max_file + MAX_FIELDS).await?;
    let boundary = form::boundary(&parts.headers)?;
    let created_at = api.clock.now();
    let upload = Upload { api, account: caller.account, id: FileId(Uuid::now_v7()), created_at, max_file };
    let late = |_| {
        let message = format!("the body did not arrive within {} s", MAX_UPLOAD.as_secs());
        ApiError::new(Code::RequestTimeout, message)
    };
    let form = Multipart::new(body.into_data_stream(), boundary);
    let stored = timeout(MAX_UPLOAD, upload.store(form)).await.map_err(late).flatten();
    if stored.is_err() {
        upload.delete().await?;
    }
    stored
}

/// A file that arrives.
#[derive(Debug)]
struct Upload<'a> {
    api: &'a Arc<Api>,
    account: AccountId,
    id: FileId,
    /// From which its life counts.
    created_at: Timestamp,
    max_file: u64,
}

/// The fields beside the file.
#[derive(Debug, Default)]
struct Fields {
    purpose: Option<String>,
    life_s: Option<u64>,
}

impl Upload<'_> {
    async fn store(&self, mut form: Multipart<'_>) -> Result<File, ApiError> {
        let mut fields = Fields::default();
        let mut is_stored = false;
        loop {
            let next = timeout(IDLE, form.next_field()).await.map_err(|_| idle())?;
            let Some(part) = next.map_err(|error| unreadable(&error))? else { break };
            match part.name().map(str::to_owned).as_deref() {
                Some("file") if is_stored => {
                    let message = "the form has the field file twice";
                    return Err(ApiError::field(Code::ValidationError, "file", message));
                }
                Some("file") => {
                    self.begin(part.file_name().unwrap_or("file")).await?;
                    self.add_pieces(part).await?;
                    is_stored = true;
                }
                Some(name) => fields.read(name, &text(name, part).await?)?,
                None => {
                    return Err(ApiError::new(Code::ValidationError, "a part of the form has no name"));
                }
            }
        }
        if fields.purpose.as_deref() != Some(Purpose::Batch.as_str()) {
            return Err(ApiError::field(Code::ValidationError, "purpose", "purpose must be batch"));
        }
        if !is_stored {
            return Err(ApiError::field(Code::ValidationError, "file", "the form has no file"));
        }
        self.complete(fields.life_s).await
    }

    /// Adds the file without content, unless the account has too many.
    async fn begin(&self, filename: &str) -> Result<(), ApiError> {
        let mut tx = self.api.store.begin_locked([self.account]).await?;
        let used = file::used(&mut tx, self.account).await?;
        let limit = u64::from(self.api.rules.files.per_account);
        if used.files >= limit {
            let message = format!("an account may have {limit} files: delete some first");
            return Err(ApiError::new(Code::TooManyFiles, message));
        }
        self.check_bytes(used.bytes)?;
        let filename: String = filename.chars().take(MAX_NAME).collect();
        let abandoned_at =
            Some(self.created_at.plus_ms(2 * i64::try_from(MAX_UPLOAD.as_millis()).unwrap_or(i64::MAX / 4)));
        let new = NewFile {
            id: self.id,
            account: self.account,
            filename: &filename,
            purpose: Purpose::Batch,
            created_at: self.created_at,
            abandoned_at,
        };
        file::insert(&mut tx, &new).await?;
        commit(tx).await?;
        Ok(())
    }

    fn check_bytes(&self, used: u64) -> Result<(), ApiError> {
        let limit = u64::from(self.api.rules.files.account_mb);
        if used <= limit * MIB {
            return Ok(());
        }
        let message = format!("the files of an account may have {limit} MiB together: delete some first");
        Err(ApiError::new(Code::TooManyFiles, message))
    }

    /// Stores the content, some at a time.
    async fn add_pieces(&self, mut part: Field<'_>) -> Result<(), ApiError> {
        let (mut buffer, mut length, mut n) = (Vec::new(), 0_u64, 0_u64);
        loop {
            let next = timeout(IDLE, part.chunk()).await.map_err(|_| idle())?;
            let chunk = next.map_err(|error| unreadable(&error))?;
            if let Some(chunk) = &chunk {
                length += chunk.len() as u64;
                if length > self.max_file {
                    let message = format!("a file may have {} bytes", self.max_file);
                    return Err(ApiError::field(Code::PayloadTooLarge, "file", message));
                }
                buffer.extend_from_slice(chunk);
            }
            let is_last = chunk.is_none();
            while buffer.len() >= PIECE || (is_last && !buffer.is_empty()) {
                let piece = take_text(&mut buffer, is_last)?;
                n += 1;
                self.add_piece(n, &piece).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn add_piece(&self, n: u64, text: &str) -> Result<(), ApiError> {
        let mut tx = self.api.store.begin().await?;
        if !file::add_piece(&mut tx, self.id, n, text).await? {
            return Err(ApiError::new(Code::RequestTimeout, "the file was deleted while it arrived"));
        }
        // The account is not locked, so that its uploads do not wait for each other: this bounds them, and `complete` decides.
        if n.is_multiple_of(CHECKED) {
            self.check_bytes(file::used(&mut tx, self.account).await?.bytes)?;
        }
        commit(tx).await?;
        Ok(())
    }

    /// Shows the file to its account, unless its files have too many bytes now.
    async fn complete(&self, life_s: Option<u64>) -> Result<File, ApiError> {
        let now = self.api.clock.now();
        let mut tx = self.api.store.begin_locked([self.account]).await?;
        self.check_bytes(file::used(&mut tx, self.account).await?.bytes)?;
        let expires_at = expires_at(self.created_at, life_s, self.api.rules.files_ms);
        if !file::complete(&mut tx, self.id, now, expires_at).await? {
            return Err(super::unknown());
        }
        commit(tx).await?;
        let stored = file::get(self.api.store.reader(), self.id, self.account).await?;
        stored.map(view).ok_or_else(super::unknown)
    }

    /// Deletes what was stored.
    async fn delete(&self) -> Result<(), ApiError> {
        let mut tx = self.api.store.begin().await?;
        file::delete(&mut tx, self.id).await?;
        commit(tx).await?;
        Ok(())
    }
}

impl Fields {
    fn read(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        let refused = |message: &str| Err(ApiError::field(Code::ValidationError, name, message));
        match name {
            "purpose" => self.purpose = Some(value.to_owned()),
            "expires_after[anchor]" if value != "created_at" => {
                return refused("expires_after[anchor] must be created_at");
            }
            "expires_after[seconds]" => match value.parse() {
                Ok(seconds) if (3_600..=2_592_000).contains(&seconds) => self.life_s = Some(seconds),
                _ => return refused("expires_after[seconds] must be from 3600 to 2592000"),
            },
            _ => {}
        }
        Ok(())
    }
}

/// When a file is deleted: after the requested time, or after that of the operator if it is shorter.
fn expires_at(created_at: Timestamp, life_s: Option<u64>, most_ms: Option<i64>) -> Option<Timestamp> {
    let requested_ms = life_s.and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000));
    requested_ms.into_iter().chain(most_ms).min().map(|ms| created_at.plus_ms(ms))
}

/// Takes the next piece of text. A character that is not complete stays, unless nothing follows.
fn take_text(buffer: &mut Vec<u8>, is_last: bool) -> Result<String, ApiError> {
    let not_text = || ApiError::field(Code::ValidationError, "file", "the file is not UTF-8 text");
    let length = buffer.len().min(PIECE);
    let whole = match std::str::from_utf8(&buffer[..length]) {
        Ok(text) => text.len(),
        // The character may go on in what follows.
        Err(error) if error.error_len().is_none() && (length < buffer.len() || !is_last) => {
            error.valid_up_to()
        }
        Err(_) => return Err(not_text()),
    };
    let rest = buffer.split_off(whole);
    let piece = String::from_utf8(std::mem::replace(buffer, rest)).map_err(|_| not_text())?;
    if piece.contains('\0') {
        return Err(ApiError::field(
            Code::ValidationError,
            "file",
            "the file has a NUL character, which JSON has not",
        ));
    }
    Ok(piece)
}

/// The value of a short field.
async fn text(name: &str, mut part: Field<'_>) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    loop {
        let next = timeout(IDLE, part.chunk()).await.map_err(|_| idle())?;
        let Some(chunk) = next.map_err(|error| unreadable(&error))? else { break };
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > MAX_FIELDS {
            let shown: String = name.chars().take(64).collect();
            return Err(ApiError::field(Code::PayloadTooLarge, shown, "the field is too long"));
        }
    }
    String::from_utf8(bytes).map_err(|_| {
        ApiError::field(Code::ValidationError, name, format!("{name}: the value is not UTF-8 text"))
    })
}

fn idle() -> ApiError {
    ApiError::new(Code::RequestTimeout, format!("no part of the body arrived for {} s", IDLE.as_secs()))
}

fn unreadable(error: &multer::Error) -> ApiError {
    ApiError::new(Code::ValidationError, format!("the body is not a form of several parts: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_split_between_characters(text in "[aä€😀]{0,40}", at in 0..160_usize) {
            let bytes = text.as_bytes();
            let at = at.min(bytes.len());
            let mut buffer = bytes[..at].to_vec();
            let mut taken = if buffer.is_empty() { String::new() } else { take_text(&mut buffer, false).expect("text") };
            prop_assert!(buffer.len() < 4);
            buffer.extend_from_slice(&bytes[at..]);
            if !buffer.is_empty() {
                taken += &take_text(&mut buffer, true).expect("text");
            }
            prop_assert_eq!(taken, text);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn a_file_lives_no_longer_than_it_may(life_s in proptest::option::of(3_600..2_592_000_u64), most_ms in proptest::option::of(1..1_i64 << 40)) {
            let now = Timestamp::from_unix_ms(0);
            let end = expires_at(now, life_s, most_ms).map(Timestamp::unix_ms);
            prop_assert_eq!(end.is_none(), life_s.is_none() && most_ms.is_none());
            if let Some(end) = end {
                prop_assert!(most_ms.is_none_or(|most| end <= most));
                prop_assert!(life_s.is_none_or(|life| end <= life as i64 * 1000));
            }
        }
    }

    #[test]
    fn what_is_not_text_is_refused() {
        for bytes in [&b"\xff"[..], b"a\xc3", b"a\0b"] {
            assert!(take_text(&mut bytes.to_vec(), true).is_err(), "{bytes:?}");
        }
        let mut large = "€".repeat(PIECE).into_bytes();
        let piece = take_text(&mut large, false).expect("text");
        assert!(piece.len() <= PIECE && piece.len() > PIECE - 3);
    }
}
