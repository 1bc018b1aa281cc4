//! Signed requests of Islands: each serves one purpose, one account, and once.

use std::sync::Arc;

use island_coordinator_domain::clock::Clock;
use island_protocol_api::claim::{Claim, ClaimVerb};
use island_protocol::ids::{AccountId, HostId, Nonce};
use nkeys::KeyPair;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{
    answer,
    island::{Island, enroll, signed, signed_claim},
    network::{Account, Network},
};

const BY_KEY_ALONE: [(&str, ClaimVerb); 3] =
    [("credentials", ClaimVerb::Credentials), ("leave", ClaimVerb::Leave), ("check", ClaimVerb::Check)];

async fn post(network: &Network, path: &str, body: &Value, account: Option<&Account>) -> (u16, Value) {
    let mut request = network.http.post(format!("{}/island/{path}", network.url)).json(body);
    if let Some(account) = account {
        request = request.bearer_auth(&account.key);
    }
    answer(request).await
}

/// The parameter that the refusal names.
fn refused((status, body): &(u16, Value)) -> &str {
    assert_eq!(*status, 422, "{body}");
    body["error"]["param"].as_str().expect("a parameter")
}

/// An Island that has not been enrolled, and what it sends to be.
fn introduction(host: HostId, key: &KeyPair, verb: ClaimVerb) -> Value {
    let mut body = signed(host, key, verb);
    body["public_key"] = key.public_key().into();
    body["name"] = "new".into();
    body
}

/// Nobody needs a key for a code, so that a flood from one network must not take those of others away.
#[tokio::test]
async fn a_client_gets_a_limited_number_of_codes() {
    let network = Network::start_with(|config| {
        config.http.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a network")];
    })
    .await;
    let pair = async |address: &str| {
        let (host, key) = (HostId(Uuid::new_v4()), KeyPair::new_user());
        let request = network.http.post(format!("{}/island/pairings", network.url));
        let pairs = introduction(host, &key, ClaimVerb::Pair);
        answer(request.header("x-forwarded-for", address).json(&pairs)).await.0
    };
    let mut statuses = Vec::new();
    // More than two minutes allow.
    for host in 1..=61 {
        statuses.push(pair(&format!("2001:db8::{host}")).await);
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(pair("2001:db8:0:1::1").await, 200, "another network");
}

#[tokio::test]
async fn a_signature_for_one_purpose_serves_no_other() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    for (path, _) in BY_KEY_ALONE {
        for (other, verb) in BY_KEY_ALONE.into_iter().filter(|(other, _)| *other != path) {
            let answer = post(&network, path, &signed(island.id, &island.key, verb), None).await;
            assert_eq!(refused(&answer), "signature", "{other} at {path}");
        }
    }
    let (host, key) = (HostId(Uuid::new_v4()), KeyPair::new_user());
    let enrolls = introduction(host, &key, ClaimVerb::Enroll);
    assert_eq!(refused(&post(&network, "pairings", &enrolls, None).await), "signature");
    let pairs = introduction(host, &key, ClaimVerb::Pair);
    assert_eq!(refused(&post(&network, "enroll", &pairs, Some(&network.owner)).await), "signature");
    // What was refused has not used up its nonce.
    assert_eq!(post(&network, "pairings", &pairs, None).await.0, 200);
    assert_eq!(post(&network, "enroll", &enrolls, Some(&network.owner)).await.0, 200);
}

#[tokio::test]
async fn a_signed_request_is_accepted_once() {
    let network = Network::start().await;
    let (host, key) = (HostId(Uuid::new_v4()), KeyPair::new_user());
    let pairs = introduction(host, &key, ClaimVerb::Pair);
    assert_eq!(post(&network, "pairings", &pairs, None).await.0, 200);
    assert_eq!(refused(&post(&network, "pairings", &pairs, None).await), "nonce");
    let enrolls = introduction(host, &key, ClaimVerb::Enroll);
    for account in [&network.owner, &network.consumer] {
        let answer = post(&network, "enroll", &enrolls, Some(account)).await;
        assert_eq!(answer.0 == 200, account.key == network.owner.key, "{}", answer.1);
    }
    for (path, verb) in [("credentials", ClaimVerb::Credentials), ("leave", ClaimVerb::Leave)] {
        let body = signed(host, &key, verb);
        assert_eq!(post(&network, path, &body, None).await.0, 200, "{path}");
        // The Island is still known after it has left only if it enrolls again.
        assert_eq!(enroll(&network, &network.owner, host, &key).await.0, 200);
        assert_eq!(refused(&post(&network, path, &body, None).await), "nonce", "{path}");
    }
    assert_eq!(network.get(&format!("/hosts/{host}")).await["data"]["id"], json!(host));
}

#[tokio::test]
async fn parallel_copies_are_accepted_once() {
    let network = Network::start().await;
    let (host, key) = (HostId(Uuid::new_v4()), KeyPair::new_user());
    assert_eq!(enroll(&network, &network.owner, host, &key).await.0, 200);
    let body = signed(host, &key, ClaimVerb::Credentials);
    let copies = (0..20).map(|_| post(&network, "credentials", &body, None));
    let accepted = futures::future::join_all(copies).await.into_iter().filter(|(status, _)| *status == 200);
    assert_eq!(accepted.count(), 1);
}

#[tokio::test]
async fn a_claim_for_one_account_does_nothing_to_the_island_of_another() {
    let network = Network::start().await;
    let (host_id, key) = (HostId(Uuid::new_v4()), Arc::new(KeyPair::new_user()));
    let claim = |verb, account_id| {
        let (nonce, sent_at) = (Nonce(Uuid::new_v4()), Clock::System.now());
        signed_claim(&Claim { verb, host_id, account_id: Some(account_id), nonce, sent_at }, &key)
    };
    let enrolls = introduction(host_id, &key, ClaimVerb::Enroll);
    let (status, body) = post(&network, "enroll", &enrolls, Some(&network.owner)).await;
    assert_eq!(status, 200, "{body}");
    let first: AccountId = serde_json::from_value(body["data"]["account_id"].clone()).expect("its account");
    // Kept back by somebody who saw it, until the Island has another owner.
    let kept = claim(ClaimVerb::Leave, first);
    assert_eq!(post(&network, "leave", &claim(ClaimVerb::Leave, first), None).await.0, 200);
    assert_eq!(enroll(&network, &network.consumer, host_id, &key).await.0, 200);
    assert_eq!(refused(&post(&network, "leave", &kept, None).await), "account_id");

    let (status, body) =
        post(&network, "credentials", &signed(host_id, &key, ClaimVerb::Credentials), None).await;
    let second: AccountId = serde_json::from_value(body["data"]["account_id"].clone()).expect("its account");
    assert_eq!(status, 200, "{body}");
    assert_ne!(first, second);
    assert_eq!(post(&network, "credentials", &claim(ClaimVerb::Credentials, second), None).await.0, 200);
    // The account is part of what is signed.
    let mut other = claim(ClaimVerb::Credentials, first);
    other["account_id"] = json!(second);
    assert_eq!(refused(&post(&network, "credentials", &other, None).await), "signature");
}
