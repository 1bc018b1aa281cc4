//! Intel's GPUs with dedicated memory, read from sysfs of the kernel's drivers i915 and xe.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use island_protocol::host;

use super::{
    GpuReadings, MB, Moment, Probe, ProbeReport, Reading, Roots, TWICE, Vendor,
    clients::Clients,
    sysfs::{self, Device},
};
use crate::inventory::pci::pci_address;

const VENDOR: &str = "0x8086";
/// Energy is counted in steps: over a shorter time between two polls the power would be inaccurate.
const SHORTEST: Duration = Duration::from_millis(200);

/// Polls Intel's GPUs.
#[derive(Debug)]
pub(super) struct Intel {
    roots: Roots,
    /// Energy used until the last poll, microjoules.
    energy: BTreeMap<String, (Instant, u64)>,
    names: BTreeMap<String, String>,
    /// Memory of the engines' devices by PCI address, bytes.
    sizes: BTreeMap<String, u64>,
}

impl Intel {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { roots: roots.clone(), energy: BTreeMap::new(), names: BTreeMap::new(), sizes: BTreeMap::new() }
    }

    /// Takes the memory of GPUs whose driver does not report it in sysfs, such as that of the kernel's own i915, from these devices of the
    /// engines, which ask the driver.
    pub(super) fn with_devices(mut self, devices: &[host::Device]) -> Self {
        for device in devices {
            if let Some(address) = device.address.as_deref().and_then(pci_address) {
                let known = self.sizes.entry(address).or_default();
                *known = (*known).max(device.memory_mb.saturating_mul(MB));
            }
        }
        self
    }

    /// Memory that engines report of a GPU, bytes. Only of one with dedicated memory: otherwise it is the machine's.
    fn reported(&self, gpu: &Device) -> Option<u64> {
        let address = pci_address(&gpu.address).filter(|_| is_discrete(gpu))?;
        self.sizes.get(&address).copied().filter(|bytes| *bytes > 0)
    }

    fn seen(&mut self, gpu: &Device, bytes: u64, moment: &Moment) -> GpuReadings {
        let clients = moment.clients();
        let fallback = || format!("Intel GPU {}", gpu.text("device").unwrap_or_default());
        let roots = &self.roots;
        let name = self.names.entry(gpu.address.clone());
        let name = name.or_insert_with(|| gpu.listed_name(roots).unwrap_or_else(fallback)).clone();
        GpuReadings {
            id: gpu.address.clone(),
            address: gpu.address.clone(),
            part_of: None,
            vendor: Vendor::Intel,
            name,
            vram_mb: bytes / MB,
            used_mb: used_mb(gpu, clients),
            busy_percent: Err("the kernel reports it only to privileged programs".to_owned()),
            // In xe the package is the second sensor; i915 has only one.
            temperature_c: gpu
                .sensor::<i64>(&["temp2_input", "temp1_input"])
                .map(|milli| (milli.max(0) / 1000) as u32),
            power_w: self.power_w(gpu, moment.now),
            computing: computing(gpu, clients),
            drawing: BTreeMap::new(),
            handle: None,
        }
    }

    /// Power from the energy used since the last poll.
    fn power_w(&mut self, gpu: &Device, now: Instant) -> Reading<f32> {
        let used: u64 = gpu.sensor(&["energy1_input", "energy2_input"])?;
        let (then, before) = *self.energy.entry(gpu.address.clone()).or_insert((now, used));
        let passed = now.saturating_duration_since(then);
        if passed < SHORTEST {
            return Err(TWICE.to_owned());
        }
        self.energy.insert(gpu.address.clone(), (now, used));
        match used.checked_sub(before) {
            Some(spent) => Ok((spent as f64 / 1e6 / passed.as_secs_f64()) as f32),
            None => Err(TWICE.to_owned()),
        }
    }
}

impl Probe for Intel {
    fn name(&self) -> &'static str {
        "Intel GPUs"
    }

    fn poll(&mut self, moment: &Moment) -> ProbeReport {
        let mut report = ProbeReport::default();
        for gpu in sysfs::devices(&self.roots.sys, VENDOR) {
            let bytes = memory(&gpu).or_else(|| self.reported(&gpu));
            match bytes {
                Some(bytes) => report.seen.push(self.seen(&gpu, bytes, moment)),
                None if is_discrete(&gpu) => report.problems.push(format!(
                    "the Intel GPU at {} is not used: neither its driver nor an engine reports its memory; install \
                     mesa-vulkan-drivers, then restart the agent",
                    gpu.address
                )),
                // A GPU that shares the processor's memory is not offered to jobs.
                None => {}
            }
        }
        if report.seen.is_empty() {
            report.none = Some("no Intel GPU with dedicated memory".to_owned());
        }
        report
    }
}

/// Dedicated memory, bytes: the sum of its tiles in xe, one value in Intel's own i915.
fn memory(gpu: &Device) -> Option<u64> {
    let whole = sysfs::number(&gpu.card.join("lmem_total_bytes"), "lmem_total_bytes").ok();
    whole.or_else(|| {
        let entries = fs::read_dir(&gpu.dir).ok()?.flatten();
        let tiles = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("tile"));
        let of_tile = |entry: fs::DirEntry| {
            let places = ["physical_vram_size_bytes", "memory/physical_vram_size_bytes"];
            places.iter().find_map(|file| sysfs::number::<u64>(&entry.path().join(file), file).ok())
        };
        let sizes: Vec<u64> = tiles.filter_map(of_tile).collect();
        (!sizes.is_empty()).then(|| sizes.iter().sum())
    })
}

/// Both drivers have sensors only for GPUs with dedicated memory.
fn is_discrete(gpu: &Device) -> bool {
    gpu.dir.join("hwmon").is_dir()
}

/// Memory in use by all programs together; requires that all of them are visible.
fn used_mb(gpu: &Device, clients: &Clients) -> Reading<u64> {
    if clients.partial {
        return Err("programs of other users are not visible, and the kernel reports no sum".to_owned());
    }
    let used: Option<u64> = clients.of(&gpu.address).map(|(_, usage)| usage.vram_kb).sum();
    used.map(|kb| kb >> 10).ok_or_else(|| "the driver does not report the memory of programs".to_owned())
}

fn computing(gpu: &Device, clients: &Clients) -> Reading<BTreeMap<u32, Option<u64>>> {
    if clients.partial {
        return Err("programs of other users are not visible".to_owned());
    }
    let computing = clients.of(&gpu.address).filter(|(_, usage)| usage.computes);
    Ok(computing.map(|(pid, usage)| (pid, usage.vram_kb.map(|kb| kb >> 10))).collect())
}

#[cfg(test)]
mod tests {
    use super::{super::clients::tests::process, super::sysfs::tests::Tree, *};

    const ADDRESS: &str = "0000:03:00.0";

    fn xe(tree: &Tree) -> String {
        let files = [
            ("vendor", "0x8086"),
            ("device", "0xe20b"),
            ("tile0/physical_vram_size_bytes", "12884901888"),
            ("hwmon/hwmon2/temp2_input", "48000"),
            ("hwmon/hwmon2/temp3_input", "60000"),
            ("hwmon/hwmon2/energy1_input", "1000000"),
        ];
        tree.plug(0, ADDRESS, &files)
    }

    #[test]
    fn power_is_energy_over_time() {
        let tree = Tree::new();
        let dir = xe(&tree);
        let roots = tree.roots();
        let mut probe = Intel::new(&roots);
        let start = Instant::now();
        let mut poll = |after| probe.poll(&Moment::new(start + Duration::from_secs(after), &roots.proc));
        let first = poll(0).seen.pop().expect("a GPU");
        assert_eq!((first.vram_mb, first.temperature_c), (12_288, Ok(48)));
        assert!(first.power_w.is_err(), "one poll gives no difference");
        tree.write(&format!("{dir}/hwmon/hwmon2/energy1_input"), "61000000");
        assert_eq!(poll(2).seen[0].power_w, Ok(30.0));
        tree.write(&format!("{dir}/hwmon/hwmon2/energy1_input"), "5");
        assert!(poll(4).seen[0].power_w.is_err(), "the counter was reset");
        tree.write(&format!("{dir}/hwmon/hwmon2/energy1_input"), "20000005");
        assert_eq!(poll(6).seen[0].power_w, Ok(10.0));
    }

    #[test]
    fn memory_in_use_requires_that_all_programs_are_visible() {
        let tree = Tree::new();
        xe(&tree);
        let roots = tree.roots();
        let info = |client: u32, engine: &str| {
            format!(
                "drm-pdev:\t{ADDRESS}\ndrm-client-id:\t{client}\ndrm-resident-vram0:\t3072 KiB\ndrm-cycles-{engine}:\t9\n"
            )
        };
        process(&roots.proc, 20, 3, &info(1, "rcs"));
        process(&roots.proc, 21, 3, &info(2, "ccs"));
        let poll = || Intel::new(&roots).poll(&Moment::new(Instant::now(), &roots.proc)).seen.remove(0);
        assert!(poll().used_mb.is_err() && poll().computing.is_err());
        fs::create_dir_all(roots.proc.join("1/fd")).expect("folders");
        assert_eq!(poll().used_mb, Ok(6));
        assert_eq!(poll().computing, Ok(BTreeMap::from([(21, Some(3))])));
    }

    #[test]
    fn integrated_gpus_are_ignored_and_gpus_without_values_reported() {
        let tree = Tree::new();
        tree.plug(0, "0000:00:02.0", &[("vendor", "0x8086")]);
        let roots = tree.roots();
        let poll = || Intel::new(&roots).poll(&Moment::new(Instant::now(), &roots.proc));
        assert_eq!((poll().seen.len(), poll().problems.len()), (0, 0));
        tree.plug(1, ADDRESS, &[("vendor", "0x8086"), ("hwmon/hwmon1/energy1_input", "1")]);
        assert_eq!(poll().problems.len(), 1);
        // Intel's own i915 reports it at the card.
        tree.write(&format!("sys/devices/pci0000:00/{ADDRESS}/drm/card1/lmem_total_bytes"), "17179869184");
        assert_eq!(poll().seen[0].vram_mb, 16_384);
    }

    #[test]
    fn memory_that_the_driver_does_not_report_is_that_of_the_engines_device() {
        let tree = Tree::new();
        tree.plug(0, "0000:00:02.0", &[("vendor", "0x8086")]);
        tree.plug(1, ADDRESS, &[("vendor", "0x8086"), ("hwmon/hwmon1/energy1_input", "1")]);
        let roots = tree.roots();
        let device = |address: &str, memory_mb| host::Device {
            address: Some(address.to_owned()),
            memory_mb,
            ..host::Device::default()
        };
        let devices = [device("0000:00:02.0", 20_000), device(ADDRESS, 16_288), device(ADDRESS, 0)];
        let report = |devices: &[host::Device]| {
            let mut probe = Intel::new(&roots).with_devices(devices);
            let report = probe.poll(&Moment::new(Instant::now(), &roots.proc));
            let seen: Vec<_> = report.seen.into_iter().map(|seen| (seen.address, seen.vram_mb)).collect();
            (seen, report.problems.len())
        };
        assert_eq!(report(&devices), (vec![(ADDRESS.to_owned(), 16_288)], 0), "not of an integrated one");
        assert_eq!(report(&devices[..1]), (Vec::new(), 1));
        assert_eq!(report(&devices[2..]), (Vec::new(), 1), "an engine that does not report it");
    }
}
