use std::collections::BTreeSet;

use island_protocol::{
    asking::Asking,
    cargo::SandboxTier,
    credits::MicroCredits,
    host::{CONTINUES_FORMS, ContainerOffer, PORTABLE, RuntimeReport},
};
use island_protocol_api::preferences::{Own, Preferences, Sort};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn cargo(ram: u64, vram: u64) -> CargoSpec {
    CargoSpec {
        price_per_job: MicroCredits::ZERO,
        token_prices: island_protocol::cargo::TokenPrices::default(),
        slug: "m".parse().expect("slug"),
        runtime_type: RuntimeType::Llmcpp,
        onnx_task_type: None,
        artifacts: vec![Artifact {
            name: "model".into(),
            url: "hf://a/b:m.gguf".into(),
            sha256: None,
            size_bytes: None,
        }],
        required_vram_mb: vram,
        required_ram_mb: ram,
        limits: island_protocol::cargo::Limits::default(),
        sandbox_tier: None,
        engine: serde_json::Value::Null,
    }
}

fn capabilities(hub: Option<bool>) -> Capabilities {
    let report = RuntimeReport {
        kind: RuntimeType::Llmcpp,
        available: true,
        reason: None,
        version: None,
        simulated: false,
        backend: None,
        devices: None,
        gpus: None,
        features: Vec::new(),
    };
    Capabilities {
        platform: "linux-x86_64".into(),
        cpu_model: String::new(),
        cpu_cores: 4,
        ram_mb: 16_000,
        gpus: vec![],
        no_gpu_reason: None,
        runtimes: vec![report],
        sandbox: island_protocol::host::SandboxReport::default(),
        hub_reachable: hub,
        ..Capabilities::default()
    }
}

fn candidate<'a>(n: u128, capabilities: &'a Capabilities, models: &'a [HostModel]) -> Candidate<'a> {
    Candidate {
        id: HostId(Uuid::from_u128(n)),
        account: AccountId(Uuid::from_u128(n)),
        region: None,
        trust: Trust::Normal,
        capabilities,
        models,
        online: true,
        draining: false,
        free_slots: 2,
        free_ram_mb: 8_000,
        free_vram: Cow::default(),
        karma_ms: 0,
        paces: Cow::default(),
        tokens_per_second: None,
        running: 0,
        last_resort: false,
        unreliability: 0,
        failures: 0,
    }
}

const JOB: JobId = JobId(Uuid::from_u128(1));

/// Islands that can take a job, best first, and the number of other Islands for each reason.
struct Ranking {
    hosts: Vec<HostId>,
    reasons: Reasons,
}

/// Takes the best Island away until none is left that can take the job.
fn rank<'a>(cargo: &CargoSpec, fleet: impl IntoIterator<Item = Candidate<'a>>) -> Ranking {
    let (mut left, mut hosts): (Vec<_>, _) = (fleet.into_iter().collect(), Vec::new());
    loop {
        match best(cargo, JOB, &Selection::default(), left.iter().cloned()) {
            Ok(id) => {
                left.retain(|island| island.id != id);
                hosts.push(id);
            }
            Err(reasons) => return Ranking { hosts, reasons },
        }
    }
}

fn gpu(free_mb: u64) -> Cow<'static, Vram> {
    Cow::Owned([(0, free_mb)].into())
}

fn model(warm: bool) -> HostModel {
    HostModel {
        url: "hf://a/b:m.gguf".into(),
        sha256: None,
        size_mb: 400,
        warm,
        free_slots: 1,
        ram_mb: 0,
        vram_mb: 0,
    }
}

#[test]
fn warm_before_disk_before_download_and_fresh_before_tried() {
    let caps = capabilities(Some(true));
    let (warm, disk) = ([model(true)], [model(false)]);
    let mut tried = candidate(4, &caps, &warm);
    tried.failures = 1;
    let fleet = [candidate(1, &caps, &[]), candidate(2, &caps, &disk), tried, candidate(3, &caps, &warm)];
    let order: Vec<u128> = rank(&cargo(1_000, 0), fleet).hosts.iter().map(|h| h.0.as_u128()).collect();
    assert_eq!(order, [3, 2, 1, 4]);
}

#[test]
fn a_clearly_faster_island_comes_first_until_its_speed_is_shared() {
    let caps = capabilities(Some(true));
    let fast = |running: u32| Candidate {
        tokens_per_second: Some(80.0),
        running,
        free_slots: 9 - i64::from(running),
        ..candidate(1, &caps, &[])
    };
    let slow =
        |free_slots: i64| Candidate { tokens_per_second: Some(20.0), free_slots, ..candidate(2, &caps, &[]) };
    let first = |fleet: [Candidate<'_>; 2]| rank(&cargo(1_000, 0), fleet).hosts[0].0.as_u128();
    assert_eq!(first([fast(0), slow(9)]), 1);
    assert_eq!(first([fast(1), slow(9)]), 1, "half of it is still twice as fast");
    assert_eq!(first([fast(3), slow(9)]), 2, "a quarter of it is not, and the other is free");
    let unknown = Candidate { tokens_per_second: None, free_slots: 9, ..candidate(3, &caps, &[]) };
    assert_eq!(first([slow(2), unknown.clone()]), 2, "nobody knows what the other does");
    let hardly = Candidate { tokens_per_second: Some(22.0), free_slots: 1, ..candidate(4, &caps, &[]) };
    assert_eq!(first([hardly, slow(2)]), 2, "a tenth is noise");
}

#[test]
fn a_minimum_price_excludes_cheaper_jobs() {
    let mut caps = capabilities(Some(true));
    let paying = |micro: i64| CargoSpec { price_per_job: MicroCredits(micro), ..cargo(1_000, 0) };
    let reason = |caps: &Capabilities, cargo: &CargoSpec| usable(cargo, &candidate(1, caps, &[])).err();
    caps.asking = Some(Asking { per_job: MicroCredits(100), ..Asking::default() });
    assert_eq!(reason(&caps, &paying(99)), Some(Reason::Price));
    assert_eq!(reason(&caps, &paying(100)), None);
    let of_this = [("m".parse().expect("a slug"), MicroCredits::ZERO)].into();
    caps.asking = Some(Asking { cargos: of_this, ..caps.asking.clone().expect("set above") });
    assert_eq!(reason(&caps, &paying(0)), None, "the price of one Cargo overrides the general one");
}

fn shipped(slug: &str, bytes: u64) -> CargoSpec {
    let model = Artifact {
        name: "model".into(),
        url: format!("file:///cargos/{slug}"),
        sha256: Some(island_protocol::digest::Digest::from_bytes([bytes as u8; 32])),
        size_bytes: Some(bytes),
    };
    CargoSpec { slug: slug.parse().expect("a slug"), artifacts: vec![model], ..cargo(100, 0) }
}

#[test]
fn a_check_uses_a_near_and_small_model_and_downloads_none_from_elsewhere() {
    let caps = capabilities(Some(true));
    let island = candidate(1, &caps, &[]);
    let chosen = |cargos: &[CargoSpec]| quickest(cargos, &island).map(|cargo| cargo.slug.to_string());
    let (small, large, far) = (shipped("small", 7), shipped("large", 9), cargo(100, 0));
    assert_eq!(chosen(&[large.clone(), far.clone(), small.clone()]), Ok("small".to_owned()));
    let disk = [model(false)];
    let near = candidate(1, &caps, &disk);
    assert_eq!(quickest([&small, &far], &near).map(|cargo| cargo.slug.as_str()), Ok("m"), "on disk");
    assert_eq!(chosen(std::slice::from_ref(&far)), Err(None), "it would have to come from elsewhere");
    let full = Candidate { free_slots: 0, ..candidate(1, &caps, &[]) };
    assert_eq!(quickest([&small, &large], &full).err(), Some(Some(Reason::NoSlot)));
    let mut with_gpu = capabilities(Some(true));
    with_gpu.runtimes[0].gpus = Some(vec![0]);
    let gpu_island = Candidate { free_vram: gpu(4000), ..candidate(1, &with_gpu, &[]) };
    let on_gpu = CargoSpec { required_vram_mb: 100, ..large.clone() };
    let cargos = [&small, &on_gpu];
    assert_eq!(quickest(cargos, &gpu_island).map(|cargo| cargo.slug.as_str()), Ok("large"), "on the GPU");
    assert_eq!(quickest(cargos, &island).map(|cargo| cargo.slug.as_str()), Ok("small"), "without one");
    let scripted = CargoSpec { engine: serde_json::json!({"simulated": true}), ..shipped("aa", 1) };
    let report = |simulated| RuntimeReport { simulated, ..caps.runtimes[0].clone() };
    let both = Capabilities { runtimes: vec![report(true), report(false)], ..capabilities(Some(true)) };
    let both = candidate(1, &both, &[]);
    assert_eq!(quickest([&scripted, &small], &both).map(|cargo| cargo.slug.as_str()), Ok("small"));
}

#[test]
fn a_native_back_end_before_a_portable_one_but_not_before_a_warm_model() {
    let says = |backend: Option<&str>| {
        let mut caps = capabilities(Some(true));
        caps.runtimes[0].kind = RuntimeType::Coreml;
        caps.runtimes[0].backend = backend.map(str::to_owned);
        caps
    };
    let mut cargo = cargo(1_000, 0);
    cargo.runtime_type = RuntimeType::Coreml;
    let (native, portable, silent) = (says(Some(NATIVE)), says(Some(PORTABLE)), says(None));
    let order = |fleet: Vec<Candidate<'_>>| -> Vec<u128> {
        rank(&cargo, fleet).hosts.iter().map(|host| host.0.as_u128()).collect()
    };
    let (warm, disk) = ([model(true)], [model(false)]);
    let mut idle = candidate(1, &portable, &disk);
    (idle.free_slots, idle.free_vram, idle.karma_ms) = (9, gpu(8_000), 9 * 3_600_000);
    let older = candidate(2, &silent, &disk);
    assert_eq!(order(vec![idle.clone(), older, candidate(3, &native, &disk)]), [3, 1, 2]);
    assert_eq!(order(vec![candidate(3, &native, &disk), candidate(4, &portable, &warm)]), [4, 3]);
    let mut tried = candidate(3, &native, &disk);
    tried.failures = 1;
    assert_eq!(order(vec![tried, idle]), [1, 3]);
}

#[test]
fn reasons_are_counted() {
    let (online, offline) = (capabilities(Some(true)), capabilities(Some(false)));
    let mut small = candidate(1, &online, &[]);
    small.free_ram_mb = 10;
    let mut away = candidate(2, &online, &[]);
    away.online = false;
    let mut full = candidate(3, &online, &[]);
    full.free_slots = 0;
    let ranking = rank(&cargo(1_000, 0), [small, away, full, candidate(4, &offline, &[])]);
    assert!(ranking.hosts.is_empty());
    let reasons: Vec<_> = ranking.reasons.into_iter().collect();
    assert_eq!(
        reasons,
        [(Reason::Offline, 1), (Reason::ModelUnreachable, 1), (Reason::NoRam, 1), (Reason::NoSlot, 1)]
    );
}

#[test]
fn a_language_model_too_large_for_the_gpu_runs_in_main_memory_and_an_image_model_does_not() {
    let caps = capabilities(Some(true));
    let mut island = candidate(1, &caps, &[]);
    island.free_vram = gpu(4_000);
    let mut big = cargo(6_000, 6_000);
    assert_eq!(usable(&big, &island), Ok(Nearness::Remote));
    big.runtime_type = RuntimeType::Diffusers;
    assert_eq!(usable(&big, &island), Err(Reason::NoRuntime));
}

#[test]
fn a_gpu_counts_only_for_engines_that_use_it() {
    let with = |gpus: Option<Vec<u32>>| {
        let mut caps = capabilities(Some(true));
        let gpu = |index, vram_mb| island_protocol::host::Gpu { index, vram_mb, ..Default::default() };
        caps.gpus = vec![gpu(0, 24_000), gpu(1, 8_000)];
        (caps.runtimes[0].gpus, caps.ram_mb) = (gpus, 16_000);
        caps
    };
    let large = cargo(19_690, 19_690);
    let (all, second, none, older) =
        (with(Some(vec![0, 1])), with(Some(vec![1])), with(Some(vec![])), with(None));
    let able_on = |caps: &Capabilities| able(&large, &candidate(1, caps, &[])).err();
    assert_eq!(able_on(&all), None, "a GPU of 24 GB in a machine with 16 GB");
    assert_eq!(able_on(&none), Some(Reason::NoRam), "its engine runs on the processor");
    assert_eq!(able_on(&second), None, "a part of it on a GPU, the rest in main memory");
    assert_eq!(able_on(&older), Some(Reason::NoRam), "an older agent requires main memory in full");
    let sum = cargo(30_000, 30_000);
    let mut images = sum.clone();
    images.runtime_type = RuntimeType::Diffusers;
    let mut caps = all.clone();
    caps.runtimes[0].kind = RuntimeType::Diffusers;
    assert_eq!(able(&sum, &candidate(1, &all, &[])).err(), None, "llama.cpp splits it");
    assert_eq!(able(&images, &candidate(1, &caps, &[])).err(), Some(Reason::NoRam), "others do not");
    let mut split = Capabilities { ram_mb: 8_000, ..all.clone() };
    assert_eq!(able(&sum, &candidate(1, &split, &[])).err(), None, "two cards hold it");
    split.gpus.iter_mut().for_each(|gpu| gpu.part_of = Some("a card".into()));
    assert_eq!(able(&sum, &candidate(1, &split, &[])).err(), Some(Reason::NoRam), "two parts of one do not");
    let free = |mb| Candidate { free_vram: gpu(mb), ..candidate(2, &all, &[]) };
    let small = cargo(4000, 4000);
    let order = |fleet: Vec<Candidate<'_>>| {
        rank(&small, fleet).hosts.into_iter().map(|host| host.0.as_u128()).collect::<Vec<_>>()
    };
    let processor = Candidate { free_slots: 9, free_vram: gpu(24_000), ..candidate(1, &none, &[]) };
    assert_eq!(order(vec![processor.clone(), free(5000)]), [2, 1], "the GPU first");
    assert_eq!(order(vec![processor, free(0)]), [1, 2], "a full one does not help");
}

#[test]
fn containers_beyond_the_owners_rules_are_not_offered() {
    let offer = |max_tier, egress: serde_json::Value| {
        let mut caps = capabilities(Some(true));
        caps.runtimes[0].kind = RuntimeType::Container;
        let egress = serde_json::from_value(egress).expect("a rule");
        caps.containers = Some(ContainerOffer { max_tier, egress });
        caps
    };
    let mut cargo = cargo(100, 0);
    cargo.runtime_type = RuntimeType::Container;
    let found = |cargo: &CargoSpec, caps: &Capabilities| usable(cargo, &candidate(1, caps, &[])).err();
    let (none, declared) = (serde_json::json!("none"), serde_json::json!("declared"));
    let low = offer(SandboxTier::Restricted, none.clone());
    let high = offer(SandboxTier::Elevated, none);
    assert_eq!(found(&cargo, &low), None, "without a tier, the lowest is required");
    cargo.sandbox_tier = Some(SandboxTier::Elevated);
    assert_eq!((found(&cargo, &low), found(&cargo, &high)), (Some(Reason::NoTier), None));
    cargo.engine = serde_json::json!({"egress": ["a.org:443"]});
    assert_eq!(found(&cargo, &high), Some(Reason::NoEgress));
    for (egress, reason) in [
        (declared, None),
        (serde_json::json!(["a.org"]), None),
        (serde_json::json!(["a.org:80"]), Some(Reason::NoEgress)),
    ] {
        assert_eq!(found(&cargo, &offer(SandboxTier::Elevated, egress)), reason);
    }
    let mut silent = high;
    silent.containers = None;
    assert_eq!(found(&cargo, &silent), None, "an older Island is asked, and may refuse");
}

proptest! {
    #[test]
    fn every_island_is_ranked_or_counted_and_none_beyond_capacity(
        islands in prop::collection::vec((any::<bool>(), any::<bool>(), -2_i64..4, 0_i64..10_000, 0_u64..10_000, 0_u8..3), 0..20),
        ram in 0_u64..10_000, vram in 0_u64..10_000,
    ) {
        let caps = capabilities(Some(true));
        let (warm, disk) = ([model(true)], [model(false)]);
        let fleet: Vec<_> = islands.iter().enumerate().map(|(n, (online, draining, slots, ram, vram, held))| {
            let models: &[HostModel] = match held { 0 => &[], 1 => &disk, _ => &warm };
            let mut island = candidate(n as u128, &caps, models);
            (island.online, island.draining, island.free_slots) = (*online, *draining, *slots);
            (island.free_ram_mb, island.free_vram) = (*ram, gpu(*vram));
            island
        }).collect();
        let cargo = cargo(ram, vram);
        let ranking = rank(&cargo, fleet.iter().cloned());
        prop_assert_eq!(ranking.hosts.len() as u64 + ranking.reasons.values().sum::<u64>(), fleet.len() as u64);
        for id in ranking.hosts {
            let island = fleet.iter().find(|island| island.id == id).expect("ranked islands come from the fleet");
            prop_assert!(island.online && !island.draining && island.free_slots > 0);
            let warm = island.models.iter().any(|model| model.warm);
            prop_assert!(warm || island.free_ram_mb >= need(&cargo, island).ram_mb as i64);
        }
    }

    #[test]
    fn among_equals_native_engines_come_first_and_none_is_left_out(natives in prop::collection::vec(any::<bool>(), 0..20)) {
        let says = |backend: &str| {
            let mut caps = capabilities(Some(true));
            caps.runtimes[0].backend = Some(backend.to_owned());
            caps
        };
        let (native, portable) = (says(NATIVE), says(PORTABLE));
        let of = |(n, is_native): (usize, &bool)| {
            candidate(n as u128, if *is_native { &native } else { &portable }, &[])
        };
        let ranking = rank(&cargo(1_000, 0), natives.iter().enumerate().map(of));
        let ranked: Vec<bool> = ranking.hosts.iter().map(|host| natives[host.0.as_u128() as usize]).collect();
        prop_assert_eq!(ranked.len(), natives.len());
        prop_assert!(ranked.is_sorted_by_key(|is_native| !is_native));
    }
}

fn chosen(selection: &Selection, islands: &[Candidate<'_>]) -> Result<HostId, Reasons> {
    best(&cargo(100, 0), JOB, selection, islands.iter().cloned())
}

#[test]
fn preferences_exclude_islands_and_say_so() {
    let caps = capabilities(Some(true));
    let account = AccountId(Uuid::from_u128(1));
    let islands = [
        Candidate { region: Some("EU"), tokens_per_second: Some(9.0), ..candidate(1, &caps, &[]) },
        Candidate {
            trust: Trust::High,
            region: Some("us"),
            tokens_per_second: Some(90.0),
            ..candidate(2, &caps, &[])
        },
        Candidate { tokens_per_second: Some(900.0), ..candidate(3, &caps, &[]) },
    ];
    let host = |n: u128| HostId(Uuid::from_u128(n));
    let with = |preferences: Preferences| {
        let selection = Selection { account: Some(account), preferences, ..Selection::default() };
        chosen(&selection, &islands)
    };
    assert_eq!(with(Preferences::default()), Ok(host(3)));
    assert_eq!(with(Preferences { ignore: vec![host(3)], ..Default::default() }), Ok(host(2)));
    assert_eq!(with(Preferences { only: vec![host(1), host(2)], ..Default::default() }), Ok(host(2)));
    assert_eq!(with(Preferences { regions: vec!["eu".into()], ..Default::default() }), Ok(host(1)));
    assert_eq!(with(Preferences { own: Some(Own::First), ..Default::default() }), Ok(host(1)));
    assert_eq!(with(Preferences { own: Some(Own::Only), ..Default::default() }), Ok(host(1)));
    assert_eq!(with(Preferences { trusted: true, ..Default::default() }), Ok(host(2)), "own or trusted");
    let nowhere = Preferences { regions: vec!["moon".into()], ..Default::default() };
    assert_eq!(with(nowhere), Err(Reasons::from([(Reason::Preferences, 3)])));
    let stranger = Selection {
        preferences: Preferences { own: Some(Own::Only), ..Default::default() },
        ..Selection::default()
    };
    assert!(chosen(&stranger, &islands).is_err(), "no account owns nothing");
}

#[test]
fn a_reply_with_an_enforced_form_continues_only_where_the_engine_can() {
    let old = capabilities(Some(true));
    let mut new = old.clone();
    new.runtimes[0].features = vec![CONTINUES_FORMS.to_owned()];
    let host = |n: u128| HostId(Uuid::from_u128(n));
    let faster = |n, caps| Candidate { tokens_per_second: Some(900.0), ..candidate(n, caps, &[]) };
    let continued = Selection { continues_form: true, ..Selection::default() };
    let islands = [faster(1, &old), candidate(2, &new, &[])];
    assert_eq!(chosen(&Selection::default(), &islands), Ok(host(1)));
    assert_eq!(chosen(&continued, &islands), Ok(host(2)));
    let offline = Candidate { online: false, ..candidate(3, &old, &[]) };
    let none = chosen(&continued, &[faster(1, &old), offline]);
    assert_eq!(
        none,
        Err(Reasons::from([(Reason::NoRuntime, 2)])),
        "an old one that returns could not either"
    );
    let busy = Candidate { free_slots: 0, ..candidate(4, &new, &[]) };
    let none = chosen(&continued, &[faster(1, &old), busy]);
    assert_eq!(none, Err(Reasons::from([(Reason::NoRuntime, 1), (Reason::NoSlot, 1)])));
}

#[test]
fn the_island_of_a_conversation_comes_first_unless_another_is_much_faster() {
    let caps = capabilities(Some(true));
    let models = [model(true)];
    let holder = |speed: f64| Candidate { tokens_per_second: Some(speed), ..candidate(2, &caps, &models) };
    let other = |speed: f64| Candidate {
        tokens_per_second: Some(speed),
        free_slots: 9,
        ..candidate(1, &caps, &models)
    };
    let host = |n: u128| HostId(Uuid::from_u128(n));
    let selection = Selection { holder: Some(host(2)), ..Selection::default() };
    let nothing = Selection::default();
    assert_eq!(chosen(&nothing, &[holder(16.0), other(16.0)]), Ok(host(1)));
    assert_eq!(chosen(&selection, &[holder(16.0), other(16.0)]), Ok(host(2)));
    assert_eq!(chosen(&selection, &[holder(16.0), other(33.0)]), Ok(host(2)));
    assert_eq!(chosen(&selection, &[holder(16.0), other(129.0)]), Ok(host(1)));
    let full = Candidate { free_slots: 0, ..holder(16.0) };
    assert_eq!(chosen(&selection, &[full, other(16.0)]), Ok(host(1)));
}

#[test]
fn equal_islands_share_the_jobs_evenly() {
    let (caps, cargo) = (capabilities(Some(true)), cargo(100, 0));
    // Ids that differ in one digit, as those of jobs which are created one after another.
    let job = |n: u128| JobId(Uuid::from_u128((0x0199_7d5e_0000_7000_8000_u128 << 48) + n));
    for islands in 2..=8_u128 {
        let fleet: Vec<_> = (1..=islands).map(|n| candidate(n, &caps, &[])).collect();
        let mut shares: BTreeMap<HostId, u128> = fleet.iter().map(|island| (island.id, 0)).collect();
        for n in 0..islands * 250 {
            let chosen =
                best(&cargo, job(n), &Selection::default(), fleet.iter().cloned()).expect("an Island");
            *shares.entry(chosen).or_default() += 1;
        }
        assert!(shares.values().all(|share| (150..=350).contains(share)), "{shares:?}");
    }
}

#[test]
fn an_island_with_ten_hours_of_karma_is_preferred_as_much_as_one_with_any_more() {
    const HOUR_MS: i64 = 3_600_000;
    let (caps, cargo) = (capabilities(Some(true)), cargo(100, 0));
    let with = |n, karma_ms| Candidate { karma_ms, ..candidate(n, &caps, &[]) };
    let chosen = |fleet: &[Candidate<'_>]| -> BTreeSet<u128> {
        let of = |n| best(&cargo, JobId(Uuid::from_u128(n)), &Selection::default(), fleet.iter().cloned());
        (0..100).map(|n| of(n).expect("an Island").0.as_u128()).collect()
    };
    assert_eq!(chosen(&[with(1, 10 * HOUR_MS), with(2, 900 * HOUR_MS)]), BTreeSet::from([1, 2]));
    assert_eq!(chosen(&[with(1, 10 * HOUR_MS - 1), with(2, 10 * HOUR_MS)]), BTreeSet::from([2]));
    assert_eq!(chosen(&[with(1, 0), with(2, HOUR_MS - 1)]), BTreeSet::from([1, 2]));
}

#[test]
fn equal_islands_share_only_what_none_of_them_is_better_for() {
    let (caps, cargo, models) = (capabilities(Some(true)), cargo(100, 0), [model(true)]);
    let equal = |n| candidate(n, &caps, &models);
    for n in 0..100 {
        let placed = |selection: &Selection, fleet: Vec<Candidate<'_>>| {
            best(&cargo, JobId(Uuid::from_u128(n)), selection, fleet).map(|island| island.0.as_u128())
        };
        let holder = Selection { holder: Some(equal(2).id), ..Selection::default() };
        assert_eq!(placed(&holder, vec![equal(1), equal(2), equal(3)]), Ok(2), "it has the conversation");
        let freer = Candidate { free_slots: 3, ..equal(3) };
        assert_eq!(placed(&Selection::default(), vec![equal(1), freer.clone(), equal(2)]), Ok(3));
        assert_eq!(placed(&Selection::default(), vec![freer, equal(1), equal(2)]), Ok(3));
    }
}

proptest! {
    #[test]
    fn a_job_goes_to_the_same_of_equal_islands_whatever_their_order_and_stays_if_others_leave(
        job in any::<u128>(),
        fleet in prop::collection::btree_set(any::<u128>(), 1..12)
            .prop_map(|ids| ids.into_iter().collect::<Vec<_>>())
            .prop_shuffle(),
    ) {
        let (caps, cargo) = (capabilities(Some(true)), cargo(100, 0));
        let placed = |ids: &[u128]| {
            let islands: Vec<_> = ids.iter().map(|n| candidate(*n, &caps, &[])).collect();
            best(&cargo, JobId(Uuid::from_u128(job)), &Selection::default(), islands).expect("an Island")
        };
        let chosen = placed(&fleet);
        let mut sorted = fleet.clone();
        sorted.sort_unstable();
        prop_assert_eq!(placed(&sorted), chosen);
        for gone in fleet.iter().filter(|n| **n != chosen.0.as_u128()) {
            let left: Vec<u128> = fleet.iter().copied().filter(|n| n != gone).collect();
            prop_assert_eq!(placed(&left), chosen);
        }
    }
}

#[test]
fn throughput_prefers_the_faster_island_over_a_loaded_model() {
    let caps = capabilities(Some(true));
    let (loaded, stored) = ([model(true)], [model(false)]);
    let warm = Candidate { tokens_per_second: Some(10.0), ..candidate(1, &caps, &loaded) };
    let fast = Candidate { tokens_per_second: Some(100.0), ..candidate(2, &caps, &stored) };
    let sorted = |sort| {
        let preferences = Preferences { sort, ..Preferences::default() };
        chosen(&Selection { preferences, ..Selection::default() }, &[warm.clone(), fast.clone()])
    };
    let host = |n: u128| Ok(HostId(Uuid::from_u128(n)));
    assert_eq!(sorted(None), host(1));
    assert_eq!(sorted(Some(Sort::Latency)), host(1));
    assert_eq!(sorted(Some(Sort::Throughput)), host(2));
}
