use proptest::prelude::*;

use super::*;
use crate::vulkan::Kind;

fn adapter(name: &str, kind: Kind, address: Option<&str>) -> Adapter {
    let is_software = kind == Kind::Software;
    let device = Device {
        api: WEBGPU.to_owned(),
        name: name.to_owned(),
        address: address.map(str::to_owned),
        is_software,
        ..Device::default()
    };
    Adapter { kind, device }
}

fn names(usable: Result<Vec<Device>, String>) -> Result<Vec<String>, String> {
    usable.map(|devices| devices.into_iter().map(|device| device.name).collect())
}

#[test]
fn emulated_devices_are_used_only_if_they_are_allowed() {
    let software = adapter("llvmpipe", Kind::Software, None);
    let card = adapter("card", Kind::Discrete, Some("0000:03:00.0"));
    let both = [card, software.clone()];
    assert_eq!(names(usable(&both, false)), Ok(vec!["card".to_owned()]));
    assert_eq!(names(usable(&both, true)), Ok(vec!["card".to_owned(), "llvmpipe".to_owned()]));
    assert_eq!(names(usable(std::slice::from_ref(&software), true)), Ok(vec!["llvmpipe".to_owned()]));
    let refused = usable(&[software], false).expect_err("no GPU");
    assert!(refused.contains("llvmpipe, which the processor emulates"), "{refused}");
    assert!(usable(&[], true).expect_err("no device").contains("no device"));
}

proptest! {
    #[test]
    fn only_a_granted_gpu_is_chosen(
        offered in proptest::collection::vec(proptest::option::of(0_u8..4), 0..4),
        granted in proptest::collection::vec(proptest::option::of(0_u8..4), 1..3),
        api in 0_usize..2,
    ) {
        let address = |number: &Option<u8>| number.map(|number| format!("0000:0{number}:00.0"));
        let plugin = &PLUGINS[api];
        let candidates: Vec<_> = offered
            .iter()
            .map(|number| Candidate {
                provider: plugin.api.to_owned(),
                device: Device { address: address(number), ..Device::default() },
            })
            .collect();
        let addresses: Vec<_> = granted.iter().map(address).collect();
        let list: Vec<_> = candidates.iter().collect();
        let chosen = choose(plugin, &list, &addresses);
        if let Some(chosen) = chosen {
            let known = chosen.device.address.is_some() && !addresses.contains(&None);
            prop_assert!(!known || addresses.contains(&chosen.device.address));
            prop_assert!(plugin.api != WEBGPU || Some(chosen) == candidates.first());
        } else if plugin.api != WEBGPU {
            prop_assert!(candidates.iter().all(|candidate| !addresses.contains(&candidate.device.address)));
        }
    }
}
