//! Ordinary programs.

use island_runtimes_egress::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{World, accept, head, listener, place, rest, within};

#[tokio::test]
async fn a_plain_request_arrives_as_if_there_were_no_proxy() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let place = place(&server);
    let request = format!(
        "POST http://{place}/a?b=c HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: Basic eHl6\r\nProxy-Connection: keep-alive\r\n\
         Connection: X-Hop\r\nX-Hop: 1\r\nX-Kept: 1\r\nContent-Length: 5\r\n\r\nhello"
    );
    let serve = async {
        let mut stream = accept(&server).await;
        let seen = head(&mut stream).await;
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.expect("a body");
        stream
            .write_all(
                b"HTTP/1.1 201 Created\r\nX-Extra: yes\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nok",
            )
            .await
            .expect("answered");
        (seen, body)
    };
    let (answer, (seen, body)) = tokio::join!(world.send(&request), serve);
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\n"), "{seen}");
    let seen = seen.to_lowercase();
    assert!(seen.contains(&format!("\r\nhost: {place}\r\n")) && seen.contains("x-kept: 1"), "{seen}");
    assert!(!["proxy-", "x-hop", "other.test"].iter().any(|field| seen.contains(field)), "{seen}");
    assert_eq!(&body, b"hello");
    let answer = answer.to_lowercase();
    assert!(answer.starts_with("http/1.1 201") && answer.contains("x-extra: yes"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok") && !answer.contains("keep-alive"), "{answer}");
    world.logged(&format!("egress: POST {place}: connected to 127.0.0.1:")).await;
    assert!(!world.log.text().contains("b=c"), "paths and queries are not logged");
}

#[tokio::test]
async fn a_tunnel_transfers_both_directions_and_ends_each_separately() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let mut inside = world.tunnel(&place(&server)).await;
    let mut outside = accept(&server).await;
    inside.write_all(b"ping\0\xff").await.expect("sent");
    let mut got = [0; 6];
    outside.read_exact(&mut got).await.expect("arrived");
    assert_eq!(&got, b"ping\0\xff");
    // The program has written everything, and still reads.
    inside.shutdown().await.expect("shut down");
    assert_eq!(outside.read(&mut got).await.expect("the end"), 0);
    outside.write_all(b"pong").await.expect("sent");
    drop(outside);
    assert_eq!(rest(&mut inside).await, "pong");
    world.logged("6 bytes sent, 4 received").await;
}

#[tokio::test]
async fn a_body_is_streamed_with_backpressure() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let mut inside = world.connect().await;
    inside
        .write_all(format!("GET http://{}/ HTTP/1.1\r\n\r\n", place(&server)).as_bytes())
        .await
        .expect("written");
    let mut outside = accept(&server).await;
    head(&mut outside).await;
    outside.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nfirst").await.expect("sent");
    head(&mut inside).await;
    let mut first = [0; 5];
    within(inside.read_exact(&mut first)).await.expect("the beginning of an endless body");
    // Without a reader, writing stops after some buffers are full.
    let (piece, mut sent) = (vec![0; 64 << 10], 0_usize);
    while let Ok(Ok(bytes)) =
        tokio::time::timeout(std::time::Duration::from_millis(300), outside.write(&piece)).await
    {
        sent += bytes;
        assert!(sent < 64 << 20, "there is no backpressure");
    }
}

#[tokio::test]
async fn connections_end_with_the_job() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let mut inside = world.tunnel(&place(&server)).await;
    let mut outside = accept(&server).await;
    outside.write_all(b"x").await.expect("sent");
    assert_eq!(within(inside.read_u8()).await.expect("arrived"), b'x');
    let (folder, log) = world.end().await;
    assert_eq!(rest(&mut inside).await, "");
    assert_eq!(rest(&mut outside).await, "");
    assert!(!folder.path().join("g").exists(), "the folder is gone");
    assert!(log.text().contains("0 bytes sent, 1 received"), "{}", log.text());
}
