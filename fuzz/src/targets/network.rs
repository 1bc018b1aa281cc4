//! Connections of containers to the outside, and answers of file servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use island_cache::head;
use island_runtimes_api::JobLog;
use island_runtimes_egress::{Bounds, Gate, gate::SOCKET_FILE, testing::Town};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
    runtime::Builder,
};

use super::{file, folder};
use crate::corpus::parts;

/// The head of a file server's answer: its status, and its fields, one a line. What no answer may have as an effect is asserted where it is
/// read.
pub(super) fn answer(input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.next().unwrap_or_default();
    let status =
        first.split(|byte| *byte == b' ').nth(1).and_then(|word| str::from_utf8(word).ok()?.parse().ok());
    let Some(status) = status else { return false };
    let field = |line: &'_ [u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((line[..colon].to_vec(), line[colon + 1..].trim_ascii().to_vec()))
    };
    let fields: Vec<(Vec<u8>, Vec<u8>)> =
        lines.take_while(|line| !line.is_empty()).filter_map(field).collect();
    let fields: Vec<(&[u8], &[u8])> =
        fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
    head::read(status, &fields)
}

/// What a program sends to the proxy, and what the outside answers. A plain request that is forwarded has one field `Host`, with the
/// declared address, and no field for the proxy.
pub(super) fn egress(input: &[u8]) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().expect("create a runtime");
    runtime.block_on(connection(parts(input)))
}

async fn connection([request, answer]: [&[u8]; 2]) -> bool {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let town = Town::default();
    town.name("shop.example", &[&[address]]);
    town.publish(address);
    let places = ["shop.example:80", "shop.example:443"].map(|place| place.parse().expect("an address"));
    let inside = folder().join(format!("gate-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    let bounds = Bounds { bytes: 1 << 20, idle: Duration::from_secs(5), ..Bounds::default() };
    let forwarder = file("forwarder", b"");
    let gate = Gate::open(inside, &forwarder, places.into(), Arc::new(town), bounds, JobLog::default());
    let mut gate = gate.expect("open the gate");
    let mut program = UnixStream::connect(gate.folder().join(SOCKET_FILE)).await.expect("connect");
    let outside = async {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let (mut reader, mut writer) = stream.split();
        let mut received = Vec::new();
        let answering = async {
            // The other side may have ended the connection before.
            let _ = writer.write_all(answer).await;
            let _ = writer.shutdown().await;
        };
        let ((), _) = tokio::join!(answering, reader.read_to_end(&mut received));
        received
    };
    let inside = async {
        let (mut reader, mut writer) = program.split();
        let mut received = Vec::new();
        let sending = async {
            let _ = writer.write_all(request).await;
            let _ = writer.shutdown().await;
        };
        let ((), _) = tokio::join!(sending, reader.read_to_end(&mut received));
    };
    tokio::pin!(outside, inside);
    let mut forwarded = None;
    tokio::select! {
        biased;
        never = gate.serve() => match never {},
        received = &mut outside => {
            forwarded = Some(received);
            // The rest of the answer.
            tokio::select! { never = gate.serve() => match never {}, () = inside => {} }
        }
        () = &mut inside => {}
    }
    let Some(received) = forwarded.filter(|_| !request.starts_with(b"CONNECT")) else {
        return request.starts_with(b"CONNECT");
    };
    check(&received);
    true
}

fn check(received: &[u8]) {
    let text = String::from_utf8_lossy(received);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return };
    let fields: Vec<String> = head.lines().skip(1).map(str::to_ascii_lowercase).collect();
    let hosts: Vec<&String> = fields.iter().filter(|field| field.starts_with("host:")).collect();
    assert!(matches!(hosts.as_slice(), [host] if host.starts_with("host: shop.example")), "{head}");
    let of_the_proxy = ["proxy-authorization:", "proxy-connection:", "proxy-authenticate:"];
    assert!(!fields.iter().any(|field| of_the_proxy.iter().any(|name| field.starts_with(name))), "{head}");
}
