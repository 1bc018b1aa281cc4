//! Execution providers: the CPU always, and those that the library was built with.

use ort::ep::{
    CPU, CUDA, CoreML, DirectML, ExecutionProvider, ExecutionProviderDispatch, MIGraphX, OpenVINO, ROCm,
};

/// The providers of a session in order of preference. GPUs only where the owner lends memory of one.
pub fn providers(vram_limit_mb: u64) -> Vec<ExecutionProviderDispatch> {
    let mut chosen = Vec::new();
    if vram_limit_mb > 0 {
        let bytes = usize::try_from(vram_limit_mb << 20).unwrap_or(usize::MAX);
        if has::<CUDA>() {
            chosen.push(CUDA::default().with_memory_limit(bytes).build());
        }
        if has::<MIGraphX>() {
            chosen.push(MIGraphX::default().build());
        }
        if has::<ROCm>() {
            chosen.push(ROCm::default().with_mem_limit(bytes).build());
        }
        if has::<DirectML>() {
            chosen.push(DirectML::default().build());
        }
        if has::<CoreML>() {
            chosen.push(CoreML::default().build());
        }
    }
    if has::<OpenVINO>() {
        chosen.push(OpenVINO::default().build());
    }
    // The arena keeps the largest run's memory, and avoids the page faults of every node: a fifth of the time of Whisper's encoder. Runs
    // are bounded (`batch`), and an idle model is unloaded whole.
    chosen.push(CPU::default().with_arena_allocator(true).build());
    chosen
}

/// Names of the devices that the library supports.
pub fn names() -> Vec<String> {
    let known = [
        (has::<CUDA>(), "CUDA"),
        (has::<MIGraphX>(), "MIGraphX"),
        (has::<ROCm>(), "ROCm"),
        (has::<DirectML>(), "DirectML"),
        (has::<CoreML>(), "CoreML"),
        (has::<OpenVINO>(), "OpenVINO"),
        (true, "CPU"),
    ];
    known.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name.to_owned()).collect()
}

fn has<P: ExecutionProvider>() -> bool {
    P::is_available().unwrap_or(false)
}
