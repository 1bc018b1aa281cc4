//! Programs for tests, written as text, and what is needed to run one.

pub(crate) mod play;

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId},
};
use island_runtimes_api::RunRequest;
use island_runtimes_wasm::compile::compile;
use serde_json::{Value, json};

/// Functions of WASI that the programs call, and three of their own: `$emit` writes, `$read` reads all input, `$input` writes it.
const PRELUDE: &str = r#"
    (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "sock_accept" (func $sock_accept (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 8)
    (func $emit (param $at i32) (param $size i32)
        (call $write (i32.const 1) (local.get $at) (local.get $size)))
    (func $write (param $to i32) (param $at i32) (param $size i32)
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (local.get $size))
        (if (call $fd_write (local.get $to) (i32.const 0) (i32.const 1) (i32.const 8)) (then (unreachable))))
    (global $size (mut i32) (i32.const 0))
    (func $read
        (loop $more
            (i32.store (i32.const 0) (i32.add (i32.const 65536) (global.get $size)))
            (i32.store (i32.const 4) (i32.const 65536))
            (if (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then (unreachable)))
            (global.set $size (i32.add (global.get $size) (i32.load (i32.const 8))))
            (br_if $more (i32.load (i32.const 8)))))
    (func $input (call $emit (i32.const 65536) (global.get $size)))
    (func $spin (loop $again (br $again)))
"#;

/// A program under construction.
#[derive(Default)]
pub(crate) struct Script {
    data: String,
    next: usize,
}

impl Script {
    /// A call that writes `text` to standard output.
    pub(crate) fn emit(&mut self, text: &str) -> String {
        let at = self.place(text.as_bytes());
        format!("(call $emit (i32.const {at}) (i32.const {}))", text.len())
    }

    /// A call that writes `bytes` to standard output or standard error.
    pub(crate) fn write(&mut self, to: u32, bytes: &[u8]) -> String {
        let at = self.place(bytes);
        format!("(call $write (i32.const {to}) (i32.const {at}) (i32.const {}))", bytes.len())
    }

    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = 1024 + self.next;
        self.next += bytes.len();
        let mut text = String::new();
        for byte in bytes {
            write!(text, "\\{byte:02x}").expect("a string takes all");
        }
        write!(self.data, "(data (i32.const {at}) \"{text}\")").expect("a string takes all");
        at
    }

    /// The module with body `body`. `more` is placed beside its functions.
    pub(crate) fn module(&self, more: &str, body: &str) -> Vec<u8> {
        let text = format!(
            "(module {PRELUDE} {} {more} (func (export \"_start\") (local $n i32) {body}))",
            self.data
        );
        wat::parse_str(text).expect("a sound program")
    }
}

/// A module with body `body`.
pub(crate) fn module(body: &str) -> Vec<u8> {
    Script::default().module("", body)
}

/// Writes its input, a JSON string, as a token and as its result; for a list it writes one token and continues; other input is an error.
pub(crate) fn echo() -> Vec<u8> {
    let mut script = Script::default();
    let (open, close) = (script.emit(r#"{"type":"token","content":"#), script.emit("}\n"));
    let (result, end) = (script.emit(r#"{"type":"result","output":"#), script.emit("}\n"));
    let long = script.emit("{\"type\":\"token\",\"content\":\"on and on\"}\n");
    let wrong =
        script.emit("{\"type\":\"error\",\"message\":\"a text is wanted\",\"code\":\"invalid_input\"}\n");
    script.module(
        "",
        &format!(
            r"(call $read)
            (local.set $n (i32.load8_u (i32.const 65536)))
            (if (i32.eq (local.get $n) (i32.const 0x22)) (then {open} (call $input) {close} {result} (call $input) {end} (return)))
            (if (i32.eq (local.get $n) (i32.const 0x5b)) (then {long} (call $spin)))
            {wrong}"
        ),
    )
}

/// The same program as a component.
pub(crate) fn component(module: &[u8]) -> Vec<u8> {
    use wasi_preview1_component_adapter_provider::{
        WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as ADAPTER,
    };
    wit_component::ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.adapter(NAME, ADAPTER))
        .and_then(|mut encoder| encoder.encode())
        .expect("a sound component")
}

/// A Cargo with a short deadline.
pub(crate) fn cargo(fields: &Value) -> CargoSpec {
    let mut cargo = json!({
        "slug": "wasm-test", "runtime_type": "wasm", "required_ram_mb": 16, "limits": {"timeout_s": 60, "max_output_bytes": 1 << 20},
    });
    let all = cargo.as_object_mut().expect("an object");
    all.extend(fields.as_object().cloned().unwrap_or_default());
    serde_json::from_value(cargo).expect("a Cargo")
}

/// Compiles `program` for `cargo` and returns what a job of it needs.
pub(crate) fn request(dir: &Path, program: &[u8], cargo: CargoSpec, input: Value) -> RunRequest {
    let (source, compiled) = (dir.join("program.wasm"), dir.join("program.compiled"));
    fs::write(&source, program).expect("write");
    let metered = island_runtimes_wasm::runtime::is_metered(&cargo);
    compile(&source, &compiled, metered).expect("it compiles");
    let artifacts = BTreeMap::from([("model".to_owned(), compiled)]);
    RunRequest {
        cargo,
        input,
        artifacts,
        continues: None,
        continues_reasoning: None,
        scope: "test".to_owned(),
    }
}

/// An attempt at a new job.
pub(crate) fn attempt() -> AttemptKey {
    AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 }
}
