//! Compiled programs: mapped from their files, linked with WASI once, and kept.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use island_protocol::job::{Failure, FailureCode};
use parking_lot::{Mutex, MutexGuard};
use wasmtime::{
    Engine, InstancePre, Linker, Module, Precompiled, Result, Store,
    component::{self, Component},
};
use wasmtime_wasi::{p1, p2, p2::bindings::CommandPre};

use crate::{
    engine::Engines,
    guest::Guest,
    inspect::{Kind, PREVIEW_1},
    verdict::chain,
};

/// Number of programs that are kept mapped. They are files, so keeping one costs little more than its relocations.
const KEPT_PROGRAMS: usize = 64;

/// A run shorter than this is quick: transferring it to a thread and its outcome back would cost as much.
const QUICK: Duration = Duration::from_micros(500);

/// A linked program, and what is known of its runs.
pub(crate) struct Mapped {
    pub(crate) program: Program,
    quick: AtomicBool,
}

impl Mapped {
    /// Records how long a run took.
    pub(crate) fn note(&self, took: Duration) {
        self.quick.store(took < QUICK, Ordering::Relaxed);
    }

    /// Whether its last run was quick; that of another input may not be.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed)
    }
}

/// A linked program.
pub(crate) enum Program {
    Module(InstancePre<Guest>),
    Component(CommandPre<Guest>),
}

impl Program {
    /// Runs the program to its end.
    pub(crate) async fn run(&self, store: &mut Store<Guest>) -> Result<()> {
        match self {
            Self::Module(module) => {
                let instance = module.instantiate_async(&mut *store).await?;
                let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
                start.call_async(store, ()).await
            }
            Self::Component(component) => {
                let command = component.instantiate_async(&mut *store).await?;
                let ended = command.wasi_cli_run().call_run(store).await?;
                // A component has no other exit code.
                ended.map_err(|()| wasmtime_wasi::I32Exit(1).into())
            }
        }
    }
}

/// Links programs of one engine with WASI only.
pub(crate) struct Linkers {
    engine: Engine,
    modules: Linker<Guest>,
    components: component::Linker<Guest>,
}

impl Linkers {
    pub(crate) fn new(engine: &Engine) -> Result<Self> {
        let (mut modules, mut components) = (Linker::new(engine), component::Linker::new(engine));
        p1::add_to_linker_async(&mut modules, |guest: &mut Guest| &mut guest.wasi)?;
        // That of wasmtime traps at 126 and above, which shells, PHP and Perl exit with, and forgets the code.
        modules.allow_shadowing(true).func_wrap(PREVIEW_1, "proc_exit", |code: i32| -> Result<()> {
            Err(wasmtime_wasi::I32Exit(code).into())
        })?;
        p2::add_to_linker_async(&mut components)?;
        Ok(Self { engine: engine.clone(), modules, components })
    }

    /// Links compiled code in memory. Fails with the import's name if an import does not exist.
    #[expect(unsafe_code, reason = "compiled code must be trusted by the caller")]
    pub(crate) fn link(&self, kind: Kind, code: &[u8]) -> Result<Program> {
        // SAFETY: the bytes were just compiled by this engine and have not left this process.
        unsafe {
            match kind {
                Kind::Module => self.module(&Module::deserialize(&self.engine, code)?),
                Kind::Component => self.component(&Component::deserialize(&self.engine, code)?),
            }
        }
    }

    /// Maps and links a compiled file.
    #[expect(unsafe_code, reason = "compiled code must be trusted by the caller")]
    fn load(&self, path: &Path) -> Result<Option<Program>> {
        // SAFETY: our own compiler wrote the file, the agent named it to this worker, and it does not change once it has its name. If a
        // program exploited the compiler, its file is confined by the same sandbox as the compiler was.
        Ok(unsafe {
            match Engine::detect_precompiled_file(path)? {
                None => None,
                Some(Precompiled::Module) => {
                    Some(self.module(&Module::deserialize_file(&self.engine, path)?)?)
                }
                Some(Precompiled::Component) => {
                    Some(self.component(&Component::deserialize_file(&self.engine, path)?)?)
                }
            }
        })
    }

    fn module(&self, module: &Module) -> Result<Program> {
        self.modules.instantiate_pre(module).map(Program::Module)
    }

    fn component(&self, component: &Component) -> Result<Program> {
        CommandPre::new(self.components.instantiate_pre(component)?).map(Program::Component)
    }
}

/// The programs in use, by file; the last used ones are kept.
pub(crate) struct Programs {
    plain: Linkers,
    metered: Linkers,
    kept: Mutex<LoadedPrograms>,
}

#[derive(Default)]
struct LoadedPrograms {
    programs: BTreeMap<(bool, PathBuf), (u64, Arc<Mapped>)>,
    uses: u64,
}

impl Programs {
    pub(crate) fn new(engines: &Engines) -> Result<Self> {
        let (plain, metered) = (Linkers::new(engines.get(false))?, Linkers::new(engines.get(true))?);
        Ok(Self { plain, metered, kept: Mutex::default() })
    }

    /// The program in `path` if it is mapped.
    pub(crate) fn find(&self, path: &Path, metered: bool) -> Option<Arc<Mapped>> {
        self.kept().find(&(metered, path.to_owned()))
    }

    /// The program in `path`, mapped if it was not.
    pub(crate) fn get(&self, path: &Path, metered: bool) -> Result<Arc<Mapped>, Failure> {
        let key = (metered, path.to_owned());
        if let Some(program) = self.kept().find(&key) {
            return Ok(program);
        }
        let linkers = if metered { &self.metered } else { &self.plain };
        let program = match linkers.load(path) {
            Ok(Some(program)) => program,
            Ok(None) => return Err(unusable("it is not a compiled program")),
            Err(error) => return Err(unusable(&chain(&error))),
        };
        let mapped = Arc::new(Mapped { program, quick: AtomicBool::new(false) });
        self.kept().keep(key, Arc::clone(&mapped));
        Ok(mapped)
    }

    fn kept(&self) -> MutexGuard<'_, LoadedPrograms> {
        self.kept.lock()
    }
}

impl LoadedPrograms {
    fn find(&mut self, key: &(bool, PathBuf)) -> Option<Arc<Mapped>> {
        self.uses += 1;
        let uses = self.uses;
        self.programs.get_mut(key).map(|(used, program)| {
            *used = uses;
            Arc::clone(program)
        })
    }

    fn keep(&mut self, key: (bool, PathBuf), program: Arc<Mapped>) {
        if self.programs.len() >= KEPT_PROGRAMS {
            let oldest = self.programs.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.programs.remove(&key));
        }
        self.programs.insert(key, (self.uses, program));
    }
}

/// A compiled file that does not load is a fault of this Island: it was compiled here from a valid program.
fn unusable(why: &str) -> Failure {
    Failure::of_host(FailureCode::ModelUnavailable, format!("load the compiled program: {why}"))
}
