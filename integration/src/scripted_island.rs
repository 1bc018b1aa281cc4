//! An Island that is only an enrollment and a connection to the fabric.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use async_nats::{AuthError, ConnectOptions};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use island_coordinator_client::{
    api::{
        Enroll, HostCredentials,
        claim::{Claim, ClaimVerb},
    },
    protocol::{
        ids::{HostId, Nonce},
        subjects::inbox_prefix,
        time::Timestamp,
    },
};
use nkeys::KeyPair;

/// The request that enrolls an Island with this key.
pub fn enrollment(key: &KeyPair, host_id: HostId) -> Enroll {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let sent_at = Timestamp::from_unix_ms(now.as_millis() as i64);
    let nonce = Nonce(uuid::Uuid::new_v4());
    let claim = Claim { verb: ClaimVerb::Enroll, host_id, account_id: None, nonce, sent_at };
    let signature = key.sign(claim.to_string().as_bytes()).expect("sign");
    Enroll {
        host_id,
        public_key: key.public_key(),
        name: "scripted".into(),
        nonce,
        sent_at,
        signature: BASE64_STANDARD.encode(signature),
    }
}

/// How an Island with these credentials connects.
pub fn options(key: KeyPair, host: HostId, credentials: &HostCredentials) -> ConnectOptions {
    let key = Arc::new(key);
    ConnectOptions::with_jwt(credentials.user_jwt.clone(), move |nonce| {
        let key = Arc::clone(&key);
        async move { key.sign(&nonce).map_err(AuthError::new) }
    })
    .custom_inbox_prefix(inbox_prefix(host))
}
