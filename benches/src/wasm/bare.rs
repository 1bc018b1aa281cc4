//! The floor: the linked program, started in a loop on as many threads as there are jobs at once, with the engine's own settings and
//! nothing around it: no deadline, no limits but the pool's, its output into memory.

use std::{thread, time::Instant};

use anyhow::Result;
use island_runtimes_wasm::engine::Engines;
use wasmtime::{InstancePre, Linker, Module, Store};
use wasmtime_wasi::{
    WasiCtxBuilder,
    p1::{self, WasiP1Ctx},
    p2::pipe::{MemoryInputPipe, MemoryOutputPipe},
};

use super::{engine::micros, programs::Program};

/// A program that is linked.
pub(crate) struct Loop {
    engines: Engines,
    program: InstancePre<WasiP1Ctx>,
    _ticker: Ticker,
}

/// Compiled code looks at the epoch; it must move here as it does in the engine.
struct Ticker {
    stop: std::sync::mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ticker {
    fn start(engines: Engines) -> Self {
        let (stop, stopped) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(std::time::Duration::from_millis(2))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                engines.tick();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Loop {
    #[expect(unsafe_code, reason = "compiled code is trusted by its loader")]
    pub(crate) fn new(program: &Program, parallel: usize) -> Result<Self> {
        let engines = Engines::new(parallel as u32)?;
        let mut linker = Linker::new(engines.get(false));
        p1::add_to_linker_async(&mut linker, |wasi: &mut WasiP1Ctx| wasi)?;
        // SAFETY: this program compiled the file itself, a moment ago.
        let module = unsafe { Module::deserialize_file(engines.get(false), &program.compiled)? };
        let ticker = Ticker::start(engines.clone());
        Ok(Self { program: linker.instantiate_pre(&module)?, engines, _ticker: ticker })
    }

    /// Microseconds a job, of `jobs` of which `parallel` run at once.
    pub(crate) fn round(&self, program: &Program, parallel: usize, jobs: usize) -> Result<f64> {
        let start = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..parallel)
                .map(|_| scope.spawn(|| (0..jobs / parallel).try_for_each(|_| self.once(program))))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a loop does not panic"))
        })?;
        Ok(micros(start.elapsed(), jobs / parallel * parallel))
    }

    fn once(&self, program: &Program) -> Result<()> {
        let stdout = MemoryOutputPipe::new(1 << 20);
        let wasi = WasiCtxBuilder::new()
            .stdin(MemoryInputPipe::new(program.input.to_string()))
            .stdout(stdout.clone())
            .build_p1();
        let mut store = Store::new(self.engines.get(false), wasi);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        futures::executor::block_on(async {
            let instance = self.program.instantiate_async(&mut store).await?;
            instance.get_typed_func::<(), ()>(&mut store, "_start")?.call_async(&mut store, ()).await
        })?;
        anyhow::ensure!(!stdout.contents().is_empty(), "no output");
        Ok(())
    }
}
