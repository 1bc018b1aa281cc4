//! The processor: what this process may use, its features, its NUMA nodes.

use std::{fs, path::Path};

use super::cgroup::Groups;

/// Features that matter to engines, as named in `/proc/cpuinfo`. Others are common to all processors of an architecture.
const FEATURES: [&str; 20] = [
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
];

/// Logical processors that this process may use: its affinity, within the limits of its control groups.
pub fn cores() -> u32 {
    let available = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    within(available, Groups::default().processors())
}

/// Features of this processor, of those that matter.
pub fn features() -> Vec<String> {
    fs::read_to_string("/proc/cpuinfo").map(|text| features_in(&text)).unwrap_or_default()
}

/// NUMA nodes; `None` if the kernel does not report them.
pub fn numa_nodes() -> Option<u32> {
    nodes(Path::new("/sys/devices/system/node"))
}

/// Whole processors within a quota, at least one.
fn within(available: u32, quota: Option<f64>) -> u32 {
    let whole = quota.map_or(available, |quota| quota.floor().clamp(1.0, f64::from(u32::MAX)) as u32);
    whole.min(available).max(1)
}

fn features_in(cpuinfo: &str) -> Vec<String> {
    let line = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "flags" | "Features").then_some(value)
    });
    let features: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    FEATURES.iter().filter(|name| features.contains(name)).map(|name| (*name).to_owned()).collect()
}

fn nodes(dir: &Path) -> Option<u32> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
    let count = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count() as u32;
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn features_are_matched_exactly() {
        let x86 =
            "processor\t: 0\nflags\t\t: fpu sse2 avx avx2 avx512f amx_tile avx512_vnni_x\n\nprocessor\t: 1\n";
        assert_eq!(features_in(x86), ["avx", "avx2", "avx512f", "amx_tile"]);
        assert_eq!(features_in("Features\t: fp asimd asimddp sve\n"), ["asimd", "asimddp", "sve"]);
        assert!(features_in("").is_empty());
    }

    #[test]
    fn nodes_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        for entry in ["node0", "node1", "power"] {
            fs::create_dir(folder.path().join(entry)).expect("a folder");
        }
        assert_eq!(nodes(folder.path()), Some(2));
        assert_eq!(nodes(Path::new("/nowhere")), None);
    }

    proptest! {
        #[test]
        fn a_quota_leaves_at_least_one_and_never_adds_processors(available in 1_u32..512, quota in prop::option::of(0.0_f64..1000.0)) {
            let cores = within(available, quota);
            prop_assert!(cores >= 1 && cores <= available);
            if let Some(quota) = quota {
                prop_assert!(f64::from(cores) <= quota.max(1.0));
            } else {
                prop_assert_eq!(cores, available);
            }
        }
    }
}
