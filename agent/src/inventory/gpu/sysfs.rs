//! GPUs in `/sys/class/drm` of the kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{ASLEEP, Reading, Roots};

/// A GPU's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// The folder of its DRM node, such as `/sys/class/drm/card0`.
    pub(super) card: PathBuf,
    /// The folder of its PCI device.
    pub(super) dir: PathBuf,
    /// Its PCI address.
    pub(super) address: String,
}

/// GPUs whose PCI vendor is `vendor`.
pub(super) fn devices(sys: &Path, vendor: &str) -> Vec<Device> {
    let cards = fs::read_dir(sys.join("class/drm")).into_iter().flatten().flatten();
    let mut devices: Vec<Device> = cards
        // Outputs such as `card0-DP-1` are in the same folder as the cards.
        .filter(|card| {
            let name = card.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("card"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .filter_map(|card| {
            let dir = fs::canonicalize(card.path().join("device")).ok()?;
            let address = dir.file_name()?.to_str()?.to_owned();
            Some(Device { card: card.path(), dir, address })
        })
        .filter(|device| device.text("vendor").is_ok_and(|found| found == vendor))
        .collect();
    devices.sort_by(|one, other| one.address.cmp(&other.address));
    devices
}

impl Device {
    /// A file's text.
    pub(super) fn text(&self, file: &str) -> Reading<String> {
        read(&self.dir.join(file), file)
    }

    /// Name of the kernel's driver for it, if it has one.
    pub(super) fn driver(&self) -> Option<String> {
        let link = fs::read_link(self.dir.join("driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// A file's number.
    pub(super) fn number<T: FromStr>(&self, file: &str) -> Reading<T> {
        number(&self.dir.join(file), file)
    }

    /// The number in the first of these sensor files that contains one.
    pub(super) fn sensor<T: FromStr>(&self, files: &[&str]) -> Reading<T> {
        self.awake()?;
        let folders = fs::read_dir(self.dir.join("hwmon"))
            .map_err(|_| "the driver has no sensors (hwmon)".to_owned())?
            .flatten()
            .map(|entry| entry.path());
        let mut reason = "the driver has no sensors (hwmon)".to_owned();
        for folder in folders {
            for file in files {
                match number(&folder.join(file), file) {
                    Ok(value) => return Ok(value),
                    Err(error) => reason = error,
                }
            }
        }
        Err(reason)
    }

    /// Returns a reason if reading more would wake it.
    pub(super) fn awake(&self) -> Reading<()> {
        let asleep = self.text("power/runtime_status").is_ok_and(|status| status == "suspended");
        if asleep { Err(ASLEEP.to_owned()) } else { Ok(()) }
    }

    /// Its name in the system's list of PCI devices; `None` without such a list or entry.
    pub(super) fn listed_name(&self, roots: &Roots) -> Option<String> {
        let hex = |file| Some(self.text(file).ok()?.strip_prefix("0x")?.to_owned());
        let (vendor, device) = (hex("vendor")?, hex("device")?);
        let lists = ["misc/pci.ids", "hwdata/pci.ids"].map(|list| roots.share.join(list));
        lists.iter().find_map(|list| {
            let text = String::from_utf8_lossy(&fs::read(list).ok()?).into_owned();
            listed(&text, &vendor, &device)
        })
    }
}

/// The number in a file, or why it cannot be read; `name` names the value in the reason.
pub(super) fn number<T: FromStr>(path: &Path, name: &str) -> Reading<T> {
    let text = read(path, name)?;
    text.parse().map_err(|_| format!("{name}: '{text}' is not a number"))
}

fn read(path: &Path, name: &str) -> Reading<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("the driver has no {name}"))
        }
        Err(error) => Err(format!("read {name}: {error}")),
    }
}

/// A device's name in the text of `pci.ids`: vendors start at the beginning of a line, their devices follow with a tab.
fn listed(text: &str, vendor: &str, device: &str) -> Option<String> {
    let is_vendor = |line: &&str| line.strip_prefix(vendor).is_some_and(|rest| rest.starts_with("  "));
    let devices = text.lines().skip_while(|line| !is_vendor(line)).skip(1);
    let mut devices = devices.take_while(|line| line.starts_with('\t') || line.starts_with('#'));
    devices
        .find_map(|line| Some(line.strip_prefix('\t')?.strip_prefix(device)?.strip_prefix("  ")?.to_owned()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree as the kernel builds it: devices by their PCI addresses, and links to them from `class/drm`.
    #[derive(Debug)]
    pub(in super::super) struct Tree(pub(in super::super) tempfile::TempDir);

    impl Tree {
        pub(in super::super) fn new() -> Self {
            let tree = Self(tempfile::tempdir().expect("a folder"));
            for folder in ["sys/class/drm", "proc", "share/misc"] {
                fs::create_dir_all(tree.0.path().join(folder)).expect("folders");
            }
            tree
        }

        pub(in super::super) fn roots(&self) -> Roots {
            let at = |folder| self.0.path().join(folder);
            Roots { sys: at("sys"), proc: at("proc"), share: at("share") }
        }

        pub(in super::super) fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, format!("{text}\n")).expect("write");
        }

        /// Adds a GPU; returns the folder of its PCI device.
        pub(in super::super) fn plug(&self, card: u32, address: &str, files: &[(&str, &str)]) -> String {
            let dir = format!("sys/devices/pci0000:00/{address}");
            self.write(&format!("{dir}/drm/card{card}/dev"), "226:0");
            for (file, text) in files {
                self.write(&format!("{dir}/{file}"), text);
            }
            let root = self.0.path();
            symlink(root.join(&dir), root.join(format!("{dir}/drm/card{card}/device"))).expect("a link");
            let class = root.join(format!("sys/class/drm/card{card}"));
            symlink(root.join(format!("{dir}/drm/card{card}")), class).expect("a link");
            dir
        }

        /// Removes it.
        pub(in super::super) fn unplug(&self, card: u32) {
            fs::remove_file(self.0.path().join(format!("sys/class/drm/card{card}"))).expect("remove");
        }
    }

    #[test]
    fn cards_are_found_by_vendor_and_outputs_ignored() {
        let tree = Tree::new();
        tree.plug(1, "0000:09:00.0", &[("vendor", "0x1002")]);
        tree.plug(0, "0000:03:00.0", &[("vendor", "0x1002")]);
        tree.plug(2, "0000:00:02.0", &[("vendor", "0x8086")]);
        tree.write("sys/class/drm/card0-DP-1/status", "connected");
        let found: Vec<_> = devices(&tree.roots().sys, "0x1002").into_iter().map(|gpu| gpu.address).collect();
        assert_eq!(found, ["0000:03:00.0", "0000:09:00.0"]);
        assert!(devices(Path::new("/nowhere"), "0x1002").is_empty());
    }

    #[test]
    fn a_name_is_searched_among_its_vendors_devices() {
        let list = "# names\n1001  One\n\t744c  Not this\n1002  Two\n\t0001  Other\n\t744c  Navi 31\n\t\t744c 0001  Board\n\
            1003  Three\n\t9999  Nor this\n";
        assert_eq!(listed(list, "1002", "744c").as_deref(), Some("Navi 31"));
        assert_eq!(listed(list, "1002", "9999"), None);
        assert_eq!(listed(list, "ffff", "744c"), None);
    }
}
