//! Flags of `island jobs`.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use island_protocol::{ids::Slug, job::JobStatus, time::Timestamp};

use super::{
    Paging,
    values::{FileField, file_field, id_beginning, moment},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// Submit a job and print its id
    Submit(Submit),
    /// List your jobs, newest first
    List(ListJobs),
    /// Read one job
    Get {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = id_beginning)]
        job: String,
        /// Save images of the result here
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Print the output of a completed job alone
    Output {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = id_beginning)]
        job: String,
    },
    /// Follow the output of a job, from its beginning
    Stream {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = id_beginning)]
        job: String,
        /// Start after this event
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        after: Option<u64>,
        /// Save images here
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Cancel a job
    Cancel {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = id_beginning)]
        job: String,
    },
    /// Delete input, output and events of a job that has ended
    DeleteData {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = id_beginning)]
        job: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListJobs {
    /// Only jobs in this state
    #[arg(long, value_parser = states())]
    pub(crate) status: Option<JobStatus>,
    /// Only jobs of this Cargo
    #[arg(long, value_name = "SLUG")]
    pub(crate) cargo: Option<Slug>,
    /// Only jobs submitted with this key: its id, the beginning of its id, or its name
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only jobs created at this time or later, such as 2026-11-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) from: Option<Timestamp>,
    /// Only jobs created before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) page: Paging,
}

fn states() -> impl TypedValueParser<Value = JobStatus> {
    let known = JobStatus::ALL.iter().map(|status| status.as_str());
    PossibleValuesParser::new(known).try_map(|name| name.parse())
}

#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Cargo to run
    #[arg(long, value_name = "SLUG")]
    pub(crate) workload: Slug,
    /// Its input: JSON, @FILE with JSON, or - for JSON on standard input
    #[arg(long, value_name = "JSON", required_unless_present_any = ["image", "files"])]
    pub(crate) input: Option<String>,
    /// File to send as `image` in the input
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// File to send in a field of the input, such as audio=talk.mp3; may be repeated
    #[arg(long = "file", value_name = "FIELD=FILE", value_parser = file_field)]
    pub(crate) files: Vec<FileField>,
    /// 0 to 100; higher is placed first
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u8).range(0..=100),
    )]
    pub(crate) priority: u8,
    /// Follow its output to the end
    #[arg(long)]
    pub(crate) stream: bool,
    /// Save images here
    #[arg(long, value_name = "DIR", requires = "stream")]
    pub(crate) output: Option<PathBuf>,
}
