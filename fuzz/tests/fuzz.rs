//! Every target: its seeds, and its changed inputs. `ISLAND_FUZZ_SECONDS` is the processor time of each, as `make fuzz`
//! sets it.

use std::{env, path::Path, time::Duration};

use island_fuzz::{Target, targets};

#[expect(clippy::print_stdout, reason = "the figures of a run, which the harness shows with --nocapture")]
fn run(target: &Target) {
    let seconds = env::var("ISLAND_FUZZ_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let counts = target.run(&folder, seconds.map(Duration::from_secs));
    println!(
        "{}: {} inputs, {} accepted, at most {} KiB",
        target.name,
        counts.inputs,
        counts.accepted,
        counts.bytes >> 10
    );
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let target = targets::ALL.iter().find(|target| target.name == stringify!($name));
                run(target.expect("a target of this name"));
            }
        )*

        #[test]
        fn every_target_is_run() {
            let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets!(
    frames,
    lines,
    spool,
    journal,
    gguf,
    safetensors,
    onnx,
    coreml_package,
    coreml_compiled,
    tokenizer,
    characters,
    clip_tokenizer,
    program,
    picture,
    sound,
    image,
    names,
    template,
    schema,
    egress,
    answer,
    update,
);
