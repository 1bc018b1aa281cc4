//! `island completion`.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::{Shell as Generator, generate};

use crate::{
    args::{Cli, Shell},
    output::Output,
};

pub(super) fn print(shell: Shell, output: &Output) -> Result<ExitCode> {
    let generator = match shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    // Generated in memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    generate(generator, &mut Cli::command(), "island", &mut script);
    output.raw(&script)?;
    Ok(ExitCode::SUCCESS)
}
