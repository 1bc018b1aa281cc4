use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::inventory::gpu::{GpuReadings, Vendor};

pub(crate) fn card(
    index: u32,
    vendor: Vendor,
    vram_mb: u64,
    used_mb: Reading<u64>,
    ours_mb: Option<u64>,
) -> Card {
    let seen = GpuReadings {
        id: format!("GPU-0000000{index}-0000-0000-0000-000000000000"),
        address: format!("0000:0{index}:00.0"),
        part_of: None,
        vendor,
        name: "Some GPU".into(),
        vram_mb,
        used_mb,
        busy_percent: Ok(0),
        temperature_c: Ok(50),
        power_w: Ok(100.0),
        computing: Ok(BTreeMap::new()),
        drawing: BTreeMap::new(),
        handle: Some(format!("GPU-0000000{index}-0000-0000-0000-000000000000")),
    };
    Card { index, seen, foreign: Some(0), ours_mb, by_limit: false }
}

fn view(cards: Vec<Card>) -> View {
    View { cards, ..View::default() }
}

fn two() -> View {
    view(vec![
        card(0, Vendor::Nvidia, 8000, Ok(1000), Some(0)),
        card(1, Vendor::Amd, 16_000, Ok(500), Some(0)),
    ])
}

fn rule(gpu: &str) -> GpuRule {
    let gpu = gpu.parse().unwrap_or_else(|error| panic!("{error}"));
    GpuRule { gpu, never: false, max_vram_mb: None, max_temperature_c: None, max_power_w: None }
}

#[test]
fn a_gpu_is_named_by_number_uuid_or_address() {
    let card = card(1, Vendor::Nvidia, 1, Ok(0), None);
    for name in [
        "1",
        "GPU-00000001-0000-0000-0000-000000000000",
        "gpu-00000001-0000-0000-0000-000000000000",
        "0000:01:00.0",
    ] {
        assert!(rule(name).gpu.means(&card), "{name}");
    }
    for name in ["0", "GPU-00000002-0000-0000-0000-000000000000", "0000:02:00.0", "GPU-1122334455667788"] {
        assert!(!rule(name).gpu.means(&card), "{name}");
    }
    for wrong in [
        "",
        "-1",
        "first",
        "GPU-",
        "GPU-xyz",
        "MIG-1",
        "03:00.0",
        "0000:03:00",
        "0000:03:00.00",
        "0000:3:00.0",
        "1.5",
    ] {
        assert!(wrong.parse::<GpuName>().is_err(), "{wrong}");
    }
}

#[test]
fn an_address_may_have_a_domain_of_any_length() {
    let mut card = card(1, Vendor::Nvidia, 1, Ok(0), None);
    assert!(rule("00000000:01:00.0").gpu.means(&card), "as NVIDIA's tools write it");
    card.seen.address = "10000:01:00.0".into();
    for name in ["10000:01:00.0", "00010000:01:00.0", "010000:01:00.0"] {
        assert!(rule(name).gpu.means(&card), "{name}");
    }
    for name in ["0000:01:00.0", "1000:01:00.0", "00100000:01:00.0"] {
        assert!(!rule(name).gpu.means(&card), "{name}");
    }
}

#[test]
fn the_address_of_a_split_gpu_matches_its_instances() {
    let mut instance = card(3, Vendor::Nvidia, 1, Ok(0), None);
    instance.seen.address = "0000:03:00.0#01".into();
    assert!(rule("0000:03:00.0").gpu.means(&instance));
}

#[test]
fn parts_of_a_card_are_reported_as_such() {
    let mut view = two();
    view.cards[0].seen.part_of = Some("GPU-whole".into());
    let (offered, _) = offered(&[], &view);
    let parts: Vec<_> = offered.iter().map(|gpu| gpu.part_of.as_deref()).collect();
    assert_eq!(parts, [Some("GPU-whole"), None]);
    assert_eq!(view.parts(), [0].into());
}

#[test]
fn rules_are_read_and_written() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Governor {
        gpu: Vec<GpuRule>,
    }
    let text = "[[gpu]]\ngpu = 0\nnever = true\n[[gpu]]\ngpu = '0000:03:00.0'\nmax_vram_mb = 4000\nmax_temperature_c = 80";
    let policy: Governor = toml::from_str(text).expect("rules");
    assert_eq!(policy.gpu[0], GpuRule { never: true, ..rule("0") });
    let expected = GpuRule { max_vram_mb: Some(4000), max_temperature_c: Some(80), ..rule("0000:03:00.0") };
    assert_eq!(policy.gpu[1], expected);
    let shown = toml::to_string(&policy).expect("written");
    assert_eq!(toml::from_str::<Governor>(&shown).expect("read again"), policy);
    for wrong in
        ["gpu = -1", "gpu = 1.5", "gpu = true", "gpu = 'card0'", "never = true", "gpu = 0\nnevr = true"]
    {
        assert!(toml::from_str::<Governor>(&format!("[[gpu]]\n{wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn the_reserve_and_the_rules_limit_jobs_together() {
    let gpu = &two().cards[1];
    let rules = [GpuRule { max_vram_mb: Some(4000), ..rule("1") }];
    assert_eq!(most_mb(&[], gpu, 1000), gpu.seen.vram_mb - 1000);
    assert_eq!(most_mb(&rules, gpu, 1000), 4000);
    assert_eq!(most_mb(&rules, gpu, gpu.seen.vram_mb), 0);
}

#[test]
fn a_gpu_that_is_full_of_idle_workers_still_counts() {
    let mut view = two();
    view.cards[1].seen.used_mb = Ok(16_000);
    let rules = [GpuRule { never: true, ..rule("0") }];
    let usable = usable(&rules, &PausedGpus::new(), &view);
    assert_eq!(usable, [(1, 0)].into(), "idle workers there can be stopped");
}

#[test]
fn a_limit_is_consent_where_the_memory_in_use_is_hidden() {
    let unknown = || Err("not reported".to_owned());
    let limit = |mb| GpuRule { max_vram_mb: Some(mb), ..rule("0") };
    let free = |card: Card, rules: &[GpuRule]| {
        let by_limit = is_by_limit(rules, &card);
        let view = view(vec![Card { by_limit, ..card }]);
        usable(rules, &PausedGpus::new(), &view).get(&0).copied()
    };
    let hidden = || card(0, Vendor::Intel, 16_000, unknown(), None);
    assert_eq!(free(hidden(), &[]), Some(0), "without a rule nothing is known to be free");
    assert_eq!(free(hidden(), &[limit(12_000)]), Some(12_000));
    assert_eq!(free(hidden(), &[limit(20_000)]), Some(16_000), "not more than it has");
    assert_eq!(free(hidden(), &[limit(12_000), limit(3000)]), Some(3000), "the strictest rule");
    let hot = GpuRule { max_temperature_c: Some(80), ..rule("0") };
    assert_eq!(free(hidden(), &[hot]), Some(0), "a limit of something else allows nothing");
    let other = GpuRule { max_vram_mb: Some(12_000), ..rule("1") };
    assert_eq!(free(hidden(), &[other]), Some(0), "a rule for another GPU");
    let never = GpuRule { never: true, ..limit(12_000) };
    assert_eq!(free(hidden(), &[never]), None);
    let measured = card(0, Vendor::Intel, 16_000, Ok(10_000), Some(0));
    assert_eq!(free(measured, &[limit(12_000)]), Some(6000), "what is measured counts");
    let faulty = card(0, Vendor::Amd, 16_000, unknown(), None);
    assert_eq!(free(faulty, &[limit(12_000)]), Some(0), "a value that is missing by a fault");
}

/// The variables of a worker on these GPUs.
fn variables(gpus: &[u32], view: &View) -> BTreeMap<String, String> {
    let memory = gpus.iter().map(|gpu| (*gpu, 1)).collect();
    environment(&grants(&memory, view), view)
}

#[test]
fn without_rules_every_gpu_is_usable() {
    assert_eq!(usable(&[], &PausedGpus::new(), &two()), [(0, 7000), (1, 15_500)].into());
    assert_eq!(offered(&[], &two()), (two().list(), None));
}

#[test]
fn an_excluded_gpu_is_neither_offered_nor_usable() {
    let rules = [GpuRule { never: true, ..rule("1") }];
    assert_eq!(usable(&rules, &PausedGpus::new(), &two()), [(0, 7000)].into());
    let (gpus, none) = offered(&rules, &two());
    assert_eq!((gpus.len(), gpus[0].index, none), (1, 0, None));
    let all = [GpuRule { never: true, ..rule("0") }, GpuRule { never: true, ..rule("1") }];
    let (gpus, none) = offered(&all, &two());
    assert!(gpus.is_empty() && none.is_some());
    assert!(usable(&all, &PausedGpus::new(), &two()).is_empty());
}

#[test]
fn drivers_see_only_granted_gpus() {
    let view = two();
    let nvidia = variables(&[0], &view);
    assert_eq!((nvidia[CUDA].as_str(), nvidia[ROCM].as_str()), (view.cards[0].seen.id.as_str(), ""));
    assert!(!nvidia.contains_key(VULKAN), "engines select Vulkan's devices by address");
    assert!(variables(&[0, 1], &view).is_empty(), "nothing has to be hidden");
    let hidden = variables(&[], &view);
    assert!(hidden.len() == 3 && hidden.values().all(String::is_empty), "{hidden:?}");
    assert!(variables(&[], &View::default()).is_empty());
}

#[test]
fn an_instance_of_a_gpu_is_selected_by_name() {
    let mut view = view(vec![card(0, Vendor::Nvidia, 8000, Ok(0), None)]);
    view.cards[0].seen.address = "0000:03:00.0#01".into();
    assert_eq!(variables(&[0], &view)[CUDA], view.cards[0].seen.id);
    let grant = &grants(&[(0, 4000)].into(), &view)[0];
    assert_eq!((grant.address.as_deref(), grant.memory_mb), (Some("0000:03:00.0"), 4000));
}

#[test]
fn a_gpu_without_name_is_granted_by_address() {
    let mut view = two();
    (view.cards[0].seen.vendor, view.cards[0].seen.handle) = (Vendor::Intel, None);
    assert_eq!(grants(&[(0, 100), (1, 0)].into(), &view).len(), 1, "no grant without memory");
    let intel = variables(&[0], &view);
    assert!(intel.values().all(String::is_empty) && !intel.contains_key(VULKAN), "{intel:?}");
}

#[test]
fn a_limit_that_is_not_measured_pauses_the_gpu() {
    let mut view = two();
    view.cards[0].seen.temperature_c = Err("the driver has no temp1_input".into());
    let rules = [GpuRule { max_temperature_c: Some(80), ..rule("0") }];
    assert!(paused_gpus(&rules, &view, &PausedGpus::new())[&0].contains("temp1_input"));
    assert!(paused_gpus(&[], &view, &PausedGpus::new()).is_empty());
}

fn any_rule() -> impl Strategy<Value = GpuRule> {
    let limit = |most: u32| prop::option::of(0..most);
    (0_u32..4, any::<bool>(), limit(20_000), limit(120), limit(500)).prop_map(
        |(gpu, never, vram, max_temperature_c, max_power_w)| GpuRule {
            gpu: GpuName::Index(gpu),
            never,
            max_vram_mb: vram.map(u64::from),
            max_temperature_c,
            max_power_w,
        },
    )
}

fn any_view() -> impl Strategy<Value = View> {
    let vendor = prop_oneof![Just(Vendor::Nvidia), Just(Vendor::Amd), Just(Vendor::Intel)];
    let parts = (
        vendor,
        0_u64..20_000,
        prop::option::of(0_u64..20_000),
        prop::option::of(0_u64..20_000),
        0_u32..120,
        0_u32..500,
    );
    prop::collection::vec(parts, 0..4).prop_map(|cards| {
        let card = |(index, (vendor, vram, used, ours, celsius, watts)): (usize, _)| {
            let (used, ours): (Option<u64>, Option<u64>) = (used, ours);
            let used = used.map(|used| used.min(vram)).ok_or_else(|| "not reported".to_owned());
            let ours = ours.map(|ours| ours.min(used.clone().unwrap_or(0)));
            let mut card = card(index as u32, vendor, vram, used, ours);
            card.by_limit = vendor == Vendor::Intel && card.seen.used_mb.is_err();
            (card.seen.temperature_c, card.seen.power_w) = (Ok(celsius), Ok(watts as f32));
            if vendor == Vendor::Intel {
                card.seen.handle = None;
            }
            card
        };
        view(cards.into_iter().enumerate().map(card).collect())
    })
}

proptest! {
    /// For all rules and GPUs: what is usable is of an allowed GPU, within its limits and within free memory.
    #[test]
    fn usable_memory_keeps_every_rule(rules in prop::collection::vec(any_rule(), 0..5), view in any_view()) {
        let paused_gpus = paused_gpus(&rules, &view, &PausedGpus::new());
        for (index, free_mb) in usable(&rules, &paused_gpus, &view) {
            let card = &view.cards[index as usize];
            let limits = limits(&rules, card);
            prop_assert!(!limits.never && !paused_gpus.contains_key(&index));
            if let Ok(used) = card.seen.used_mb.clone() {
                prop_assert!(used + free_mb <= card.seen.vram_mb);
                if let Some(most) = limits.max_vram_mb {
                    prop_assert!(free_mb == 0 || card.ours_mb.unwrap_or(used) + free_mb <= most);
                }
            } else {
                // What is not measured is free only as far as a rule allows it.
                let allowed = limits.max_vram_mb.filter(|_| card.by_limit).unwrap_or(0);
                prop_assert!(free_mb <= allowed.min(card.seen.vram_mb));
            }
            if let Some(most) = limits.max_temperature_c {
                prop_assert!(card.seen.temperature_c.clone().expect("measured") < most);
            }
        }
    }

    /// For all grants: drivers with such variables see exactly the granted GPUs.
    #[test]
    fn exactly_granted_gpus_are_visible(view in any_view(), granted in prop::collection::btree_set(0_u32..4, 0..4)) {
        let granted: Vec<u32> = granted.into_iter().filter(|gpu| (*gpu as usize) < view.cards.len()).collect();
        let variables = variables(&granted, &view);
        prop_assert!(granted.is_empty() || !variables.contains_key(VULKAN));
        if granted.len() < view.cards.len() {
            let named: Vec<&str> = [CUDA, ROCM].iter().flat_map(|name| variables[*name].split(',')).filter(|name| !name.is_empty()).collect();
            let named_cards = granted.iter().filter_map(|gpu| view.cards[*gpu as usize].seen.handle.as_deref());
            prop_assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), named_cards.collect::<BTreeSet<_>>());
        }
    }

    /// A further rule never allows more, except the first limit of a GPU whose memory in use is hidden.
    #[test]
    fn a_further_rule_never_allows_more(rules in prop::collection::vec(any_rule(), 1..4), more in any_rule(), view in any_view()) {
        let free = |rules: &[GpuRule]| usable(rules, &paused_gpus(rules, &view, &PausedGpus::new()), &view);
        let memory = |rules: &[GpuRule]| offered(rules, &view).0.iter().map(|gpu| gpu.vram_mb).sum::<u64>();
        let with_more: Vec<_> = rules.iter().cloned().chain([more]).collect();
        let before = free(&rules);
        for (index, mb) in free(&with_more) {
            let card = &view.cards[index as usize];
            let is_first = card.by_limit && limits(&rules, card).max_vram_mb.is_none();
            prop_assert!(is_first || mb <= before[&index]);
        }
        prop_assert!(memory(&with_more) <= memory(&rules));
    }

    /// A paused GPU is resumed only well below its limit.
    #[test]
    fn resuming_has_a_margin(limit in 1_u32..120, first in 0_u32..150, then in 0_u32..150) {
        let rules = [GpuRule { max_temperature_c: Some(limit), ..rule("0") }];
        let at = |celsius| {
            let mut view = two();
            view.cards[0].seen.temperature_c = Ok(celsius);
            view
        };
        let before = paused_gpus(&rules, &at(first), &PausedGpus::new());
        prop_assert_eq!(before.contains_key(&0), first >= limit);
        let after = paused_gpus(&rules, &at(then), &before);
        let bound = if before.is_empty() { limit as f32 } else { limit as f32 * RECOVERED };
        prop_assert_eq!(after.contains_key(&0), then as f32 >= bound);
        prop_assert!(!after.contains_key(&1), "no other");
    }
}
