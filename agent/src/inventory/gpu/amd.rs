//! AMD's GPUs, read from sysfs of the kernel's driver amdgpu.

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    GpuReadings, MB, Moment, Probe, ProbeReport, Reading, Roots, Vendor,
    clients::Clients,
    sysfs::{self, Device},
};

const VENDOR: &str = "0x1002";
/// Memory from which a GPU that is part of a processor is used, megabytes: firmware reserves less for a display unless somebody
/// chooses more.
const LEAST_INTEGRATED_MB: u64 = 8192;

/// Polls AMD's GPUs.
#[derive(Debug)]
pub(super) struct Amd {
    roots: Roots,
    names: BTreeMap<String, String>,
}

impl Amd {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { roots: roots.clone(), names: BTreeMap::new() }
    }

    fn name(&mut self, gpu: &Device) -> String {
        let roots = &self.roots;
        let found = || {
            // Only some cards report their product name.
            let product = gpu.text("product_name").ok().filter(|name| !name.is_empty());
            let name = product.or_else(|| gpu.listed_name(roots));
            name.unwrap_or_else(|| format!("AMD GPU {}", gpu.text("device").unwrap_or_default()))
        };
        self.names.entry(gpu.address.clone()).or_insert_with(found).clone()
    }
}

impl Probe for Amd {
    fn name(&self) -> &'static str {
        "AMD GPUs"
    }

    fn poll(&mut self, moment: &Moment) -> ProbeReport {
        let mut report = ProbeReport::default();
        let gpus = sysfs::devices(&self.roots.sys, VENDOR);
        if gpus.is_empty() {
            report.none = Some("no AMD GPU".to_owned());
        }
        for gpu in gpus {
            match gpu.number::<u64>("mem_info_vram_total") {
                // What is in use there serves a display, and models would be slower than on the processor's cores.
                Ok(bytes) if is_integrated(&gpu) && bytes / MB < LEAST_INTEGRATED_MB => {
                    report.none = Some("no AMD GPU with dedicated memory".to_owned());
                }
                Ok(bytes) => {
                    let name = self.name(&gpu);
                    report.seen.push(seen(&gpu, name, bytes, &self.roots.sys, moment));
                }
                // GPUs of before 2012, and those of servers that only show a console: no engine computes on them.
                Err(_) if gpu.driver().as_deref() == Some("radeon") => {
                    report.none = Some("no AMD GPU that the kernel's driver amdgpu supports".to_owned());
                }
                Err(reason) => {
                    report.problems.push(format!("the AMD GPU at {} is not used: {reason}", gpu.address));
                }
            }
        }
        report
    }
}

/// Whether it is part of a processor: the driver has a sensor for the voltage of the northbridge for these alone. It is not read, which would
/// wake the GPU.
fn is_integrated(gpu: &Device) -> bool {
    let mut folders = fs::read_dir(gpu.dir.join("hwmon")).into_iter().flatten().flatten();
    folders.any(|folder| folder.path().join("in1_input").exists())
}

fn seen(gpu: &Device, name: String, bytes: u64, sys: &Path, moment: &Moment) -> GpuReadings {
    GpuReadings {
        id: gpu.address.clone(),
        address: gpu.address.clone(),
        part_of: None,
        vendor: Vendor::Amd,
        name,
        vram_mb: bytes / MB,
        used_mb: gpu.number::<u64>("mem_info_vram_used").map(|bytes| bytes / MB),
        busy_percent: gpu.awake().and_then(|()| gpu.number("gpu_busy_percent")),
        temperature_c: gpu.sensor::<i64>(&["temp1_input"]).map(|milli| (milli.max(0) / 1000) as u32),
        // Older and larger GPUs report an average, newer and smaller ones the current value.
        power_w: gpu.sensor::<u64>(&["power1_average", "power1_input"]).map(|micro| micro as f32 / 1e6),
        computing: computing(gpu, sys, moment.clients()),
        drawing: BTreeMap::new(),
        handle: gpu.text("unique_id").ok().filter(|id| !id.is_empty()).map(|id| format!("GPU-{id}")),
    }
}

/// Programs on ROCm, which the kernel lists for every user, and programs that compute through DRM, as far as they are visible.
fn computing(gpu: &Device, sys: &Path, clients: &Clients) -> Reading<BTreeMap<u32, Option<u64>>> {
    let rocm = rocm(gpu, sys);
    if clients.partial && rocm.is_none() {
        return Err("programs of other users are not visible".to_owned());
    }
    let mut found = rocm.unwrap_or_default();
    for (pid, usage) in clients.of(&gpu.address) {
        if usage.computes || found.contains_key(&pid) {
            let through_drm = usage.vram_kb.map(|kb| kb >> 10);
            let known = found.entry(pid).or_default();
            // The memory of a program on ROCm is counted in both places.
            *known = (*known).max(through_drm);
        }
    }
    Ok(found)
}

/// Programs on ROCm with their memory on this GPU; empty if the kernel has no ROCm or does not report it.
fn rocm(gpu: &Device, sys: &Path) -> Option<BTreeMap<u32, Option<u64>>> {
    let number = kfd_number(gpu, sys)?;
    let processes = fs::read_dir(sys.join("class/kfd/kfd/proc")).ok()?.flatten();
    let found = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let file = format!("vram_{number}");
        let bytes: u64 = sysfs::number(&process.path().join(&file), &file).ok()?;
        // Every program on ROCm opens every GPU; one that allocated memory uses it.
        (bytes > 0).then_some((pid, Some(bytes / MB)))
    });
    Some(found.collect())
}

/// The number of the GPU in the kernel's ROCm driver: that of the node with its PCI address.
fn kfd_number(gpu: &Device, sys: &Path) -> Option<u32> {
    let nodes = fs::read_dir(sys.join("class/kfd/kfd/topology/nodes")).ok()?.flatten();
    nodes.map(|node| node.path()).find_map(|node| {
        let properties = fs::read_to_string(node.join("properties")).ok()?;
        let property = |name: &str| -> Option<u64> {
            let value = properties.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            value.trim().parse().ok()
        };
        let (domain, location) = (property("domain")?, property("location_id")?);
        let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
        let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
        if address != gpu.address {
            return None;
        }
        fs::read_to_string(node.join("gpu_id")).ok()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{super::clients::tests::process, super::sysfs::tests::Tree, *};

    const ADDRESS: &str = "0000:03:00.0";

    fn poll(tree: &Tree) -> ProbeReport {
        let roots = tree.roots();
        Amd::new(&roots).poll(&Moment::new(Instant::now(), &roots.proc))
    }

    fn plug(tree: &Tree) -> String {
        let files = [
            ("vendor", "0x1002"),
            ("device", "0x744c"),
            ("mem_info_vram_total", "25753026560"),
            ("mem_info_vram_used", "1073741824"),
            ("gpu_busy_percent", "37"),
            ("unique_id", "1122334455667788"),
            ("hwmon/hwmon4/temp1_input", "54000"),
            ("hwmon/hwmon4/power1_average", "123500000"),
        ];
        tree.plug(0, ADDRESS, &files)
    }

    #[test]
    fn all_values_of_the_driver_are_read() {
        let tree = Tree::new();
        plug(&tree);
        tree.write("share/misc/pci.ids", "1002  AMD\n\t744c  Navi 31 [Radeon RX 7900 XT]");
        fs::create_dir_all(tree.roots().proc.join("1/fd")).expect("folders");
        let seen = poll(&tree).seen.pop().expect("a GPU");
        assert_eq!((seen.id.as_str(), seen.name.as_str()), (ADDRESS, "Navi 31 [Radeon RX 7900 XT]"));
        assert_eq!((seen.vram_mb, seen.used_mb.clone()), (24_560, Ok(1024)));
        assert_eq!((seen.busy_percent.clone(), seen.temperature_c.clone()), (Ok(37), Ok(54)));
        assert_eq!(seen.power_w, Ok(123.5));
        assert_eq!(seen.computing, Ok(BTreeMap::new()));
        assert_eq!(seen.handle.as_deref(), Some("GPU-1122334455667788"));
        assert!(seen.missing().is_empty());
    }

    #[test]
    fn a_gpu_of_a_processor_is_used_only_if_its_owner_reserved_much_memory_for_it() {
        let tree = Tree::new();
        let apu = |gigabytes: u64| {
            let bytes = (gigabytes << 30).to_string();
            [
                ("vendor", "0x1002".to_owned()),
                ("mem_info_vram_total", bytes),
                ("hwmon/hwmon3/in1_input", "712".to_owned()),
            ]
        };
        let plug = |card, address: &str, files: &[(&str, String)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (*file, text.as_str())).collect();
            tree.plug(card, address, &files);
        };
        plug(1, "0000:0d:00.0", &apu(2));
        let report = poll(&tree);
        assert_eq!((report.seen.len(), report.problems.len()), (0, 0));
        assert_eq!(report.none.as_deref(), Some("no AMD GPU with dedicated memory"));
        plug(2, "0000:0e:00.0", &apu(64));
        let discrete = [("vendor", "0x1002".to_owned()), ("mem_info_vram_total", (4_u64 << 30).to_string())];
        plug(0, ADDRESS, &discrete);
        let sizes: Vec<u64> = poll(&tree).seen.iter().map(|gpu| gpu.vram_mb).collect();
        assert_eq!(sizes, [4096, 65_536]);
    }

    #[test]
    fn a_gpu_of_an_old_driver_is_no_problem() {
        let tree = Tree::new();
        let dir = tree.plug(0, ADDRESS, &[("vendor", "0x1002")]);
        assert_eq!(poll(&tree).problems.len(), 1, "amdgpu reports its memory");
        let driver = tree.0.path().join(dir).join("driver");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/radeon", driver).expect("a link");
        let report = poll(&tree);
        assert_eq!((report.seen.len(), report.problems.len()), (0, 0));
        assert!(report.none.is_some_and(|reason| reason.contains("amdgpu")));
    }

    #[test]
    fn missing_values_have_a_reason() {
        let tree = Tree::new();
        tree.plug(0, ADDRESS, &[("vendor", "0x1002"), ("mem_info_vram_total", "8589934592")]);
        tree.plug(1, "0000:0a:00.0", &[("vendor", "0x1002")]);
        let report = poll(&tree);
        assert_eq!(report.seen.len(), 1);
        let missing = report.seen[0].missing();
        assert_eq!(missing.len(), 5, "{missing:?}");
        assert!(missing[0].contains("mem_info_vram_used"), "{missing:?}");
        assert_eq!(
            report.problems,
            ["the AMD GPU at 0000:0a:00.0 is not used: the driver has no mem_info_vram_total"]
        );
    }

    #[test]
    fn a_suspended_gpu_is_not_woken() {
        let tree = Tree::new();
        let dir = plug(&tree);
        tree.write(&format!("{dir}/power/runtime_status"), "suspended");
        let seen = poll(&tree).seen.pop().expect("a GPU");
        assert_eq!(seen.temperature_c, Err(ASLEEP_REASON.to_owned()));
        assert_eq!(seen.used_mb, Ok(1024), "readable without waking it");
        assert_eq!(seen.missing(), ["other programs: programs of other users are not visible"]);
    }

    const ASLEEP_REASON: &str = super::super::ASLEEP;

    #[test]
    fn programs_that_compute_are_distinguished_from_those_that_draw() {
        let tree = Tree::new();
        plug(&tree);
        let proc = tree.roots().proc;
        let client = |client: u32, engine: &str| {
            format!(
                "drm-pdev:\t{ADDRESS}\ndrm-client-id:\t{client}\ndrm-memory-vram:\t2048 KiB\ndrm-engine-{engine}:\t9 ns\n"
            )
        };
        process(&proc, 20, 3, &client(1, "gfx"));
        process(&proc, 21, 3, &client(2, "compute"));
        assert!(poll(&tree).seen[0].computing.is_err(), "those of other users are not visible");
        // ROCm lists programs for every user.
        tree.write(
            "sys/class/kfd/kfd/topology/nodes/1/properties",
            "cpu_cores_count 0\nlocation_id 768\ndomain 0",
        );
        tree.write("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51545");
        tree.write("sys/class/kfd/kfd/proc/30/vram_51545", "10485760");
        tree.write("sys/class/kfd/kfd/proc/31/vram_51545", "0");
        let computing = poll(&tree).seen[0].computing.clone().expect("reported");
        assert_eq!(computing, BTreeMap::from([(21, Some(2)), (30, Some(10))]));
    }
}
