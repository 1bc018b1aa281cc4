//! Runs inside a container that has no network, beside a Cargo's program: takes connections on the container's own loopback and
//! carries each to the Unix socket of the Island's agent, where a proxy decides what becomes of it. It decides nothing itself, so
//! it does not matter that the program may speak to the socket directly, or end this one.
//!
//! `island-forwarder SOCKET PORT` prints `ready` on standard output once it listens.

use std::{
    env,
    io::{self, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Connections carried at once; the agent takes fewer. Each has two threads, which count as the container's.
const MOST: usize = 64;
/// Stack of a thread that only copies.
const STACK: usize = 64 << 10;
/// Delay before the next try after a connection cannot be accepted, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let socket = arguments.next().map(PathBuf::from);
    let port = arguments.next().and_then(|port| port.to_str()?.parse().ok());
    let (Some(socket), Some(port)) = (socket, port) else {
        return refuse("usage: island-forwarder SOCKET PORT");
    };
    match listen(port) {
        Ok(listener) => serve(&listener, &Arc::from(socket)),
        Err(error) => refuse(&format!("listen on port {port} of the loopback: {error}")),
    }
}

fn refuse(why: &str) -> ExitCode {
    // Nobody may be reading.
    let _ = writeln!(io::stderr(), "{why}");
    ExitCode::FAILURE
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let mut output = io::stdout();
    output.write_all(b"ready\n")?;
    output.flush()?;
    Ok(listener)
}

fn serve(listener: &TcpListener, socket: &Arc<Path>) -> ! {
    let carried = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((inside, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        if carried.fetch_add(1, Ordering::Relaxed) >= MOST {
            carried.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (socket, counted) = (Arc::clone(socket), Counted(Arc::clone(&carried)));
        // A connection that gets no thread is closed, like one that the agent does not take.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
            let _ = carry(&inside, &socket);
            drop(counted);
        });
    }
}

/// Copies both ways until both sides have ended.
fn carry(inside: &TcpStream, socket: &Path) -> io::Result<()> {
    let outside = UnixStream::connect(socket)?;
    let (from, to) = (inside.try_clone()?, outside.try_clone()?);
    let there = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = io::copy(&mut &from, &mut &to);
        let _ = to.shutdown(Shutdown::Write);
        // A side that can no longer be written to need not be read.
        let _ = from.shutdown(Shutdown::Read);
    })?;
    let _ = io::copy(&mut &outside, &mut &*inside);
    let _ = inside.shutdown(Shutdown::Write);
    let _ = outside.shutdown(Shutdown::Read);
    let _ = there.join();
    Ok(())
}

/// One connection less when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
