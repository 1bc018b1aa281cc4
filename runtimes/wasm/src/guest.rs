//! What a running program has: its standard streams, its clocks and chance, and its limits. No files, no network, no environment, no
//! arguments: of WASI it sees the functions, and they find nothing.

use bytes::Bytes;
use island_runtimes_api::JobLog;
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtxBuilder, WasiCtxView, WasiView, p1::WasiP1Ctx, p2::pipe::MemoryInputPipe};

use crate::{
    limits::Limits,
    metered::{self, Still},
    stdio::{Stdout, Stream},
};

/// Most random bytes of one call, which nothing can interrupt.
const MAX_RANDOM_BYTES: u64 = 1 << 20;
/// Most bytes that one call hands over to the host.
const MAX_CALL_BYTES: usize = 32 << 20;
/// Streams, subscriptions and the like that a program holds at once; they take the host's memory.
const MAX_RESOURCES: usize = 10_000;

/// The host's side of one running program.
pub(crate) struct Guest {
    /// Serves both kinds of programs: the context of preview 1 wraps that of preview 2.
    pub(crate) wasi: WasiP1Ctx,
    limits: Limits,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// What one program gets.
pub(crate) struct Means {
    pub(crate) input: Bytes,
    pub(crate) stdout: Stdout,
    pub(crate) log: JobLog,
    pub(crate) memory_bytes: usize,
    pub(crate) metered: bool,
}

impl Means {
    /// A store for one program of `engine`. It gives way at each tick.
    pub(crate) fn store(self, engine: &Engine) -> Store<Guest> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.allow_tcp(false).allow_udp(false).max_random_size(MAX_RANDOM_BYTES);
        if self.metered {
            let (secure, insecure, seed) = metered::chance(&self.input);
            wasi.secure_random(secure).insecure_random(insecure).insecure_random_seed(seed);
            wasi.wall_clock(Still::default()).monotonic_clock(Still::default());
        }
        wasi.stdin(MemoryInputPipe::new(self.input)).stdout(Stream(self.stdout)).stderr(Stream(self.log));
        let mut guest = Guest { wasi: wasi.build_p1(), limits: Limits::new(self.memory_bytes) };
        guest.ctx().table.set_max_capacity(MAX_RESOURCES);
        let mut store = Store::new(engine, guest);
        store.limiter(|guest| &mut guest.limits);
        store.set_hostcall_fuel(MAX_CALL_BYTES);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }
}
