//! Attempts of programs to connect elsewhere.

use std::net::{IpAddr, SocketAddr};

use island_runtimes_egress::Bounds;

use crate::support::{World, accept, head, listener, place, rest, untouched};

#[tokio::test]
async fn undeclared_names_are_neither_resolved_nor_connected_to() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let port = server.local_addr().expect("an address").port();
    let other = port ^ 1;
    for (target, status) in [
        (format!("other.test:{port}"), 403),
        (format!("good.test:{other}"), 403),
        (format!("sub.good.test:{port}"), 403),
        (format!("good.test.evil.test:{port}"), 403),
        (format!("127.0.0.1:{port}"), 400),
        (format!("127.1:{port}"), 400),
        (format!("0x7f.1:{port}"), 400),
        (format!("0x7f000001:{port}"), 400),
        (format!("2130706433:{port}"), 400),
        (format!("0177.0.0.1:{port}"), 400),
        (format!("[::1]:{port}"), 400),
        (format!("[::ffff:127.0.0.1]:{port}"), 400),
        (format!("[::ffff:7f00:1]:{port}"), 400),
        (format!("localhost:{port}"), 400),
        (format!("good.test@127.0.0.1:{port}"), 400),
        (format!("127.0.0.1@good.test:{port}"), 400),
        ("169.254.169.254:80".to_owned(), 400),
        ("127.0.0.1:3128".to_owned(), 400),
    ] {
        for request in [
            format!("CONNECT {target} HTTP/1.1\r\nHost: {}\r\n\r\n", place(&server)),
            format!("GET http://{target}/ HTTP/1.1\r\nHost: {}\r\n\r\n", place(&server)),
        ] {
            let got = world.status(&request).await;
            // HTTP's parser rejects some of these.
            assert!(got == status || (status == 400 && got == 0), "{request}: {got}");
        }
    }
    assert_eq!(world.town.queried(), Vec::<String>::new());
    untouched(&server);
}

#[tokio::test]
async fn a_declared_name_with_a_forbidden_address_is_refused() {
    for address in [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "192.0.2.1",
        "168.63.129.16",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
    ] {
        let server = listener().await;
        let port = server.local_addr().expect("an address").port();
        let ip: IpAddr = address.parse().expect("an address");
        // Another port than the one that counts as public here, because the server listens on the first of them.
        let world = World::new(&server, &[&[SocketAddr::new(ip, port ^ 1)]], Bounds::default());
        for request in [
            format!("CONNECT bad.test:{port} HTTP/1.1\r\n\r\n"),
            format!("GET http://bad.test:{port}/ HTTP/1.1\r\n\r\n"),
        ] {
            let answer = world.send(&request).await;
            assert!(answer.starts_with("HTTP/1.1 403") && !answer.contains(address), "{address}: {answer}");
        }
        world.logged("refused: bad.test").await;
        untouched(&server);
    }
}

#[tokio::test]
async fn the_checked_address_is_the_one_that_is_connected_to() {
    let server = listener().await;
    let near = listener().await;
    let (good, bad) = (server.local_addr().expect("an address"), near.local_addr().expect("an address"));
    // Public when it is checked, and this machine for every later query.
    let world = World::new(&server, &[&[good], &[bad]], Bounds::default());
    let request = format!("GET http://bad.test:{}/ HTTP/1.1\r\n\r\n", good.port());
    let serve = async {
        let mut stream = accept(&server).await;
        head(&mut stream).await;
    };
    tokio::join!(world.send(&request), serve);
    assert_eq!(world.town.queried(), ["bad.test"], "resolved once");
    assert_eq!(world.status(&request).await, 403, "and once more for the next connection");
    // Of several addresses, forbidden ones are skipped.
    world.town.name("bad.test", &[&[bad, good]]);
    let serve = async {
        let mut stream = accept(&server).await;
        head(&mut stream).await;
    };
    tokio::join!(world.send(&request), serve);
    untouched(&near);
}

#[tokio::test]
async fn unresolvable_names_and_closed_ports_are_bad_gateways() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let (place, port) = (place(&server), server.local_addr().expect("an address").port());
    drop(server);
    for target in [format!("lost.test:{port}"), format!("bad.test:{port}"), place] {
        assert_eq!(world.status(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).await, 502, "{target}");
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let place = place(&server);
    let long = "x".repeat(40_000);
    let many = "X: y\r\n".repeat(1000);
    for request in [
        format!("CONNECT {place}\r\nHost: evil.test HTTP/1.1\r\n\r\n"),
        format!("CONNECT {place}\rX HTTP/1.1\r\n\r\n"),
        format!("CONNECT {place}\0.evil.test HTTP/1.1\r\n\r\n"),
        format!("CONNECT {place} HTTP/1.1\r\nX: a\r\n b\r\n\r\n"),
        format!("CONNECT {place} HTTP/1.1\r\nX : a\r\n\r\n"),
        format!("CONNECT {place} HTTP/3.7\r\n\r\n"),
        format!("CONNECT {place} HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("CONNECT {place} HTTP/1.1\r\n{many}\r\n"),
        format!("GET http://{place}/{long} HTTP/1.1\r\n\r\n"),
        format!("GET http://{place}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        format!("GET http://{place}/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        format!("GET http://{place}/ HTTP/1.1\r\nTransfer-Encoding: xyz\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{5}\u{1}\0".to_owned(),
        "\r\n".repeat(20_000),
    ] {
        let mut stream = world.connect().await;
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
        let answer = rest(&mut stream).await;
        let beginning: String = request.chars().take(80).collect();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{beginning:?}: {answer}");
        untouched(&server);
    }
}

#[tokio::test]
async fn one_request_is_one_request() {
    let server = listener().await;
    let world = World::new(&server, &[&[]], Bounds::default());
    let place = place(&server);
    // Two lengths: a parser that uses the first one sees a second request.
    let request = format!(
        "POST http://{place}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET http://{place}/second HTTP/1.1\r\n\r\n"
    );
    let serve = async {
        let mut stream = accept(&server).await;
        let seen = head(&mut stream).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .expect("answered");
        seen + &rest(&mut stream).await
    };
    let (answer, seen) = tokio::join!(world.send(&request), serve);
    if !answer.starts_with("HTTP/1.1 4") {
        assert!(!seen.contains("second") && seen.matches("HTTP/1.1").count() == 1, "{seen}");
    }
    untouched(&server);
}
