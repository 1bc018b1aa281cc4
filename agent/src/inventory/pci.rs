//! Addresses of PCI devices.

/// Returns a PCI address as the kernel writes it, such as `0000:03:00.0`, without the number of an instance; `None` for other texts.
///
/// Its domain has four digits, and as many as it needs above `ffff`. Drivers and owners fill it up with zeros, such as to eight digits.
pub fn pci_address(text: &str) -> Option<String> {
    let text = text.split('#').next().unwrap_or_default();
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.split(':').map(|part| u32::from_str_radix(part, 16));
    let (Some(Ok(domain)), Some(Ok(bus)), Some(Ok(device)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let function = u32::from_str_radix(function, 16).ok()?;
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_kernels_form() {
        assert_eq!(pci_address("00000000:0A:00.0#01").as_deref(), Some("0000:0a:00.0"));
        for text in ["00010000:0a:00.0", "10000:0a:00.0", "010000:0A:00.0"] {
            assert_eq!(pci_address(text).as_deref(), Some("10000:0a:00.0"), "{text}");
        }
        for text in ["apple", "", "03:00.0", "0000:03:00", "GPU-1", "0000:03:00:00.0"] {
            assert_eq!(pci_address(text), None, "{text}");
        }
    }
}
