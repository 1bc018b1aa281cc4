//! Processes that use GPUs through the kernel's DRM, read from `/proc/PID/fdinfo` of each open device.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Use of one GPU by one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// Whether it has computed, not only drawn.
    pub(super) computes: bool,
    /// GPU memory, kilobytes; `None` if the driver does not report it.
    pub(super) vram_kb: Option<u64>,
}

/// All visible users of GPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Clients {
    uses: BTreeMap<String, BTreeMap<u32, Use>>,
    /// Whether processes of other users are not visible.
    pub(super) partial: bool,
}

/// The values of one open device.
#[derive(Debug, PartialEq, Eq)]
struct ClientUsage {
    address: String,
    client: u64,
    usage: Use,
}

impl Clients {
    /// Reads every process. Those of other users are visible only to root.
    pub(super) fn scan(proc: &Path) -> Self {
        let mut clients = Self { partial: fs::read_dir(proc.join("1/fd")).is_err(), ..Self::default() };
        let mut counted = BTreeSet::new();
        for process in fs::read_dir(proc).into_iter().flatten().flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            for device in open_devices(&process.path()) {
                // A device that was passed on is open in several processes, or twice in one.
                if counted.insert((device.address.clone(), device.client)) {
                    let usage = clients.uses.entry(device.address).or_default().entry(pid).or_default();
                    usage.computes |= device.usage.computes;
                    usage.vram_kb = match (usage.vram_kb, device.usage.vram_kb) {
                        (Some(one), Some(other)) => Some(one + other),
                        (one, other) => one.or(other),
                    };
                }
            }
        }
        clients
    }

    /// The users of the GPU at a PCI address.
    pub(super) fn of(&self, address: &str) -> impl Iterator<Item = (u32, Use)> + '_ {
        self.uses.get(address).into_iter().flatten().map(|(pid, usage)| (*pid, *usage))
    }
}

/// The values of the devices that a process has open. Only device files are read: a busy machine has very many other files.
fn open_devices(process: &Path) -> impl Iterator<Item = ClientUsage> {
    let infos = process.join("fdinfo");
    fs::read_dir(process.join("fd")).into_iter().flatten().flatten().filter_map(move |file| {
        fs::read_link(file.path()).ok().filter(|target| target.starts_with("/dev/dri"))?;
        parse(&fs::read_to_string(infos.join(file.file_name())).ok()?)
    })
}

fn parse(text: &str) -> Option<ClientUsage> {
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        fields.insert(key.trim(), value.trim());
    }
    let number = |value: &str| value.split_whitespace().next()?.parse::<u64>().ok();
    let busy = |key: &str| fields.get(key).copied().and_then(number).is_some_and(|spent| spent > 0);
    // Drivers name their memory differently: `vram` (amdgpu), `vram0` (xe), `local0` (i915).
    let memory = |kind: &str| {
        let of_gpu = |key: &str| {
            key.strip_prefix(kind)
                .is_some_and(|region| region.starts_with("vram") || region.starts_with("local"))
        };
        let regions: Vec<u64> =
            fields.iter().filter(|(key, _)| of_gpu(key)).filter_map(|(_, value)| kilobytes(value)).collect();
        (!regions.is_empty()).then(|| regions.iter().sum())
    };
    Some(ClientUsage {
        address: (*fields.get("drm-pdev")?).to_owned(),
        client: fields.get("drm-client-id").copied().and_then(number)?,
        usage: Use {
            computes: busy("drm-engine-compute") || busy("drm-cycles-ccs"),
            vram_kb: ["drm-resident-", "drm-total-", "drm-memory-"].into_iter().find_map(memory),
        },
    })
}

/// An amount with its unit; bytes if it has none.
fn kilobytes(value: &str) -> Option<u64> {
    let mut words = value.split_whitespace();
    let amount: u64 = words.next()?.parse().ok()?;
    match words.next() {
        None => Some(amount >> 10),
        Some("KiB") => Some(amount),
        Some("MiB") => Some(amount << 10),
        Some("GiB") => Some(amount << 20),
        Some(_) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A process that has one device open.
    pub(in super::super) fn process(proc: &Path, pid: u32, fd: u32, info: &str) {
        let dir = proc.join(pid.to_string());
        for folder in ["fd", "fdinfo"] {
            fs::create_dir_all(dir.join(folder)).expect("folders");
        }
        symlink("/dev/dri/renderD128", dir.join(format!("fd/{fd}"))).expect("a link");
        fs::write(dir.join(format!("fdinfo/{fd}")), info).expect("write");
        fs::write(dir.join("comm"), "another\n").expect("write");
    }

    #[test]
    fn names_of_memory_of_all_drivers_are_read() {
        let amd = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\n\
            drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t64 KiB\ndrm-engine-compute:\t5 ns\n";
        let usage = Use { computes: true, vram_kb: Some(2048) };
        assert_eq!(parse(amd), Some(ClientUsage { address: "0000:03:00.0".into(), client: 7, usage }));
        let xe = "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-total-vram0:\t9 MiB\ndrm-resident-vram0:\t8 MiB\n\
            drm-cycles-ccs:\t0\n";
        assert_eq!(parse(xe).map(|device| device.usage), Some(Use { computes: false, vram_kb: Some(8192) }));
        let i915 = "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-total-local0:\t4096\ndrm-total-system0:\t1 GiB\n";
        assert_eq!(parse(i915).map(|device| device.usage), Some(Use { computes: false, vram_kb: Some(4) }));
        assert_eq!(parse("pos:\t0\nflags:\t02\n"), None, "not a device");
    }

    #[test]
    fn a_device_that_was_passed_on_counts_once() {
        let proc = tempfile::tempdir().expect("a folder");
        let info = |client| {
            format!("drm-pdev:\t0000:03:00.0\ndrm-client-id:\t{client}\ndrm-memory-vram:\t1024 KiB\n")
        };
        process(proc.path(), 10, 4, &info(1));
        process(proc.path(), 10, 5, &info(1));
        process(proc.path(), 10, 6, &info(2));
        let clients = Clients::scan(proc.path());
        let uses: Vec<_> = clients.of("0000:03:00.0").collect();
        assert_eq!(uses, [(10, Use { computes: false, vram_kb: Some(2048) })]);
        assert!(clients.partial, "the first process is not visible");
        fs::create_dir_all(proc.path().join("1/fd")).expect("folders");
        assert!(!Clients::scan(proc.path()).partial);
    }
}
