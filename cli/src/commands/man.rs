//! `island man`.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::{Man, generate_to};

use crate::{args::Cli, output::Output};

pub(super) fn print(folder: Option<&Path>, output: &Output) -> Result<ExitCode> {
    let command = Cli::command();
    if let Some(folder) = folder {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        generate_to(command, folder).with_context(|| format!("write to {}", folder.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    output.raw(&page)?;
    Ok(ExitCode::SUCCESS)
}
