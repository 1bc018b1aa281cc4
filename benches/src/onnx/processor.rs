//! Processor time that processes have used.

use std::fs;

use anyhow::{Context as _, Result};

/// Of this process, seconds.
pub(super) fn own_s() -> Result<f64> {
    Ok(read("self")?.1)
}

/// Of one process, seconds.
pub(super) fn of_s(process: u32) -> Result<f64> {
    Ok(read(&process.to_string())?.1)
}

/// Of all processes of a group that live, seconds.
pub(super) fn group_s(group: u32) -> Result<f64> {
    let listed = fs::read_dir("/proc").context("read /proc")?;
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    // One that ends meanwhile is no longer of it.
    let of_group = processes.filter_map(|name| read(&name).ok()).filter(|(of, _)| *of == group);
    Ok(of_group.map(|(_, seconds)| seconds).sum())
}

/// Its group, and its time.
fn read(process: &str) -> Result<(u32, f64)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    let stat = stat.with_context(|| format!("read /proc/{process}/stat"))?;
    // Behind the program's name in brackets: its group is the 3rd, its times in hundredths the 12th and 13th.
    let fields: Vec<&str> = stat.rsplit_once(')').context("a name")?.1.split_whitespace().collect();
    let field = |place: usize| fields.get(place).context("too few fields");
    let hundredths = field(11)?.parse::<f64>()? + field(12)?.parse::<f64>()?;
    Ok((field(2)?.parse()?, hundredths / 100.0))
}
