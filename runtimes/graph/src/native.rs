//! What ONNX Runtime reports and its bindings do not pass on.
#![expect(unsafe_code, reason = "calls of ONNX Runtime")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_char},
    ptr,
};

use ort::{AsPointer, device::HardwareDevice, session::Session, sys};

/// A fact about a device, such as `pci_bus_id`.
pub(crate) fn metadata(device: &HardwareDevice<'_>, key: &CStr) -> Option<String> {
    let api = ort::api();
    // SAFETY: the device is alive, and its facts live as long.
    let facts = unsafe { (api.HardwareDevice_Metadata)(device.ptr()) };
    if facts.is_null() {
        return None;
    }
    // SAFETY: both pointers are valid; the result is null or lives as long as the facts.
    let value = unsafe { (api.GetKeyValue)(facts, key.as_ptr()) };
    text(value)
}

/// Session option by which [`placements`] is recorded.
pub(crate) const RECORD: &str = "session.record_ep_graph_assignment_info";

/// The number of nodes of a session on each provider, by the provider's name. Empty unless the session records it.
pub(crate) fn placements(session: &Session) -> BTreeMap<String, usize> {
    let api = ort::api();
    let (mut parts, mut count) = (ptr::null(), 0);
    // SAFETY: the session is alive, and the parts that it returns live as long.
    let status =
        unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &raw mut parts, &raw mut count) };
    if !succeeded(status) || parts.is_null() {
        return BTreeMap::new();
    }
    let mut nodes = BTreeMap::new();
    for index in 0..count {
        // SAFETY: there are `count` parts.
        let part = unsafe { *parts.add(index) };
        let mut name = ptr::null();
        // SAFETY: the part is valid, and its name lives as long.
        let status = unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &raw mut name) };
        let Some(name) = succeeded(status).then(|| text(name)).flatten() else { continue };
        let (mut list, mut length) = (ptr::null(), 0);
        // SAFETY: the part is valid.
        let status = unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &raw mut list, &raw mut length) };
        if succeeded(status) {
            *nodes.entry(name).or_default() += length;
        }
    }
    nodes
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: strings of the library end with a zero.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Whether a call succeeded; releases its error.
fn succeeded(status: sys::OrtStatusPtr) -> bool {
    if status.0.is_null() {
        return true;
    }
    // SAFETY: the status is an error that nobody else owns.
    unsafe { (ort::api().ReleaseStatus)(status.0) };
    false
}
