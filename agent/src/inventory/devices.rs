//! Which GPUs of this machine an engine runs models on: its devices, matched to the GPUs that were found. Pure.

use std::collections::BTreeSet;

use island_protocol::host::Device;

use super::{
    gpu::{Card, Vendor},
    pci::pci_address,
};

/// Returns the GPU that a device of an engine is, if it is one of `cards`.
///
/// Devices are matched by PCI address, so one GPU under several interfaces is one GPU. A device without an address is the machine's only GPU,
/// if it has only one and the engine names no second one without an address. An instance of a GPU that is split has the GPU's address; the
/// first one stands for all. On a GPU of which no worker is granted memory no models run.
pub fn card_of<'c>(device: &Device, devices: &[Device], cards: &'c [Card]) -> Option<&'c Card> {
    matching(device, devices, cards).next()
}

/// Returns the numbers of all GPUs on which an engine with these devices runs models.
pub fn cards_of(devices: &[Device], cards: &[Card]) -> BTreeSet<u32> {
    devices.iter().flat_map(|device| matching(device, devices, cards)).map(|card| card.index).collect()
}

/// Returns the devices on which an engine runs models: the processor, and those that are GPUs of this machine. A GPU that shares the
/// processor's memory is not, because no worker is granted it.
pub fn used<'d>(devices: &'d [Device], cards: &'d [Card]) -> impl Iterator<Item = &'d Device> {
    devices.iter().filter(move |device| device.is_cpu() || card_of(device, devices, cards).is_some())
}

fn matching<'c>(
    device: &Device,
    devices: &[Device],
    cards: &'c [Card],
) -> impl Iterator<Item = &'c Card> + use<'c> {
    let is_emulated = |card: &Card| card.seen.vendor == Vendor::Software;
    let real = cards.iter().filter(|card| !is_emulated(card)).count();
    let address = device.address.as_deref().and_then(pci_address);
    let nameless = |device: &&Device| !device.is_cpu() && !device.is_software && device.address.is_none();
    let names: BTreeSet<&str> = devices.iter().filter(nameless).map(|device| device.name.as_str()).collect();
    let is_only_one = real == 1 && names.len() == 1;
    let (is_cpu, is_software, has_address) = (device.is_cpu(), device.is_software, device.address.is_some());
    cards.iter().filter(|card| card.is_granted()).filter(move |card| match is_software {
        _ if is_cpu => false,
        true => is_emulated(card),
        false if is_emulated(card) => false,
        false if has_address => address.is_some() && pci_address(&card.seen.address) == address,
        false => is_only_one,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::policy::gpus::tests::card;

    fn device(api: &str, name: &str, address: Option<&str>) -> Device {
        let address = address.map(str::to_owned);
        Device { api: api.into(), name: name.into(), address, ..Device::default() }
    }

    fn owned(devices: &[Device], cards: &[Card]) -> Vec<u32> {
        cards_of(devices, cards).into_iter().collect()
    }

    fn gpus(numbers: &[u32]) -> Vec<Card> {
        numbers.iter().map(|index| card(*index, Vendor::Nvidia, 8000, Ok(0), None)).collect()
    }

    #[test]
    fn one_gpu_under_two_interfaces_is_one() {
        let (cuda, vulkan) =
            (device("cuda", "A", Some("00000000:01:00.0")), device("vulkan", "A", Some("0000:01:00.0")));
        assert_eq!(owned(&[cuda, vulkan, Device::cpu()], &gpus(&[0, 1])), [1]);
    }

    #[test]
    fn an_engine_on_the_processor_owns_no_gpu() {
        assert!(owned(&[Device::cpu()], &gpus(&[0])).is_empty());
        assert!(owned(&[], &gpus(&[0])).is_empty());
        let other = device("vulkan", "A", Some("0000:07:00.0"));
        assert!(owned(&[other], &gpus(&[0])).is_empty(), "not the GPU that was found");
    }

    #[test]
    fn a_device_without_address_is_the_only_gpu() {
        let one = || device("webgpu", "A", None);
        assert_eq!(owned(&[one(), Device::cpu()], &gpus(&[0])), [0]);
        assert!(owned(&[one()], &gpus(&[0, 1])).is_empty(), "it may be either");
        assert!(owned(&[one(), device("webgpu", "B", None)], &gpus(&[0])).is_empty(), "either may be it");
    }

    #[test]
    fn a_gpu_of_which_no_memory_is_granted_is_not_used() {
        let mut cards = gpus(&[0, 1]);
        cards[1].seen.used_mb = Err("programs of other users are not visible".into());
        let devices =
            [device("vulkan", "A", Some("0000:00:00.0")), device("vulkan", "B", Some("0000:01:00.0"))];
        assert_eq!(owned(&devices, &cards), [0]);
        assert_eq!(used(&devices, &cards).count(), 1);
        assert!(owned(&[device("webgpu", "A", None)], &cards).is_empty(), "it may be either");
        cards[1].by_limit = true;
        assert_eq!(owned(&devices, &cards), [0, 1], "its owner allows an amount");
    }

    #[test]
    fn an_emulated_gpu_is_a_card_of_its_own() {
        let emulated = Device { is_software: true, ..device("vulkan", "llvmpipe", None) };
        let mut cards = gpus(&[0, 1]);
        cards[1].seen.vendor = Vendor::Software;
        assert_eq!(owned(std::slice::from_ref(&emulated), &cards), [1]);
        assert_eq!(owned(&[emulated, device("vulkan", "A", None)], &cards), [0, 1]);
    }

    #[test]
    fn a_gpu_that_is_part_of_the_processor_is_not_used() {
        let devices = [
            device("vulkan", "A", Some("0000:00:00.0")),
            device("vulkan", "Graphics", Some("0000:00:02.0")),
            Device::cpu(),
        ];
        let names = |cards: &[Card]| -> Vec<String> {
            used(&devices, cards).map(|device| device.name.clone()).collect()
        };
        assert_eq!(names(&gpus(&[0])), ["A", "CPU"]);
        assert_eq!(names(&[]), ["CPU"], "a machine without another GPU");
    }
}
