//! What a wasm job costs beyond its program. Warm, compared with a bare loop that starts the same linked program with the same
//! settings; cold, with the compiled program on disk, compared with one process per job, as `wasmtime run` does it.

mod bare;
mod engine;
pub(crate) mod process;
mod programs;

use anyhow::Result;

use crate::report::{Better, Report};
use programs::{Program, built_in, given};

/// Jobs at once.
const PARALLEL: [usize; 3] = [1, 2, 8];
/// Unit of all figures.
const JOB: (&str, Better) = ("µs/job", Better::Lower);
/// Cold jobs in a round.
const COLD_JOBS: usize = 40;

pub(crate) fn run(rounds: usize, jobs: usize, program: &[String]) -> Result<Report> {
    let dir = tempfile::tempdir()?;
    let mut programs = built_in(dir.path())?;
    programs.extend(given(dir.path(), program)?);
    let mut report = Report::new("Wasm jobs", format!("{jobs} jobs a round, {} rounds", rounds - 1));
    for program in &programs {
        for parallel in PARALLEL {
            warm(&mut report, program, parallel, rounds, jobs)?;
        }
        cold(&mut report, program, rounds)?;
    }
    Ok(report)
}

fn warm(report: &mut Report, program: &Program, parallel: usize, rounds: usize, jobs: usize) -> Result<()> {
    let (island, bare) = (engine::Island::start(parallel)?, bare::Loop::new(program, parallel)?);
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(island.round(program, parallel, jobs)?);
        floor.push(bare.round(program, parallel, jobs)?);
    }
    island.stop();
    let figure = format!("{}, warm, {parallel} at once", program.name);
    report.compare(figure, JOB, &ours[1..], "bare loop", &floor[1..]);
    if parallel == 1 {
        report.headline();
    }
    Ok(())
}

fn cold(report: &mut Report, program: &Program, rounds: usize) -> Result<()> {
    let island = engine::Island::start(1)?;
    let command = process::wasmtime_command();
    let (mut ours, mut process, mut wasmtime) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        ours.push(island.cold_round(program, round, COLD_JOBS)?);
        process.push(process::own_round(program, COLD_JOBS)?);
        if let Some(command) = &command {
            wasmtime.push(process::wasmtime_round(command, program, COLD_JOBS)?);
        }
    }
    island.stop();
    let figure = format!("{}, cold", program.name);
    report.compare(figure.clone(), JOB, &ours[1..], "own process with wasmtime", &process[1..]);
    report.headline();
    if wasmtime.is_empty() {
        report
            .note(format!("{figure}: `wasmtime run` was not measured: there is no `wasmtime` command here"));
    } else {
        report.compare(figure, JOB, &ours[1..], "wasmtime run", &wasmtime[1..]);
    }
    Ok(())
}
