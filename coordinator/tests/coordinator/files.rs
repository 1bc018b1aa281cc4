//! `/files`.

use futures::StreamExt as _;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::{answer, network::Network, soon};

/// A form with a file and these fields; the file comes first, as some clients send it.
pub(crate) fn form(network: &Network, content: &[u8], fields: &[(&str, &str)]) -> RequestBuilder {
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n";
    let mut body = [head.as_bytes(), content, b"\r\n"].concat();
    for (name, value) in fields {
        let part = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(b"--b--\r\n");
    let request = network.call(Method::POST, "/files");
    request.header("Content-Type", "multipart/form-data; boundary=b").body(body)
}

/// Uploads a file and returns its id.
pub(crate) async fn upload(network: &Network, content: &str) -> String {
    let (status, file) = answer(form(network, content.as_bytes(), &[("purpose", "batch")])).await;
    assert_eq!(status, 200, "{file}");
    file["id"].as_str().expect("an id").to_owned()
}

/// The content of a file.
pub(crate) async fn content(network: &Network, id: &str) -> String {
    let response = network.call(Method::GET, &format!("/files/{id}/content")).send().await.expect("answer");
    assert_eq!(response.status(), StatusCode::OK, "{id}");
    response.text().await.expect("text")
}

async fn pieces(network: &Network) -> i64 {
    let pool = network.sql().await;
    let pieces = sqlx::query_scalar("SELECT COUNT(*) FROM file_pieces").fetch_one(&pool).await.expect("count");
    pool.close().await;
    pieces
}

#[tokio::test]
async fn a_file_is_stored_read_listed_and_deleted() {
    let network = Network::start().await;
    // Several pieces, and characters on their borders.
    let text = "a€😀\n".repeat(150_000);
    let (status, file) = answer(form(
        &network,
        text.as_bytes(),
        &[("purpose", "batch"), ("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "3600")],
    ))
    .await;
    assert_eq!(status, 200, "{file}");
    assert_eq!((&file["object"], &file["filename"]), (&json!("file"), &json!("in.jsonl")));
    assert_eq!((&file["bytes"], &file["purpose"]), (&json!(text.len()), &json!("batch")));
    let created = file["created_at"].as_i64().expect("seconds");
    assert_eq!(file["expires_at"], created + 3600);
    let id = file["id"].as_str().expect("an id");
    assert!(content(&network, id).await == text, "the same text");
    assert_eq!(network.get(&format!("/files/{id}")).await, file);

    let other = upload(&network, "{}").await;
    let kept_days = network.get(&format!("/files/{other}")).await;
    assert_eq!(
        kept_days["expires_at"].as_i64().expect("seconds") - kept_days["created_at"].as_i64().expect("seconds"),
        30 * 24 * 3600
    );
    let ids = |list: &Value| -> Vec<String> {
        list["data"].as_array().expect("a list").iter().map(|file| file["id"].as_str().expect("id").to_owned()).collect()
    };
    let all = network.get("/files").await;
    assert_eq!((ids(&all), &all["has_more"]), (vec![other.clone(), id.to_owned()], &json!(false)));
    let first = network.get("/files?limit=1&order=asc&purpose=batch").await;
    assert_eq!((ids(&first), &first["has_more"]), (vec![id.to_owned()], &json!(true)));
    let second = network.get(&format!("/files?order=asc&after={id}")).await;
    assert_eq!((ids(&second), &second["last_id"]), (vec![other.clone()], &json!(other)));
    assert!(ids(&network.get("/files?purpose=batch_output").await).is_empty());

    // Another account knows nothing of it.
    for (method, path) in [
        (Method::GET, format!("/files/{id}")),
        (Method::GET, format!("/files/{id}/content")),
        (Method::DELETE, format!("/files/{id}")),
        (Method::GET, format!("/files?after={id}")),
    ] {
        let request = network.http.request(method, format!("{}{path}", network.url));
        let (status, body) = answer(request.bearer_auth(&network.owner.key)).await;
        if path.contains("after") {
            assert_eq!((status, &body["data"]), (200, &json!([])), "{path}");
        } else {
            assert_eq!((status, &body["error"]["code"]), (404, &json!("file_not_found")), "{path}");
        }
    }

    let (status, deleted) = answer(network.call(Method::DELETE, &format!("/files/{id}"))).await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    let (status, body) = answer(network.call(Method::GET, &format!("/files/{id}"))).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("file_not_found")));
    assert_eq!(pieces(&network).await, 1, "only the other file's");
}

#[tokio::test]
async fn bad_uploads_leave_nothing_behind() {
    let network = Network::start_with(|config| {
        config.files.max_mb = 1;
        config.files.account_mb = 1;
        config.files.per_account = 2;
    })
    .await;
    let large = "x".repeat((1 << 20) + 1);
    let batch = ("purpose", "batch");
    for (content, fields, expected, param) in [
        (&b"{}"[..], &[][..], 422, "purpose"),
        (b"{}", &[("purpose", "fine-tune")], 422, "purpose"),
        (b"\xff\xfe", &[batch], 422, "file"),
        (b"a\0b", &[batch], 422, "file"),
        (large.as_bytes(), &[batch], 413, "file"),
        (b"{}", &[batch, ("expires_after[seconds]", "60")], 422, "expires_after[seconds]"),
        (b"{}", &[batch, ("expires_after[anchor]", "never")], 422, "expires_after[anchor]"),
    ] {
        let (status, body) = answer(form(&network, content, fields)).await;
        assert_eq!((status, &body["error"]["param"]), (expected, &json!(param)), "{body}");
        assert!(body["error"]["type"].is_string(), "{body}");
    }
    let whole = form(&network, b"{}", &[batch]).build().expect("a request");
    let cut = whole.body().and_then(|body| body.as_bytes()).expect("bytes");
    let cut_off = network.call(Method::POST, "/files").header("Content-Type", "multipart/form-data; boundary=b");
    let (status, _) = answer(cut_off.body(cut[..cut.len() / 2].to_vec())).await;
    assert_eq!(status, 422);
    let (status, body) = answer(network.call(Method::POST, "/files").json(&json!({}))).await;
    assert_eq!((status, &body["error"]["code"]), (415, &json!("unsupported_media_type")));
    assert_eq!((pieces(&network).await, &network.get("/files").await["data"]), (0, &json!([])));

    // Together they have too many bytes, and then there are too many.
    upload(&network, &"x".repeat(600_000)).await;
    let (status, body) = answer(form(&network, "x".repeat(600_000).as_bytes(), &[batch])).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("too_many_files")), "{body}");
    upload(&network, "{}").await;
    let (status, body) = answer(form(&network, b"{}", &[batch])).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("too_many_files")), "{body}");
    assert_eq!(network.get("/files").await["data"].as_array().expect("a list").len(), 2);
}

#[tokio::test]
async fn an_upload_ends_once_its_account_has_no_space() {
    let network = Network::start_with(|config| config.files.account_mb = 1).await;
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n";
    let begun = [head.to_owned(), "x".repeat(8 << 20)].map(Ok::<_, std::io::Error>);
    // It would go on for as long as the server reads.
    let body = futures::stream::iter(begun).chain(futures::stream::pending());
    let request = network.call(Method::POST, "/files");
    let request = request.header("Content-Type", "multipart/form-data; boundary=b");
    let (status, body) = answer(request.body(reqwest::Body::wrap_stream(body))).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("too_many_files")), "{body}");
    assert_eq!(pieces(&network).await, 0);
}

#[tokio::test]
async fn a_file_is_deleted_when_its_time_is_over() {
    let mut network = Network::start().await;
    let id = upload(&network, "{}").await;
    let kept = upload(&network, "{}").await;
    network.down().await;
    let pool = network.sql().await;
    sqlx::query("UPDATE files SET expires_at = 1 WHERE id = $1")
        .bind(id.trim_start_matches("file-"))
        .execute(&pool)
        .await
        .expect("changed");
    pool.close().await;
    network.up().await;
    let deleted = async {
        while pieces(&network).await > 1 {
            tokio::task::yield_now().await;
        }
    };
    soon("the deletion", deleted).await;
    assert_eq!(answer(network.call(Method::GET, &format!("/files/{id}"))).await.0, 404);
    assert_eq!(content(&network, &kept).await, "{}");
}
