//! Flags of `island batches`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use island_protocol::credits::MicroCredits;

use super::values;

#[derive(Debug, Subcommand)]
pub(crate) enum Batches {
    /// Run the requests of a file, wait for their end and print the results
    #[command(after_help = "Each line of the file is a request in the form of OpenAI's Batch API:\n  \
        {\"custom_id\": \"one\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"model\": …}}\n\n\
        Interrupted, it ends; the batch goes on. Exit code 1: the batch did not complete, or requests failed.")]
    Run(RunBatch),
    /// List your batches, newest first
    List {
        /// How many
        #[arg(
            long,
            default_value_t = 20,
            value_name = "N",
            allow_negative_numbers = true,
            value_parser = clap::value_parser!(u64).range(1..=100),
        )]
        limit: u64,
        /// Only those that are older than this batch
        #[arg(long, value_name = "ID", value_parser = values::batch_beginning)]
        after: Option<String>,
    },
    /// Show the progress of a batch
    Get(OnBatch),
    /// Print the results of an ended batch, a JSON object on each line
    Results {
        #[command(flatten)]
        batch: OnBatch,
        /// Those of the requests that failed or did not run
        #[arg(long)]
        errors: bool,
        /// Write them to this file instead
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Cancel a batch: requests that run are cancelled, and no others begin
    Cancel(OnBatch),
}

#[derive(Debug, Args)]
pub(crate) struct RunBatch {
    /// The requests, one JSON object a line; - reads them from standard input
    pub(crate) file: String,
    /// Time within which requests may begin, from 1h to 7d
    #[arg(long, default_value = "24h", value_name = "SPAN")]
    pub(crate) window: String,
    /// Most credits that all requests may cost together
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::credits_or_none)]
    pub(crate) max_credits: Option<MicroCredits>,
    /// Write the results to this file instead of standard output
    #[arg(long, short, value_name = "FILE", conflicts_with = "detach")]
    pub(crate) output: Option<PathBuf>,
    /// Print the id of the batch and do not wait for its end
    #[arg(long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OnBatch {
    /// Its id, or the beginning of its id
    #[arg(value_name = "ID", value_parser = values::batch_beginning)]
    pub(crate) batch: String,
}
