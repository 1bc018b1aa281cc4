//! Files, and batches of their requests.

use island_protocol_api::{
    batch::{Batch, BatchList, CreateBatch},
    file::{DeletedFile, File, FileList, Purpose, UploadFile},
    key::Scope,
    problem::Code,
};
use serde_json::json;

use super::Routes;
use crate::{batches, openai::files, openapi::operation::Operation};

const UPLOAD: &str = "The file has one request in each line, for a batch: a JSON object with `custom_id`, `method`, `url` and `body`. It is deleted after \
     some time, which `expires_at` states. The network limits the size of a file, and the number and the size of an account's files.";

const CREATE: &str = "Each line of the input file is a request to `endpoint`, and becomes a job, or several. Some run at one time, and each is paid like \
     any other. A request that fails because the network cannot serve it now is made again until the end of the window; then what runs is cancelled, and \
     what was not delivered is not charged. With `max_credits`, requests that could exceed it are refused. The results have the order of the lines. \
     Unknown fields are ignored.";

fn on_file(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed("Batches", id, summary, scope)
        .segment("id", "Id of a file.", &json!({"type": "string"}))
        .fails(&[Code::FileNotFound])
}

fn on_batch(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed("Batches", id, summary, scope)
        .segment("id", "Id of a batch.", &json!({"type": "string"}))
        .fails(&[Code::BatchNotFound])
}

pub(super) fn add(routes: Routes) -> Routes {
    batch_routes(file_routes(routes))
}

fn file_routes(routes: Routes) -> Routes {
    let purposes: Vec<_> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
    routes
        .post(
            "/files",
            files::create,
            Operation::keyed("Batches", "createFile", "Upload a file", Scope::Write)
                .about(UPLOAD)
                .takes_form::<UploadFile>()
                .fails(&[Code::TooManyFiles])
                .answers::<File>(200, "The file"),
        )
        .get(
            "/files",
            files::list,
            Operation::keyed("Batches", "listFiles", "The account's files", Scope::Read)
                .query("purpose", false, "Only those with it.", &json!({"type": "string", "enum": purposes}))
                .query(
                    "limit",
                    false,
                    "Maximum number of entries.",
                    &json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000}),
                )
                .query("after", false, "Id of the last file of the page before.", &json!({"type": "string"}))
                .query(
                    "order",
                    false,
                    "By time of creation.",
                    &json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
                )
                .fails(&[Code::ValidationError, Code::FileNotFound])
                .answers::<FileList>(200, "A page of files"),
        )
        .get(
            "/files/{id}",
            files::get,
            on_file("getFile", "One file", Scope::Read).answers::<File>(200, "The file"),
        )
        .delete(
            "/files/{id}",
            files::delete,
            on_file("deleteFile", "Delete a file", Scope::Write)
                .fails(&[Code::FileInUse])
                .answers::<DeletedFile>(200, "The file was deleted"),
        )
        .get(
            "/files/{id}/content",
            files::content,
            on_file("getFileContent", "The content of a file", Scope::Read).sends_file("The content"),
        )
}

fn batch_routes(routes: Routes) -> Routes {
    let example = json!({
        "input_file_id": "file-01997d5e-0000-7000-8000-000000000000", "endpoint": "/v1/chat/completions",
        "completion_window": "24h", "max_credits": 10,
    });
    routes
        .post(
            "/batches",
            batches::create,
            Operation::keyed("Batches", "createBatch", "Run the requests of a file", Scope::Write)
                .about(CREATE)
                .idempotent()
                .takes::<CreateBatch>(Some(example))
                .fails(&[Code::FileNotFound, Code::TooManyBatches])
                .answers::<Batch>(200, "The batch, whose input is validated afterwards"),
        )
        .get(
            "/batches",
            batches::list,
            Operation::keyed("Batches", "listBatches", "The account's batches, newest first", Scope::Read)
                .query(
                    "limit",
                    false,
                    "Maximum number of entries.",
                    &json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
                )
                .query("after", false, "Id of the last batch of the page before.", &json!({"type": "string"}))
                .fails(&[Code::ValidationError, Code::BatchNotFound])
                .answers::<BatchList>(200, "A page of batches"),
        )
        .get(
            "/batches/{id}",
            batches::get,
            on_batch("getBatch", "One batch and its progress", Scope::Read).answers::<Batch>(200, "The batch"),
        )
        .post(
            "/batches/{id}/cancel",
            batches::cancel,
            on_batch("cancelBatch", "Cancel a batch", Scope::Write)
                .about("No further request begins, and those that run are cancelled. The results until then are in the files of the batch.")
                .fails(&[Code::BatchAlreadyFinal])
                .answers::<Batch>(200, "The batch"),
        )
}
