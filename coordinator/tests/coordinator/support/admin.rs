//! What operators send.

use island_coordinator_domain::clock::Clock;
use island_coordinator_storage::{setup::{create_account, create_key}, Store};
use island_protocol::credits::MicroCredits;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::{
    answer,
    network::{Account, Network},
};

/// Creates an operator's account.
pub(crate) async fn operator(network: &Network) -> Account {
    let store = Store::open(&network.config.database).await.expect("database");
    let now = Clock::System.now();
    let id = create_account(&store, "operator@example.org", true, MicroCredits::ZERO, now).await.expect("account");
    let key = create_key(&store, id, "operator", now).await.expect("key");
    store.close().await;
    Account { id, key }
}

/// Requests of an operator.
pub(crate) struct Admin<'a> {
    pub(crate) network: &'a Network,
    pub(crate) key: String,
}

impl Admin<'_> {
    pub(crate) fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.network.http.request(method, format!("{}/admin{path}", self.network.url)).bearer_auth(&self.key)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = answer(self.call(Method::GET, path)).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.call(Method::POST, path).json(body)).await
    }
}
