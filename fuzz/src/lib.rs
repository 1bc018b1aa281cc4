//! Fuzzing of the readers of untrusted input (docs/decisions/0074).
//!
//! A [`Target`] passes bytes to one reader. A reader may refuse them, but must not panic, abort or allocate more than [`MAX_BYTES`]; what
//! a target asserts beyond that is in its documentation. Inputs are the seeds of a target, and seeds changed at random, always in the
//! same order, so that a failure in one run is a failure in every run.
//!
//! | module | content |
//! | --- | --- |
//! | [`allocation`] | the memory that a thread has allocated |
//! | [`corpus`] | seeds |
//! | [`edits`], [`protobuf`] | changes of an input: of bytes and text, and of messages |
//! | [`targets`] | the readers |

pub mod allocation;
pub mod corpus;
pub mod edits;
pub mod protobuf;
pub mod targets;

use std::{
    cell::RefCell,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    sync::Once,
    time::Duration,
};

use corpus::{Files, Seed};
use edits::Editor;
use rustix::time::{ClockId, clock_gettime};

/// Maximum bytes that a reader may allocate for an input of at most [`MAX_INPUT`] bytes.
pub const MAX_BYTES: usize = 256 << 20;
/// Maximum bytes of an input: longer ones find little more and cost time.
pub const MAX_INPUT: usize = 64 << 10;
/// Separates the files of an input that consists of several.
pub const SEPARATOR: &[u8] = b"\n%%%%\n";

/// The structure of inputs, which edits keep in part: most inputs with arbitrary changes are refused at their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Bytes or text.
    Plain,
    /// Messages with lengths, in the first file of an input.
    Protobuf,
    /// Headers with checksums.
    Tar,
}

/// One reader.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `corpus`.
    pub name: &'static str,
    /// The structure of its inputs.
    pub form: Form,
    /// Fixtures of other crates that are seeds, too.
    pub files: &'static [Files],
    /// Number of changed inputs in a run of all tests.
    pub inputs: u64,
    /// Reads an input. Returns whether it was accepted.
    pub read: fn(&[u8]) -> bool,
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inputs that were read.
    pub inputs: u64,
    /// Inputs that were accepted.
    pub accepted: u64,
    /// Maximum bytes that were allocated for one input.
    pub bytes: usize,
}

impl Target {
    /// Reads all seeds, and then changed ones: [`Target::inputs`], or as many as the processor time of this thread allows. An input that
    /// fails remains in `folder`.
    pub fn run(&self, folder: &Path, time: Option<Duration>) -> Counts {
        keep_messages();
        let seeds = corpus::seeds(self);
        assert!(!seeds.is_empty(), "{} has no seed", self.name);
        let mut run = Run { target: self, last: Last::create(folder, self.name), counts: Counts::default() };
        for Seed { name, bytes, is_valid } in &seeds {
            let accepted = run.read(bytes);
            assert!(accepted || !is_valid, "{name} is refused");
        }
        let end = time.map(|time| thread_time() + time);
        let known: Vec<Seed> = seeds.into_iter().filter(|seed| !seed.name.starts_with("crash-")).collect();
        let mut editor = Editor::new(self, &known);
        while end.map_or(run.counts.inputs < self.inputs, |end| thread_time() < end) {
            run.read(&editor.input());
        }
        run.counts
    }
}

/// Processor time of this thread. A run does as much beside other work as alone.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a positive time")
}

thread_local! {
    /// The message of the last panic in a reader. `None` outside of readers.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of panics in readers instead of printing them: a reader may catch those of a library, by the thousand.
fn keep_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let kept = MESSAGE
                .try_with(|message| message.borrow_mut().as_mut().map(|kept| *kept = panic.to_string()));
            if !matches!(kept, Ok(Some(()))) {
                print(panic);
            }
        }));
    });
}

struct Run<'t> {
    target: &'t Target,
    last: Last,
    counts: Counts,
}

impl Run<'_> {
    fn read(&mut self, input: &[u8]) -> bool {
        self.last.write(input);
        MESSAGE.set(Some(String::new()));
        let (result, bytes) =
            allocation::most(|| catch_unwind(AssertUnwindSafe(|| (self.target.read)(input))));
        let message = MESSAGE.take();
        let accepted = result.unwrap_or_else(|panic| {
            self.last.report(&message.unwrap_or_default());
            resume_unwind(panic)
        });
        if bytes > MAX_BYTES {
            self.last.report(&format!("{bytes} bytes were allocated for {} bytes of input", input.len()));
            panic!("too much was allocated");
        }
        self.counts.inputs += 1;
        self.counts.accepted += u64::from(accepted);
        self.counts.bytes = self.counts.bytes.max(bytes);
        accepted
    }
}

/// The last input, in a file: a process that aborts cannot report it.
struct Last {
    path: PathBuf,
    file: File,
}

impl Last {
    fn create(folder: &Path, name: &str) -> Self {
        fs::create_dir_all(folder).expect("create the folder of inputs");
        let path = folder.join(name);
        let file = File::create(&path).expect("create the file of an input");
        Self { path, file }
    }

    fn write(&self, input: &[u8]) {
        let written = self.file.set_len(input.len() as u64).and_then(|()| self.file.write_all_at(input, 0));
        written.expect("write an input");
    }

    fn report(&self, message: &str) {
        eprintln!("{message}\nthe input is in {}", self.path.display());
    }
}
