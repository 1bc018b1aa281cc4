//! `/files` and `/batches`.

use std::time::Duration;

use bytes::Bytes;
use island_protocol::ids::BatchId;
use island_protocol_api::{
    batch::{Batch, BatchList, CreateBatch, PREFIX as BATCH},
    file::{DeletedFile, File, Purpose},
};

use crate::{
    call::{Call, FilePart},
    client::Client,
    request::Request,
};

/// Time for a whole file in either direction, as long as a coordinator gives an upload: a large one takes minutes on a
/// slow line.
const WHOLE_FILE: Duration = Duration::from_mins(15);

impl Client {
    /// `POST /files`: uploads the requests of a batch. Sent again after a lost answer, it leaves a second file, which expires.
    pub fn upload_batch_file(&self, name: &str, content: Bytes) -> Request<File> {
        let purpose = ("purpose", Purpose::Batch.as_str().to_owned());
        let file = FilePart { field: "file", name: name.to_owned(), content };
        let call = Call::upload("upload the file", &["files"], vec![purpose], file).harmless();
        Request::plain(self, call).timeout(WHOLE_FILE)
    }

    /// `GET /files/:id/content`. The id begins with `file-`.
    pub fn file_content(&self, id: &str) -> Request<String> {
        Request::text(self, Call::get("read the file", &["files", id, "content"])).timeout(WHOLE_FILE)
    }

    /// `DELETE /files/:id`.
    pub fn delete_file(&self, id: &str) -> Request<DeletedFile> {
        Request::plain(self, Call::delete("delete the file", &["files", id]))
    }

    /// `POST /batches`. Acts once even if it is sent again.
    pub fn create_batch(&self, wanted: &CreateBatch) -> Request<Batch> {
        Request::plain(self, Call::post_once("create the batch", &["batches"], wanted))
    }

    /// `GET /batches`: newest first, those after the batch `after`.
    pub fn batches(&self, limit: u64, after: Option<BatchId>) -> Request<BatchList> {
        let call = Call::get("list the batches", &["batches"]).query("limit", Some(limit));
        Request::plain(self, call.query("after", after.map(batch)))
    }

    /// `GET /batches/:id`.
    pub fn batch(&self, id: BatchId) -> Request<Batch> {
        Request::plain(self, Call::get("read the batch", &["batches", &batch(id)]))
    }

    /// `POST /batches/:id/cancel`: requests that run are cancelled, and no others begin.
    pub fn cancel_batch(&self, id: BatchId) -> Request<Batch> {
        let path = ["batches", &batch(id), "cancel"];
        Request::plain(self, Call::post("cancel the batch", &path, &()).harmless())
    }
}

/// The id as the API spells it.
fn batch(id: BatchId) -> String {
    format!("{BATCH}{id}")
}
