//! The OpenAPI document and its page, against the router that serves them.

use std::{fs, path::PathBuf};

use reqwest::{Method, StatusCode, header};
use serde_json::Value;

use crate::support::{answer, network::Network};

#[tokio::test]
async fn the_document_names_every_method_of_every_route() {
    let network = Network::start().await;
    let served = network.http.get(format!("{}/openapi.json", network.url)).send().await.expect("answer");
    assert_eq!(served.status(), StatusCode::OK, "no key is needed");
    let document: Value = served.json().await.expect("json");
    assert_eq!(document["openapi"], "3.1.0");
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let id = uuid::Uuid::new_v4().to_string();
        let url = format!("{}{}", network.url, path.replace("{id}", &id).replace("{slug}", "no-such-cargo"));
        let refused = network.http.request(Method::PUT, &url).send().await.expect("answer");
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allow = refused.headers()[header::ALLOW].to_str().expect("text").to_lowercase();
        let mut allowed: Vec<&str> = allow.split(',').map(str::trim).filter(|name| *name != "head").collect();
        let mut told: Vec<&str> =
            operations.as_object().expect("methods").keys().map(String::as_str).collect();
        allowed.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, allowed, "{path}");
        for method in told {
            let method: Method = method.to_uppercase().parse().expect("method");
            let open =
                operations[method.as_str().to_lowercase()]["security"].as_array().expect("list").is_empty();
            let status = network.http.request(method, &url).send().await.expect("answer").status();
            assert_eq!(status == StatusCode::UNAUTHORIZED, !open, "{path}: {status}");
        }
    }
}

/// Every `.route(` of the crate is in the table from which the document is built, except these pages outside `/api/v1`.
#[test]
fn no_route_is_served_beside_the_table() {
    let mut found = Vec::new();
    let crates = [".", "api", "domain", "execution", "fabric", "storage"];
    let mut folders: Vec<_> = crates.iter().map(|name| PathBuf::from(name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("native/session.rs") {
                // Its routes are for requests within the process; a test of the console shows that they are not served.
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("readable");
                let calls = [".route(", ".route_service(", ".nest(", ".nest_service(", ".merge("];
                let arguments = |call: &'static str| {
                    text.split(call)
                        .skip(1)
                        .map(move |rest| format!("{call}{}", rest.split([',', ';']).next().unwrap_or_default()))
                };
                found.extend(calls.into_iter().flat_map(arguments).collect::<Vec<_>>());
            }
        }
    }
    found.sort_unstable();
    let expected = [
        ".merge(session::routes()))",
        ".nest(PREFIX",
        ".route(\"/\"",
        ".route(\"/docs\"",
        ".route(\"/metrics\"",
        ".route(path",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_page_needs_no_key_and_no_external_resource() {
    let network = Network::start_with(|config| config.console.enabled = false).await;
    let origin = network.url.trim_end_matches("/api/v1");
    let root = network.http.get(format!("{origin}/")).send().await.expect("answer");
    assert_eq!(root.url().path(), "/docs", "a browser at the root is led to the page");
    let (status, body) = answer(network.http.get(format!("{origin}/jobs"))).await;
    let message = body["error"]["message"].as_str().expect("text");
    assert!(status == 404 && message.contains("/api/v1"), "{message}");
    let response = network.http.get(format!("{origin}/docs")).send().await.expect("answer");
    assert_eq!(response.status(), StatusCode::OK);
    assert!(
        response.headers()[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .expect("text")
            .contains("default-src 'none'")
    );
    let page = response.text().await.expect("text");
    assert!(page.contains("createChatCompletion") && !page.contains("<script") && !page.contains("src="));
}
