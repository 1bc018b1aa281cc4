use island_protocol::{host::Headroom, ids::JobId};
use uuid::Uuid;

use super::*;
use crate::samples::{HOST, capabilities, cargo_spec, fleet, heartbeat};

fn key(n: u128) -> AttemptKey {
    AttemptKey { job_id: JobId(Uuid::from_u128(n)), attempt: 1, epoch: 1 }
}

#[test]
fn an_island_that_left_is_removed_and_not_added_again() {
    let (fleet, now) = fleet();
    let left = || {
        let newcomer = Enrolled::new(HOST, AccountId(Uuid::from_u128(2)), String::new(), "one".into());
        Enrolled { has_left: true, ..newcomer }
    };
    assert_eq!(fleet.snapshot(now).islands.len(), 1);
    for _ in 0..2 {
        fleet.refresh(left());
        assert_eq!((fleet.snapshot(now).islands.len(), fleet.account_and_key(HOST)), (0, None));
    }
}

fn place(fleet: &Fleet, n: u128, now: Instant) -> bool {
    fleet.place(&cargo_spec(), key(n), &PlacementHistory::default(), now).is_ok()
}

#[test]
fn an_island_is_compared_once_from_choice_to_claim() {
    let (fleet, now) = fleet();
    let add = |n: u128, capabilities: Capabilities| {
        let newcomer = Enrolled::new(
            HostId(Uuid::from_u128(n)),
            AccountId(Uuid::from_u128(2)),
            String::new(),
            n.to_string(),
        );
        fleet.enroll(Enrolled { capabilities: Some(Arc::new(capabilities)), ..newcomer });
        let heartbeat = Heartbeat { host_id: HostId(Uuid::from_u128(n)), ..heartbeat(1, &[]) };
        fleet.heartbeat(heartbeat, now, Timestamp::from_unix_ms(0));
    };
    add(1, capabilities());
    add(2, capabilities());
    for n in 3..20 {
        add(n, Capabilities { runtimes: Vec::new(), ..capabilities() });
    }
    let islands = fleet.snapshot(now);
    // The choice among models, then the check of the chosen one.
    assert_eq!(islands.outlook(&cargo_spec()).nearest, Some(crate::placement::Nearness::OnDisk));
    let outlook = islands.outlook(&cargo_spec());
    assert_eq!((outlook.is_hopeful(), outlook.reasons.values().sum::<u64>()), (true, 17));
    let candidates = Candidates::new(islands.clone(), outlook);
    let (history, claimed) = (PlacementHistory::default(), key(1));
    fleet.place_among(candidates.hosts(), &cargo_spec(), claimed, &history, now).expect("an Island");
    assert_eq!(islands.walks.load(std::sync::atomic::Ordering::Relaxed), 1, "all of them once");
    assert_eq!(
        fleet.considered.load(std::sync::atomic::Ordering::Relaxed),
        2,
        "those that can, for the claim"
    );
}

#[test]
fn slots_assigned_since_the_last_heartbeat_are_taken_and_ended_ones_free() {
    let (fleet, now) = fleet();
    let at = Timestamp::from_unix_ms(0);
    assert!(!place(&fleet, 1, now), "no heartbeat yet");
    fleet.heartbeat(heartbeat(2, &[]), now, at);
    assert!(place(&fleet, 1, now) && place(&fleet, 2, now));
    assert!(!place(&fleet, 3, now), "both slots are given away");
    fleet.release(HOST, key(1));
    assert!(place(&fleet, 3, now), "one was given back before any heartbeat listed it");
    fleet.heartbeat(heartbeat(0, &[key(2), key(3)]), now, at);
    assert!(!place(&fleet, 4, now));
    fleet.release(HOST, key(3));
    assert!(place(&fleet, 4, now), "one ended since the heartbeat that listed it");
    assert!(!place(&fleet, 5, now));
}

#[test]
fn an_island_without_heartbeats_is_offline_until_the_next_one() {
    let (fleet, now) = fleet();
    fleet.heartbeat(heartbeat(2, &[]), now, Timestamp::from_unix_ms(0));
    let later = now + Duration::from_secs(15);
    assert_eq!(fleet.snapshot(later).islands[0].status, "offline");
    assert!(!place(&fleet, 1, later));
    fleet.heartbeat(heartbeat(2, &[]), later, Timestamp::from_unix_ms(0));
    assert_eq!(fleet.snapshot(later).islands[0].status, "online");
    assert!(place(&fleet, 1, later));
}

#[test]
fn an_island_that_reports_free_slots_and_refuses_for_want_of_one_comes_last() {
    let (fleet, now) = fleet();
    let at = Timestamp::from_unix_ms(0);
    let slug: Slug = "a".parse().expect("slug");
    let is_failing = || fleet.lock()[&HOST].health.is_failing(Some(&slug), now);
    // Other coordinators may have taken the slots since a heartbeat: the Island reports it with the next one.
    for _ in 0..10 {
        fleet.heartbeat(heartbeat(1, &[]), now, at);
        fleet.heartbeat(heartbeat(0, &[]), now, at);
        fleet.observe(HOST, &slug, Conduct::Full, now);
    }
    assert!(!is_failing());
    for _ in 0..3 {
        assert!(!is_failing());
        fleet.heartbeat(heartbeat(1, &[]), now, at);
        fleet.observe(HOST, &slug, Conduct::Full, now);
    }
    assert!(is_failing());
    fleet.observe(HOST, &slug, Conduct::Completed, now);
    fleet.observe(HOST, &slug, Conduct::Full, now);
    assert!(!is_failing());
}

#[test]
fn an_island_that_enrolled_to_another_account_earns_for_it() {
    let (fleet, _) = fleet();
    let other = AccountId(Uuid::from_u128(7));
    fleet.refresh(Enrolled::new(HOST, other, String::new(), "one".into()));
    assert_eq!(fleet.account_and_key(HOST).map(|(account, _)| account), Some(other));
}

#[test]
fn a_row_from_before_a_registration_does_not_take_its_name_back() {
    let (fleet, now) = fleet();
    let row = |name: &str| Enrolled::new(HOST, AccountId(Uuid::from_u128(2)), String::new(), name.into());
    let name = || fleet.view(HOST, now).expect("an Island").name;
    fleet.refresh(row("renamed elsewhere"));
    assert_eq!(name(), "renamed elsewhere");
    let registration = Register {
        v: 1,
        host_id: HOST,
        instance: InstanceId(Uuid::from_u128(9)),
        name: "registered".into(),
        region: None,
        agent_version: "0".into(),
        capabilities: capabilities(),
        holding: Vec::new(),
        versions: None,
        reads_refusals: false,
        sent_at: Timestamp::from_unix_ms(0),
    };
    fleet.register(&registration, now, Timestamp::from_unix_ms(0));
    fleet.refresh(row("renamed elsewhere"));
    assert_eq!(name(), "registered");
}

#[test]
fn a_page_of_ten_thousand_islands_has_only_its_own() {
    let fleet = Fleet::new(Duration::from_mins(1));
    let accounts = [1, 2].map(|n| AccountId(Uuid::from_u128(n)));
    for n in 0..10_000_u128 {
        let name = if n.is_multiple_of(100) { format!("Attic {n}") } else { format!("cellar {n}") };
        let account = accounts[usize::from(n.is_multiple_of(10))];
        fleet.enroll(Enrolled::new(HostId(Uuid::from_u128(n)), account, String::new(), name));
    }
    let snapshot = fleet.snapshot(Instant::now());
    let all = IslandFilter::default();
    let attic = IslandFilter { text: "attic".into(), ..all.clone() };
    for (filter, offset, expected, total) in [
        (&all, 0, 60, 10_000),
        (&all, 9_990, 10, 10_000),
        (&all, 10_000, 0, 10_000),
        (&attic, 60, 40, 100),
        (&IslandFilter { owner: Owner::Only(accounts[1]), ..all.clone() }, 0, 60, 1_000),
        (&IslandFilter { owner: Owner::Except(accounts[1]), ..all.clone() }, 0, 60, 9_000),
        (&IslandFilter { owner: Owner::Except(accounts[1]), ..attic.clone() }, 0, 0, 0),
        (&IslandFilter { status: Some("offline"), ..attic.clone() }, 0, 60, 100),
        (&IslandFilter { status: Some("online"), ..all.clone() }, 0, 0, 0),
    ] {
        let (page, found) = snapshot.page(filter, offset, 60);
        assert_eq!((page.len(), found), (expected, total), "{filter:?} {offset}");
        assert!(page.windows(2).all(|pair| pair[0].id() < pair[1].id()));
    }
    let (page, _) = snapshot.page(&attic, 60, 60);
    assert_eq!(page[0].id(), HostId(Uuid::from_u128(6_000)));
}

fn registration() -> Register {
    Register {
        v: 1,
        versions: None,
        host_id: HOST,
        instance: InstanceId(Uuid::from_u128(9)),
        agent_version: "0".into(),
        name: "one".into(),
        region: None,
        capabilities: capabilities(),
        holding: Vec::new(),
        reads_refusals: true,
        sent_at: Timestamp::from_unix_ms(0),
    }
}

#[test]
fn repeated_registrations_keep_the_snapshot() {
    let (fleet, now) = fleet();
    let at = Timestamp::from_unix_ms(0);
    fleet.register(&registration(), now, at);
    fleet.heartbeat(heartbeat(1, &[]), now, at);
    let kept = fleet.snapshot(now);
    fleet
        .latest
        .set(Arc::new(Snapshot::new(Vec::new(), now, Duration::from_secs(1))), fleet.latest.changes());
    assert_eq!(fleet.register(&registration(), now, at), RegistrationKind::Repeated);
    assert!(
        fleet.snapshot(now).islands.is_empty(),
        "the one that was kept, of {} Islands",
        kept.islands.len()
    );
    fleet.register(&Register { region: Some("eu".into()), ..registration() }, now, at);
    assert_eq!(fleet.snapshot(now).islands.len(), 1);
}

#[test]
fn unchanged_registrations_are_stored_rarely() {
    let (fleet, now) = fleet();
    let at = Timestamp::from_unix_ms(0);
    let after = |minutes| now + Duration::from_mins(minutes);
    let stored = |register: &Register, minutes| {
        fleet.register(register, after(minutes), at);
        let is_to_be_stored = fleet.is_to_be_stored(register, after(minutes));
        if is_to_be_stored {
            fleet.stored(register, after(minutes));
        }
        is_to_be_stored
    };
    let same = registration();
    assert_eq!([0, 1, 9, 10, 11].map(|minutes| stored(&same, minutes)), [true, false, false, true, false]);
    let changed = Register { agent_version: "1".into(), ..registration() };
    assert!(stored(&changed, 12) && !stored(&changed, 13));
    let renamed = Register { name: "two".into(), ..changed };
    assert!(stored(&renamed, 14) && !stored(&renamed, 15));
}

#[test]
fn heartbeats_without_new_capacity_are_no_news() {
    let (fleet, now) = fleet();
    let at = Timestamp::from_unix_ms(0);
    let gained = |heartbeat: Heartbeat| {
        fleet.heartbeat(heartbeat, now, at);
        !fleet.take_gained().is_empty()
    };
    assert!(gained(heartbeat(1, &[])), "the first one");
    assert!(!gained(heartbeat(1, &[])) && !gained(heartbeat(0, &[])) && gained(heartbeat(1, &[])));
    let ram = |ram_mb| Heartbeat {
        headroom: Headroom { ram_mb, ..heartbeat(1, &[]).headroom },
        ..heartbeat(1, &[])
    };
    assert!(!gained(ram(500)) && gained(ram(501)));
    let paused = Heartbeat { status: "paused".into(), ..ram(501) };
    assert!(gained(paused.clone()) && !gained(paused) && gained(ram(501)), "a state is news");
}
