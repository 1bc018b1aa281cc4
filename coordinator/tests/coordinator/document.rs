//! The OpenAPI document and its page, against the router that serves them.

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

#[tokio::test]
async fn the_page_needs_no_key_and_no_external_resource() {
    let network = Network::start().await;
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
