use island_protocol::{egress::Egress, job::Fault};
use serde_json::{Value, json};

use super::*;

fn rules(change: impl Fn(&mut ContainerRules)) -> ContainerRules {
    let mut rules = ContainerRules { max_tier: SandboxTier::Elevated, ..ContainerRules::default() };
    change(&mut rules);
    rules
}

fn granted(fields: &Value, rules: &ContainerRules, gpu_safe: bool) -> Result<ResourceLimits, Failure> {
    let mut cargo = json!({"slug": "x", "runtime_type": "container"});
    for (name, value) in fields.as_object().expect("fields") {
        cargo[name] = value.clone();
    }
    let cargo: CargoSpec = serde_json::from_value(cargo).expect("a Cargo");
    ResourceLimits::of(&cargo, &EngineConfig::of(&cargo)?, rules, (!gpu_safe).then_some("too old"))
}

#[test]
fn tiers_have_the_documented_limits() {
    for (tier, mb, cpus, pids, seconds) in [
        (None, 256, 1, 64, 60),
        (Some("restricted"), 256, 1, 64, 60),
        (Some("standard"), 1024, 2, 256, 300),
        (Some("elevated"), 8192, 4, 512, 600),
    ] {
        let fields = tier.map_or_else(|| json!({}), |tier| json!({"sandbox_tier": tier}));
        let limits = granted(&fields, &rules(|_| ()), true).expect("granted");
        let got = (limits.memory_bytes >> 20, limits.milli_cpus / 1000, limits.pids, limits.time.as_secs());
        assert_eq!(got, (mb, cpus, pids, seconds), "{tier:?}");
        assert!(limits.scratch_bytes < limits.memory_bytes && !limits.gpus);
    }
}

#[test]
fn a_cargo_may_need_less_and_never_more() {
    let all = rules(|_| ());
    let less =
        granted(&json!({"required_ram_mb": 100, "limits": {"timeout_s": 5}}), &all, true).expect("granted");
    assert_eq!((less.memory_bytes >> 20, less.time.as_secs()), (100, 5));
    let longer = granted(&json!({"limits": {"timeout_s": 5000}}), &all, true).expect("granted");
    assert_eq!(longer.time.as_secs(), 60);
    let tiny = granted(&json!({"required_ram_mb": 1}), &all, true).expect("granted");
    assert_eq!(tiny.memory_bytes >> 20, 16);
    let more = granted(&json!({"required_ram_mb": 257}), &all, true).expect_err("refused");
    assert_eq!(more.fault, Fault::Job);
}

#[test]
fn the_owners_rules_override_every_tier() {
    let low = rules(|rules| rules.max_tier = SandboxTier::Standard);
    let refused = granted(&json!({"sandbox_tier": "elevated"}), &low, true).expect_err("refused");
    assert_eq!(refused.fault, Fault::Host, "another Island may run it");
    assert!(refused.message.contains("'standard'") && refused.message.contains("'elevated'"), "{refused:?}");
}

#[test]
fn a_gpu_needs_tier_owner_and_runc() {
    let gpu = |tier: &str, gpus, safe| {
        let fields = json!({"sandbox_tier": tier, "required_vram_mb": 1000});
        granted(&fields, &rules(|rules| rules.gpus = gpus), safe)
            .map(|limits| limits.gpus)
            .map_err(|failure| failure.fault)
    };
    assert_eq!(gpu("standard", true, true), Ok(true));
    assert_eq!(gpu("elevated", true, true), Ok(true));
    assert_eq!(gpu("restricted", true, true), Err(Fault::Job));
    assert_eq!(gpu("standard", false, true), Err(Fault::Host));
    assert_eq!(gpu("standard", true, false), Err(Fault::Host));
}

#[test]
fn egress_needs_tier_and_owner() {
    let leave = |tier: &str, egress: Value| {
        let fields = json!({"sandbox_tier": tier, "engine": {"egress": ["a.org:443", "b.org:80"]}});
        let egress: Egress = serde_json::from_value(egress).expect("a rule");
        granted(&fields, &rules(|rules| rules.egress = egress.clone()), true)
            .map(drop)
            .map_err(|failure| (failure.fault, failure.message.contains("b.org:80")))
    };
    assert_eq!(leave("elevated", json!("declared")), Ok(()));
    assert_eq!(leave("elevated", json!(["a.org", "b.org:80"])), Ok(()));
    assert_eq!(leave("elevated", json!(["a.org", "b.org:443"])), Err((Fault::Host, true)), "all or none");
    assert_eq!(leave("elevated", json!("none")).map_err(|(fault, _)| fault), Err(Fault::Host));
    assert_eq!(leave("standard", json!("declared")).map_err(|(fault, _)| fault), Err(Fault::Job));
}
