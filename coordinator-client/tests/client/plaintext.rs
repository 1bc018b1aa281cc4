//! What leaves for another machine without encryption: nothing.

use async_nats::ConnectOptions;
use island_coordinator_client::{fabric::FabricWatch, transport};
use island_protocol::time::Timestamp;
use island_protocol_api::WatchCredentials;
use nkeys::KeyPair;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const JWT: &str = "header.secret.signature";

/// Connections to 0.0.0.0 arrive on this machine, but it is not an address of loopback.
fn another_machine(listener: &TcpListener) -> String {
    format!("nats://0.0.0.0:{}", listener.local_addr().expect("address").port())
}

fn credentials(nats_url: String) -> WatchCredentials {
    WatchCredentials {
        nats_url,
        user_jwt: JWT.to_owned(),
        seed: KeyPair::new_user().seed().expect("a seed"),
        expires_at: Timestamp::from_unix_ms(0),
        inbox_prefix: "inbox".to_owned(),
        subjects: Vec::new(),
    }
}

/// Greets a client as a server without TLS, and returns the connection and what the client sent first.
async fn greet(listener: &TcpListener, others: &str) -> (TcpStream, Vec<u8>) {
    let (mut client, _) = listener.accept().await.expect("a connection");
    let info = format!("INFO {{\"nonce\":\"abc\",\"connect_urls\":[{others}]}}\r\n");
    client.write_all(info.as_bytes()).await.expect("greet");
    let mut sent = vec![0; 1 << 14];
    let length = client.read(&mut sent).await.expect("read");
    sent.truncate(length);
    (client, sent)
}

#[tokio::test]
async fn no_token_is_sent_to_a_fabric_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let credentials = credentials(another_machine(&listener));
    let sent_if = async |allow| {
        // The server leaves, so that the client gives up.
        let server = async { greet(&listener, "").await.1 };
        let (connected, sent) = tokio::join!(FabricWatch::connect(&credentials, None, allow), server);
        assert!(connected.is_err(), "{connected:?}");
        String::from_utf8_lossy(&sent).into_owned()
    };
    let sent = sent_if(false).await;
    assert!(!sent.contains("CONNECT") && !sent.contains(JWT), "{sent}");
    let sent = sent_if(true).await;
    assert!(sent.starts_with("CONNECT") && sent.contains(JWT), "{sent}");
}

#[tokio::test]
async fn a_server_cannot_name_others_before_the_connection_is_encrypted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("nats://{}", listener.local_addr().expect("address"));
    let servers_if = async |allow| {
        let options = transport::fabric(ConnectOptions::new(), &url, allow).expect("this machine");
        let (connected, _client) = tokio::join!(options.connect(&url), async {
            let (mut client, sent) = greet(&listener, "\"192.0.2.1:4222\"").await;
            assert!(sent.starts_with(b"CONNECT"), "{sent:?}");
            client.write_all(b"PONG\r\n").await.expect("answer");
            client
        });
        connected.expect("connected").server_pool().await.expect("the servers").len()
    };
    assert_eq!(servers_if(false).await, 1);
    assert_eq!(servers_if(true).await, 2);
}

#[test]
fn websockets_are_encrypted_or_on_this_machine() {
    for (url, is_allowed) in [
        ("ws://example.org", false),
        ("wss://example.org/nats", true),
        ("ws://127.0.0.1:1/nats", true),
        ("wss://example.org,ws://example.org", false),
    ] {
        assert_eq!(transport::fabric(ConnectOptions::new(), url, false).is_ok(), is_allowed, "{url}");
        assert!(transport::fabric(ConnectOptions::new(), url, true).is_ok(), "{url}");
    }
}
