//! Limits of the proxy.

use std::time::Duration;

use island_runtimes_egress::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{World, accept, listener, place, rest, within};

#[tokio::test]
async fn endless_bodies_end_both_ways() {
    for upwards in [true, false] {
        let server = listener().await;
        let world = World::new(&server, &[&[]], Bounds { bytes: 1 << 20, ..Bounds::default() });
        let inside = world.tunnel(&place(&server)).await;
        let outside = accept(&server).await;
        let (mut from, mut to): (Box<dyn Way>, Box<dyn Way>) = if upwards {
            (Box::new(inside), Box::new(outside))
        } else {
            (Box::new(outside), Box::new(inside))
        };
        let flood = async {
            let piece = vec![0; 32 << 10];
            while from.write_all(&piece).await.is_ok() {}
        };
        let drain = async {
            let (mut into, mut total) = (vec![0; 64 << 10], 0);
            while let Ok(bytes @ 1..) = to.read(&mut into).await {
                total += bytes;
            }
            total
        };
        let ((), total) = within(async { tokio::join!(flood, drain) }).await;
        assert!((1 << 19..=(1 << 20) + (64 << 10)).contains(&total), "{total} bytes");
        world.logged("as many bytes as it may").await;
        let next = world.status(&format!("CONNECT {} HTTP/1.1\r\n\r\n", place(&server))).await;
        assert_eq!(next, 503, "nothing is left for the next connection");
    }
}

trait Way: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Way for T {}

#[tokio::test]
async fn an_incomplete_request_is_closed() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds { head: Duration::from_millis(50), ..Bounds::default() });
    for beginning in ["", "CONNECT", "GET http://good.test/ HTTP/1.1\r\nX: "] {
        let mut slow = world.connect().await;
        slow.write_all(beginning.as_bytes()).await.expect("written");
        let answer = rest(&mut slow).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds { idle: Duration::from_millis(50), ..Bounds::default() });
    let mut inside = world.tunnel(&place(&server)).await;
    let mut outside = accept(&server).await;
    assert_eq!(rest(&mut inside).await, "");
    assert_eq!(rest(&mut outside).await, "");
    world.logged("no byte was sent or received").await;
}

#[tokio::test]
async fn connections_at_once_are_limited() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds { at_once: 2, ..Bounds::default() });
    let mut first = world.tunnel(&place(&server)).await;
    let _second = world.tunnel(&place(&server)).await;
    for _ in 0..5 {
        let mut third = world.connect().await;
        let answer = rest(&mut third).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("at once, or all\n"), "{answer}");
    }
    assert_eq!(world.log.text().matches("more than 2 connections").count(), 1, "logged once");
    // When one ends, the next is accepted.
    let mut outside = accept(&server).await;
    first.shutdown().await.expect("shut down");
    outside.shutdown().await.expect("shut down");
    world.logged("0 bytes sent").await;
    world.tunnel(&place(&server)).await;
}

#[tokio::test]
async fn connections_in_total_are_limited() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds { in_all: 3, ..Bounds::default() });
    let mut last = Vec::new();
    for _ in 0..3 {
        last.push(world.tunnel(&place(&server)).await);
    }
    world.logged("the last one allowed").await;
    let closed = async {
        while world.is_open().await {
            tokio::task::yield_now().await;
        }
    };
    within(closed).await;
    // Open connections continue.
    let mut outside = Vec::new();
    for _ in 0..3 {
        outside.push(accept(&server).await);
    }
    for (inside, outside) in last.iter_mut().zip(&mut outside) {
        inside.write_all(b"x").await.expect("sent");
        assert_eq!(within(outside.read_u8()).await.expect("arrived"), b'x');
    }
}
