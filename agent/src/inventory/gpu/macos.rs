//! The counters of an Apple chip, through macmon, and the size of its memory from Metal.
//!
//! macmon's handles belong to the thread that created them: one thread owns them and answers.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use macmon::Sampler;
use objc2_metal::{MTLCopyAllDevices, MTLDevice as _};

use super::apple::{Counters, System};
use crate::inventory::meter::Memory;

/// Duration of one measurement, milliseconds.
const WATCH_MS: u32 = 200;
/// Time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread that reads the counters.
#[derive(Debug)]
pub(super) struct Reader {
    ask: Sender<()>,
    answers: Receiver<Result<Counters, String>>,
}

impl Reader {
    /// Starts the thread; it ends when this is dropped.
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
        // An answer that arrived too late belongs to an earlier poll.
        while self.answers.try_recv().is_ok() {}
        let _ = self.ask.send(());
        let answer = self.answers.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => "the chip's counters do not answer",
            RecvTimeoutError::Disconnected => "reading the chip's counters failed",
        })?;
        answer.map_err(|reason| format!("the chip's counters cannot be read: {reason}"))
    }
}

fn read(sampler: &mut Sampler) -> Result<Counters, String> {
    let metrics = sampler.get_metrics(WATCH_MS).map_err(|error| error.to_string())?;
    // The default device is only available to programs with windows.
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
