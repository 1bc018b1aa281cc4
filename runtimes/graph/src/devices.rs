//! Execution providers: the CPU always, and those that the library was built with.

use island_protocol::host::Device;
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

/// The devices that the library supports.
pub fn devices() -> Vec<Device> {
    let known = [
        (has::<CUDA>(), "cuda"),
        (has::<MIGraphX>(), "migraphx"),
        (has::<ROCm>(), "rocm"),
        (has::<DirectML>(), "directml"),
        (has::<CoreML>(), "coreml"),
        (has::<OpenVINO>(), "openvino"),
    ];
    let named = |api: &str| Device { api: api.to_owned(), name: api.to_owned(), ..Device::default() };
    let others = known.into_iter().filter(|(is_there, _)| *is_there).map(|(_, api)| named(api));
    others.chain([Device::cpu()]).collect()
}

fn has<P: ExecutionProvider>() -> bool {
    P::is_available().unwrap_or(false)
}
