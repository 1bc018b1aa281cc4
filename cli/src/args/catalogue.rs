//! Flags of `island workloads` and `island hosts`.

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use island_protocol::{
    cargo::{Category, RuntimeType},
    ids::Slug,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Workloads {
    /// List Cargos, and how many Islands online can run each
    List(CargoFilter),
    /// Show one Cargo with its input and output schemas
    Get {
        /// Its slug
        slug: Slug,
    },
}

/// Which Cargos to list.
#[derive(Debug, Args)]
pub(crate) struct CargoFilter {
    /// Only those that an Island online can run
    #[arg(long)]
    pub(crate) runnable: bool,
    /// Only those of this runtime
    #[arg(long, value_parser = runtimes())]
    pub(crate) runtime: Option<RuntimeType>,
    /// Only those of this category
    #[arg(long, value_parser = categories())]
    pub(crate) category: Option<Category>,
}

fn runtimes() -> impl TypedValueParser<Value = RuntimeType> {
    static KNOWN: [RuntimeType; 6] = RuntimeType::ALL;
    PossibleValuesParser::new(KNOWN.iter().map(RuntimeType::as_str)).map(RuntimeType::from)
}

fn categories() -> impl TypedValueParser<Value = Category> {
    PossibleValuesParser::new(Category::ALL.iter().map(|category| category.as_str()))
        .try_map(|name| name.parse())
}

/// What remote orders need.
const ALLOW_REMOTE: &str = "The settings of the Island must allow it: [control] allow_remote = true";

#[derive(Debug, Subcommand)]
pub(crate) enum Hosts {
    /// List Islands
    List,
    /// Read one Island: what it has and whether it is online
    Get {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        host: String,
    },
    /// Show the hours that an Island has computed successfully
    Karma {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        host: String,
    },
    /// Show the alerts of your Islands: offline, suspended, a hot GPU, an almost full disk
    Alerts,
    /// Pause an Island of yours: its jobs continue on other Islands
    #[command(after_help = ALLOW_REMOTE)]
    Pause {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        host: String,
    },
    /// Give an Island of yours no new jobs; those that run may finish
    #[command(after_help = ALLOW_REMOTE)]
    Drain {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        host: String,
    },
    /// End what `pause` or `drain` ordered; a pause on the machine itself continues
    #[command(after_help = ALLOW_REMOTE)]
    Resume {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        host: String,
    },
    /// Make the Island that shows this code yours
    Pair {
        /// The code that `island-agent enroll` shows on it
        code: String,
    },
}
