//! File system access: landlock.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::Profile;

/// Newest version of the kernel interface whose rights are requested; an older kernel applies those it knows.
const NEWEST: ABI = ABI::V7;
/// Oldest version that suffices, that of Linux 5.19. What later ones add is refused by the system call filter as well: truncation of files
/// that may only be read, connections, signals, device calls.
const NEEDED: ABI = ABI::V2;

/// Harmless facts that the C library and threads need.
const FACTS: [&str; 3] = ["/sys/devices/system/cpu", "/dev/null", "/dev/urandom"];

/// What drivers read about this process: its memory map, counters, and name. Not the folder: it also contains the machine's network connections.
const OWN_FACTS: [&str; 8] = [
    "/proc/self/auxv",
    "/proc/self/cmdline",
    "/proc/self/comm",
    "/proc/self/maps",
    "/proc/self/smaps_rollup",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
];

/// This process.
const OWN: &str = "/proc/self";

/// This process's threads. CUDA does not start where it cannot name those that it starts, which it does through their files `comm` here. Files
/// through which a process could free itself belong to root, because this one is not dumpable.
const THREADS: &str = "/proc/self/task";

/// Where the kernel makes a new inode for an entry that it has forgotten.
const FORGETFUL: &str = "/proc";

/// Restricts this thread, and all that it starts, to the profile's files; TCP, abstract sockets and signals to others are refused, too.
pub(super) fn confine(profile: &Profile) -> Result<(), String> {
    restrict(profile).map_err(|error| error.to_string()).and_then(|status| match status {
        RulesetStatus::NotEnforced => Err("this kernel does not offer it".to_owned()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    })
}

fn restrict(profile: &Profile) -> Result<RulesetStatus, RulesetError> {
    let newest = match profile.landlock_abi {
        0 => NEWEST,
        older => ABI::from(i32::try_from(older).unwrap_or(i32::MAX)),
    };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))?;
    // Versions without rights of a kind have nothing to request.
    let (connections, scope) = (AccessNet::from_all(newest), Scope::from_all(newest));
    if !connections.is_empty() {
        rules = rules.handle_access(connections)?;
    }
    if !scope.is_empty() {
        rules = rules.scope(scope)?;
    }
    let mut rules = rules.create()?;
    let known = AccessFs::from_all(newest);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = (read | AccessFs::WriteFile | AccessFs::IoctlDev) & known;
    for fact in FACTS {
        rules = allow(rules, Path::new(fact), read)?;
    }
    for path in &profile.read {
        rules = allow(rules, path, read)?;
    }
    for path in &profile.listed {
        rules = allow(rules, path, AccessFs::ReadDir.into())?;
    }
    if profile.drivers {
        for fact in OWN_FACTS {
            rules = allow(rules, Path::new(fact), read)?;
        }
    }
    if profile.names_threads {
        rules = allow(rules, Path::new(OWN), read)?;
        let named = (read | AccessFs::WriteFile | AccessFs::Truncate) & known;
        rules = allow(rules, Path::new(THREADS), named)?;
    }
    for path in &profile.libraries {
        rules = allow(rules, path, read | AccessFs::Execute)?;
    }
    for path in &profile.devices {
        rules = allow(rules, path, device)?;
    }
    for path in &profile.write {
        let never = AccessFs::Execute
            | AccessFs::MakeBlock
            | AccessFs::MakeChar
            | AccessFs::MakeSym
            | AccessFs::IoctlDev;
        rules = allow(rules, path, known & !never)?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Allows `access` to `path`, as far as it applies to its type. A path that does not exist needs no rule.
///
/// A rule belongs to an inode. Where an unused entry gets another one once the kernel needed its memory, the rule would be lost, so the
/// entry stays open for as long as this process lives. It can only be used for what the rule allows.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    let rules =
        rules.set_compatibility(CompatLevel::BestEffort).add_rule(PathBeneath::new(&opened, access))?;
    if path.starts_with(FORGETFUL) {
        std::mem::forget(opened);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, thread};

    use super::*;

    #[test]
    fn entries_that_the_kernel_forgets_stay_open() {
        let task = PathBuf::from(format!("/proc/{}/task", std::process::id()));
        let profile = Profile { names_threads: true, ..Profile::default() };
        // Only the thread is confined.
        let confined = thread::spawn(move || {
            confine(&profile).expect("landlock");
            fs::read("/proc/thread-self/comm").is_ok()
        });
        assert!(confined.join().expect("it ends"));
        let mut descriptors = fs::read_dir("/proc/self/fd").expect("a list").flatten();
        let is_open = descriptors.any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == task));
        assert!(is_open, "with the entry, its rule would be lost");
    }

    #[test]
    fn of_a_listed_folder_only_the_names_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = (folder.path().to_owned(), folder.path().join("card0"));
        fs::write(&file, "a device").expect("written");
        let profile = Profile { listed: vec![path.clone()], ..Profile::default() };
        // Only the thread is confined.
        let confined = thread::spawn(move || {
            confine(&profile).expect("landlock");
            (fs::read_dir(&path).map(Iterator::count).ok(), fs::read(&file).is_ok())
        });
        assert_eq!(confined.join().expect("it ends"), (Some(1), false));
    }
}
