//! Decides whether a job fits now. Pure: measured values in, acceptance or the first reason against it out.

use island_protocol::{
    cargo::SandboxTier,
    demand::Vram,
    egress::{Egress, Place},
    fabric::{Refusal, RefusalReason},
    host::SandboxLevel,
};

/// What a job requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Main memory of its worker, megabytes; 0 if that worker already runs.
    pub ram_mb: u64,
    /// Memory of each GPU of its worker, megabytes.
    pub vram: Vram,
    /// Bytes still to be downloaded, megabytes.
    pub disk_mb: u64,
    /// Tier of a container.
    pub tier: Option<SandboxTier>,
    /// Addresses that a container's program connects to.
    pub egress: Vec<Place>,
}

/// What this Island has free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supply {
    /// Whether no new jobs are accepted.
    pub draining: bool,
    /// Whether the engine works here.
    pub has_runtime: bool,
    /// Why this Island does not run the Cargo for some time, if so.
    pub withheld: Option<String>,
    /// Jobs here, including queued ones.
    pub jobs: u32,
    /// Maximum number of jobs.
    pub max_jobs: u32,
    /// Main memory free for jobs, minus what starting workers will use, plus what idle workers would free.
    pub ram_mb: u64,
    /// The same of each GPU's memory.
    pub vram: Vram,
    /// Disk free for the cache, plus what it may evict.
    pub disk_mb: u64,
    /// Sandbox level that workers reach; `None` until one has reported.
    pub sandbox: Option<SandboxLevel>,
    /// Whether the owner allows less than a full sandbox.
    pub allow_weak_sandbox: bool,
    /// Highest tier of containers that the owner allows.
    pub max_tier: SandboxTier,
    /// Where the owner allows containers to connect.
    pub egress: Egress,
}

/// Returns `Ok` if the job fits, otherwise the first reason against it.
pub fn admit(demand: &Demand, supply: &Supply) -> Result<(), Refusal> {
    let refuse = |reason, message: String| Err(Refusal { reason, message });
    if supply.draining {
        return refuse(RefusalReason::Draining, "this Island accepts no new jobs".into());
    }
    if !supply.has_runtime {
        return refuse(RefusalReason::NoRuntime, "the engine is not available here".into());
    }
    if let Some(reason) = &supply.withheld {
        // Not one of the reasons that last until an owner changes something.
        return refuse(RefusalReason::Other, reason.clone());
    }
    let weak = supply.sandbox.is_some_and(|level| level < SandboxLevel::Full);
    if weak && !supply.allow_weak_sandbox {
        return refuse(
            RefusalReason::WeakSandbox,
            "this kernel does not support every part of the worker sandbox".into(),
        );
    }
    if let Some(tier) = demand.tier.filter(|tier| *tier > supply.max_tier) {
        let (required, allowed) = (tier.as_str(), supply.max_tier.as_str());
        let message = format!("the container needs tier {required}, the owner allows at most {allowed}");
        return refuse(RefusalReason::NotAllowed, message);
    }
    if let Some(place) = supply.egress.refused(&demand.egress) {
        let message = format!("the owner does not allow containers to connect to {place}");
        return refuse(RefusalReason::NotAllowed, message);
    }
    if supply.jobs >= supply.max_jobs {
        return refuse(RefusalReason::NoSlot, format!("all {} job slots are in use", supply.max_jobs));
    }
    let short = |what: &str, need: u64, have: u64| format!("needs {need} MB of {what}, {have} MB are free");
    if demand.ram_mb > supply.ram_mb {
        return refuse(RefusalReason::NoRam, short("memory", demand.ram_mb, supply.ram_mb));
    }
    for (gpu, need) in &demand.vram {
        let have = supply.vram.get(gpu).copied().unwrap_or(0);
        if *need > have {
            return refuse(RefusalReason::NoVram, short("GPU memory", *need, have));
        }
    }
    if demand.disk_mb > supply.disk_mb {
        return refuse(RefusalReason::NoDisk, short("disk", demand.disk_mb, supply.disk_mb));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn supply() -> Supply {
        Supply {
            draining: false,
            has_runtime: true,
            withheld: None,
            jobs: 0,
            max_jobs: 4,
            ram_mb: 1000,
            vram: [(0, 100), (1, 50)].into(),
            disk_mb: 500,
            sandbox: Some(SandboxLevel::Full),
            allow_weak_sandbox: false,
            max_tier: SandboxTier::Standard,
            egress: Egress::None,
        }
    }

    #[test]
    fn each_reason() {
        let tier = Some(SandboxTier::Standard);
        let vram = Vram::from([(0, 100)]);
        let fine = Demand { ram_mb: 1000, vram, disk_mb: 500, tier, egress: Vec::new() };
        let fine = || fine.clone();
        let reason =
            |demand: Demand, supply: Supply| admit(&demand, &supply).err().map(|refusal| refusal.reason);
        assert_eq!(reason(fine(), supply()), None);
        let place: Place = "a.org:443".parse().expect("a place");
        let cases = [
            (fine(), Supply { draining: true, ..supply() }, RefusalReason::Draining),
            (fine(), Supply { has_runtime: false, ..supply() }, RefusalReason::NoRuntime),
            (fine(), Supply { withheld: Some("no".into()), ..supply() }, RefusalReason::Other),
            (fine(), Supply { sandbox: Some(SandboxLevel::Partial), ..supply() }, RefusalReason::WeakSandbox),
            (fine(), Supply { jobs: 4, ..supply() }, RefusalReason::NoSlot),
            (Demand { ram_mb: 1001, ..fine() }, supply(), RefusalReason::NoRam),
            (Demand { vram: [(0, 101)].into(), ..fine() }, supply(), RefusalReason::NoVram),
            (Demand { vram: [(0, 50), (1, 51)].into(), ..fine() }, supply(), RefusalReason::NoVram),
            (Demand { vram: [(2, 1)].into(), ..fine() }, supply(), RefusalReason::NoVram),
            (Demand { disk_mb: 501, ..fine() }, supply(), RefusalReason::NoDisk),
            (Demand { tier: Some(SandboxTier::Elevated), ..fine() }, supply(), RefusalReason::NotAllowed),
            (Demand { egress: vec![place.clone()], ..fine() }, supply(), RefusalReason::NotAllowed),
        ];
        for (demand, supply, expected) in cases {
            assert_eq!(reason(demand, supply), Some(expected));
        }
        let owner_allows = Supply { egress: Egress::Declared, ..supply() };
        assert_eq!(reason(Demand { egress: vec![place], ..fine() }, owner_allows), None);
        let owner_agrees = Supply { sandbox: Some(SandboxLevel::None), allow_weak_sandbox: true, ..supply() };
        assert_eq!(reason(fine(), owner_agrees), None);
    }

    proptest! {
        /// However jobs arrive and leave, what was admitted together never exceeds what there is.
        #[test]
        fn never_over_capacity(
            arrivals in prop::collection::vec((0_u64..400, 0_u64..60, 0_u32..2, any::<bool>()), 0..80),
        ) {
            let all = supply();
            let mut running: Vec<Demand> = Vec::new();
            for (ram_mb, vram_mb, gpu, one_leaves) in arrivals {
                if one_leaves {
                    running.pop();
                }
                let used = |of: fn(&Demand) -> u64| running.iter().map(of).sum::<u64>();
                let of_gpu = |running: &[Demand], gpu: u32| running.iter().filter_map(|demand| demand.vram.get(&gpu)).sum::<u64>();
                let left = Supply {
                    jobs: running.len() as u32,
                    ram_mb: all.ram_mb - used(|demand| demand.ram_mb),
                    vram: all.vram.iter().map(|(gpu, mb)| (*gpu, mb - of_gpu(&running, *gpu))).collect(),
                    ..all.clone()
                };
                let demand = Demand { ram_mb, vram: [(gpu, vram_mb)].into(), ..Demand::default() };
                if admit(&demand, &left).is_ok() {
                    running.push(demand);
                }
                prop_assert!(running.len() <= all.max_jobs as usize);
                prop_assert!(running.iter().map(|demand| demand.ram_mb).sum::<u64>() <= all.ram_mb);
                prop_assert!(all.vram.iter().all(|(gpu, mb)| of_gpu(&running, *gpu) <= *mb));
            }
        }
    }
}
