//! The counters of an Apple chip, through macmon, and what Metal says of its memory.
//!
//! macmon's handles belong to the thread that made them: one thread keeps them and answers.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use macmon::Sampler;
use objc2_metal::{MTLCopyAllDevices, MTLDevice as _};

use super::apple::{Counters, System};
use crate::inventory::meter::Memory;

/// How long the counters are watched at each look, milliseconds.
const WATCH_MS: u32 = 200;
/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread that reads them.
#[derive(Debug)]
pub(super) struct Reader {
    ask: Sender<()>,
    answers: Receiver<Result<Counters, String>>,
}

impl Reader {
    /// Starts it; it ends when this is dropped.
    pub(super) fn start() -> Self {
        let (ask, asked) = channel::<()>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            let mut sampler = Sampler::new().map_err(|error| error.to_string());
            for () in asked {
                let read = sampler.as_mut().map_err(|reason| reason.clone()).and_then(read);
                if answer.send(read).is_err() {
                    return;
                }
            }
        });
        Self { ask, answers }
    }
}

impl System for Reader {
    fn read(&mut self) -> Result<Counters, String> {
        // One that came too late is of another look.
        while self.answers.try_recv().is_ok() {}
        let _ = self.ask.send(());
        let answer = self.answers.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => "the chip's counters do not answer",
            RecvTimeoutError::Disconnected => "reading the chip's counters broke down",
        })?;
        answer.map_err(|reason| format!("the chip's counters cannot be read: {reason}"))
    }
}

fn read(sampler: &mut Sampler) -> Result<Counters, String> {
    let metrics = sampler.get_metrics(WATCH_MS).map_err(|error| error.to_string())?;
    // The default device is only for programs with windows.
    let device = MTLCopyAllDevices().firstObject().ok_or("Metal finds no GPU")?;
    let chip = sampler.get_soc_info();
    Ok(Counters {
        chip: chip.chip_name.clone(),
        cores: chip.gpu_cores,
        budget_bytes: device.recommendedMaxWorkingSetSize(),
        available_mb: Memory::read().available_mb,
        busy: metrics.gpu_active_ratio,
        temperature_c: metrics.temp.gpu_temp_avg,
        power_w: metrics.gpu_power,
    })
}
