//! GPUs for which the CUDA module has no machine code.
//!
//! The module lists every GPU of the driver. On older ones the first kernel fails. For newer ones the driver compiles the module's intermediate
//! code, for minutes and in each worker anew, because its cache is outside of the sandbox.

use std::ffi::{CString, OsStr, c_char, c_int};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, Symbol};

/// The oldest generation that the module has code for, Turing: major and minor number of the compute capability, as in `scripts/cuda.sh`.
const OLDEST: (c_int, c_int) = (7, 5);
/// The first generation after those that the module has machine code for, Blackwell.
const FIRST_COMPILED: (c_int, c_int) = (10, 0);
/// The driver's library.
const DRIVER: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

/// Returns why the module cannot run on the GPU with this PCI address. A GPU about which the driver gives no answer is left to the module.
pub(super) fn problem(address: &str) -> Option<String> {
    too_old(capability(DRIVER.as_ref(), address)?)
}

/// Returns whether the driver would compile the module's code for the GPU with this PCI address; `false` if the driver gives no answer.
pub(super) fn is_compiled(address: &str) -> bool {
    capability(DRIVER.as_ref(), address).is_some_and(|capability| capability >= FIRST_COMPILED)
}

fn too_old(capability: (c_int, c_int)) -> Option<String> {
    let ((major, minor), (oldest_major, oldest_minor)) = (capability, OLDEST);
    (capability < OLDEST).then(|| {
        format!("compute capability {major}.{minor} is older than {oldest_major}.{oldest_minor}, which CUDA needs here: Vulkan is used")
    })
}

/// The compute capability of a GPU.
#[expect(unsafe_code, reason = "llama.cpp does not report this property")]
fn capability(driver: &OsStr, address: &str) -> Option<(c_int, c_int)> {
    type ByAddress = unsafe extern "C" fn(*mut c_int, *const c_char) -> c_int;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    let address = CString::new(address).ok()?;
    // SAFETY: the module has loaded the same library and initialized the driver; the functions have had these types since CUDA 4.1.
    unsafe {
        let driver = Library::open(Some(driver), RTLD_LAZY | RTLD_LOCAL).ok()?;
        let by_address: Symbol<ByAddress> = driver.get(b"cuDeviceGetByPCIBusId").ok()?;
        let attribute: Symbol<Attribute> = driver.get(b"cuDeviceGetAttribute").ok()?;
        let mut device = 0;
        if by_address(&raw mut device, address.as_ptr()) != 0 {
            return None;
        }
        let read = |kind| {
            let mut value = 0;
            (attribute(&raw mut value, kind, device) == 0).then_some(value)
        };
        Some((read(MAJOR)?, read(MINOR)?))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn generations_before_turing_are_left_to_vulkan() {
        for capability in [(7, 5), (8, 0), (8, 9), (12, 0)] {
            assert_eq!(too_old(capability), None, "{capability:?}");
        }
        for (capability, text) in [((6, 1), "6.1"), ((7, 0), "7.0"), ((3, 7), "3.7")] {
            assert!(too_old(capability).is_some_and(|reason| reason.contains(text)), "{capability:?}");
        }
    }

    #[test]
    fn the_driver_is_asked_by_address() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (source, library) = (folder.path().join("cuda.c"), folder.path().join("libcuda.so"));
        let code = r#"
            #include <string.h>
            int cuDeviceGetByPCIBusId(int *device, const char *id) {
                *device = 3;
                return strcmp(id, "0000:0a:00.0") ? 101 : 0;
            }
            int cuDeviceGetAttribute(int *value, int kind, int device) {
                *value = kind == 75 ? 6 : kind == 76 ? 1 : 99;
                return device == 3 ? 0 : 101;
            }
        "#;
        fs::write(&source, code).expect("write");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(compiled.expect("a C compiler").success());
        assert_eq!(capability(library.as_os_str(), "0000:0a:00.0"), Some((6, 1)));
        assert_eq!(capability(library.as_os_str(), "0000:0b:00.0"), None, "another GPU");
        assert_eq!(capability("libno-such-driver.so".as_ref(), "0000:0a:00.0"), None);
    }
}
