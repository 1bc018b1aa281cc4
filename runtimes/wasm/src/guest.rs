//! What a running program has: standard streams, clocks, random numbers and limits. No files, no network, no environment, no arguments: the
//! functions of WASI exist and find nothing.

use bytes::Bytes;
use island_runtimes_api::JobLog;
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtxBuilder, WasiCtxView, WasiView, p1::WasiP1Ctx, p2::pipe::MemoryInputPipe};

use crate::{
    limits::Limits,
    metered::{self, Still},
    stdio::{Stdout, Stream},
};

/// Maximum random bytes of one call, which cannot be interrupted.
const MAX_RANDOM_BYTES: u64 = 1 << 20;
/// Maximum bytes that one call passes to the host.
const MAX_CALL_BYTES: usize = 32 << 20;
/// Maximum number of streams, subscriptions and similar objects of a program; they use the host's memory.
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

/// What one program is given.
pub(crate) struct Means {
    pub(crate) input: Bytes,
    pub(crate) stdout: Stdout,
    pub(crate) log: JobLog,
    pub(crate) memory_bytes: usize,
    pub(crate) metered: bool,
}

impl Means {
    /// Creates a store for one program of `engine`. The program yields at each tick.
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
