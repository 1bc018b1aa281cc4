//! The readers, in groups.

mod archives;
mod media;
mod messages;
mod models;
mod network;
mod texts;

use std::{
    cell::{Cell, OnceCell},
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{Form, Target, corpus::Files};

/// All targets.
pub const ALL: &[Target] = &[
    Target { inputs: 400_000, ..plain("frames", messages::frames) },
    Target { inputs: 30_000, ..plain("lines", messages::lines) },
    Target { inputs: 15_000, ..plain("spool", messages::spool) },
    Target { inputs: 12_000, ..plain("journal", messages::journal) },
    Target { inputs: 400_000, ..plain("gguf", models::gguf) },
    Target {
        inputs: 15_000,
        files: &[
            Files { folder: "runtimes/coreml/tests/fixtures", end: ".safetensors", beside: &[] },
            Files { folder: "runtimes/diffusers/tests/fixtures", end: ".safetensors", beside: &[] },
        ],
        ..plain("safetensors", models::safetensors)
    },
    Target {
        form: Form::Protobuf,
        inputs: 60_000,
        files: &[Files { folder: "runtimes/onnx/tests/fixtures", end: ".onnx", beside: &[] }],
        ..plain("onnx", models::onnx)
    },
    Target {
        form: Form::Protobuf,
        inputs: 4_000,
        files: &[Files {
            folder: "runtimes/coreml/tests/fixtures",
            end: "model.mlmodel",
            beside: &["weights/weight.bin"],
        }],
        ..plain("coreml_package", models::coreml_package)
    },
    Target {
        inputs: 6_000,
        files: &[
            Files { folder: "runtimes/coreml/tests/fixtures", end: ".mil", beside: &[] },
            Files {
                folder: "runtimes/coreml/tests/published",
                end: "model.mil",
                beside: &["weights/weight.bin", "metadata.json"],
            },
        ],
        ..plain("coreml_compiled", models::coreml_compiled)
    },
    Target {
        inputs: 8_000,
        files: &[Files {
            folder: "runtimes/onnx/tests/fixtures",
            end: "tokenizer.json",
            beside: &["tokenizer_config.json", "config.json"],
        }],
        ..plain("tokenizer", texts::tokenizer)
    },
    Target {
        form: Form::Protobuf,
        inputs: 10_000,
        files: &[Files {
            folder: "runtimes/onnx/tests/fixtures",
            end: "spm_char.model",
            beside: &["tokenizer_config.json"],
        }],
        ..plain("characters", texts::characters)
    },
    Target {
        inputs: 10_000,
        files: &[Files {
            folder: "runtimes/diffusers/tests/fixtures",
            end: "vocab.json",
            beside: &["merges.txt", "tokenizer_config.json"],
        }],
        ..plain("clip_tokenizer", texts::clip_tokenizer)
    },
    Target { inputs: 200_000, ..plain("program", models::program) },
    Target {
        inputs: 8_000,
        files: &[
            Files { folder: "runtimes/onnx/tests/fixtures/detr", end: ".png", beside: &[] },
            Files { folder: "runtimes/onnx/tests/fixtures/pp-ocr", end: ".png", beside: &[] },
        ],
        ..plain("picture", media::picture)
    },
    Target {
        inputs: 4_000,
        files: &[
            Files { folder: "runtimes/onnx/tests/fixtures/audio-decoding", end: ".wav", beside: &[] },
            Files { folder: "runtimes/onnx/tests/fixtures/audio-decoding", end: ".mp3", beside: &[] },
            Files { folder: "runtimes/onnx/tests/fixtures/audio-decoding", end: ".flac", beside: &[] },
        ],
        ..plain("sound", media::sound)
    },
    Target { form: Form::Tar, inputs: 10_000, ..plain("image", archives::image) },
    Target { inputs: 200_000, ..plain("names", archives::names) },
    Target { inputs: 40_000, ..plain("template", texts::template) },
    Target { inputs: 40_000, ..plain("schema", texts::schema) },
    Target { inputs: 6_000, ..plain("egress", network::egress) },
    Target { inputs: 100_000, ..plain("answer", network::answer) },
    Target { inputs: 40_000, ..plain("update", messages::update) },
];

const fn plain(name: &'static str, read: fn(&[u8]) -> bool) -> Target {
    Target { name, form: Form::Plain, files: &[], inputs: 0, read }
}

thread_local! {
    static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Writes a file of an input into a folder of this thread.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, bytes).expect("write an input");
    path
}

fn folder() -> PathBuf {
    FOLDER
        .with(|folder| folder.get_or_init(|| tempfile::tempdir().expect("create a folder")).path().to_owned())
}

/// An empty folder, without what an earlier input left in it.
fn empty_folder(name: &str) -> PathBuf {
    let path = folder().join(name);
    remove(&path);
    fs::create_dir(&path).expect("create a folder");
    path
}

fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            panic!("remove {}: {error}", path.display())
        }
        _ => {}
    }
}
