//! d1, d2: what a wasm job costs beyond its program. Warm, beside a bare loop that starts the same linked program with the same
//! settings; cold, with the compiled program on disk, beside a process for each job, which is what `wasmtime run` is.

mod bare;
mod engine;
pub(crate) mod process;
mod programs;

use anyhow::Result;

use crate::stats::Spread;
use programs::{Program, built_in, given};

/// Jobs at once.
const PARALLEL: [usize; 3] = [1, 2, 8];
/// Cold jobs in a round.
const COLD_JOBS: usize = 40;

pub(crate) fn run(rounds: usize, jobs: usize, program: &[String]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut programs = built_in(dir.path())?;
    programs.extend(given(dir.path(), program)?);
    println!("wasm: {jobs} jobs a round, {} rounds, microseconds a job", rounds - 1);
    println!("| figure | Island | floor or peer | Island / peer |");
    println!("| --- | --- | --- | --- |");
    for program in &programs {
        for parallel in PARALLEL {
            warm(program, parallel, rounds, jobs)?;
        }
        cold(program, rounds)?;
    }
    Ok(())
}

fn warm(program: &Program, parallel: usize, rounds: usize, jobs: usize) -> Result<()> {
    let (island, bare) = (engine::Island::start(parallel)?, bare::Loop::new(program, parallel)?);
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(island.round(program, parallel, jobs)?);
        floor.push(bare.round(program, parallel, jobs)?);
    }
    island.stop();
    row(&format!("d1: {}, {parallel} at once, bare loop", program.name), &ours[1..], &floor[1..]);
    Ok(())
}

fn cold(program: &Program, rounds: usize) -> Result<()> {
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
    row(&format!("d2: {}, cold, own process with wasmtime", program.name), &ours[1..], &process[1..]);
    if wasmtime.is_empty() {
        println!(
            "| d2: {}, cold, `wasmtime run` | – | not measured: no `wasmtime` command here | – |",
            program.name
        );
    } else {
        row(&format!("d2: {}, cold, `wasmtime run`", program.name), &ours[1..], &wasmtime[1..]);
    }
    Ok(())
}

fn row(name: &str, ours: &[f64], theirs: &[f64]) {
    let median = |figures: &[f64]| Spread::of(figures.to_vec()).median;
    println!(
        "| {name} | {:.1} | {:.1} | {} |",
        median(ours),
        median(theirs),
        Spread::of_ratios(ours, theirs)
    );
}
