//! Counts the memory that a thread has allocated, in every program that links this crate.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr::null_mut,
};

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
#[derive(Debug)]
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Maximum bytes of a thread. One that needs more ends the process, before the machine runs out of memory.
const LIMIT: isize = 2 << 30;

/// Whether an allocation is within the limit.
fn may_allocate(size: usize) -> bool {
    NOW.try_with(|now| now.get().saturating_add(isize::try_from(size).unwrap_or(isize::MAX)) <= LIMIT)
        .unwrap_or(true)
}

fn count(change: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        MOST.with(|most| most.set(most.get().max(now.get())));
    });
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is passed on to the system's allocator unchanged, or fails; counting does not allocate.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !may_allocate(layout.size()) {
            return null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !may_allocate(layout.size()) {
            return null_mut();
        }
        count(layout.size() as isize);
        // SAFETY: the caller's layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's memory and layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !may_allocate(size.saturating_sub(layout.size())) {
            return null_mut();
        }
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's memory, layout and size.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Calls `f`, and returns its result with the maximum bytes that this thread had allocated meanwhile, beyond those before.
pub fn most<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    MOST.set(before);
    let result = f();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_freed_again_counts() {
        let ((), bytes) = most(|| drop(std::hint::black_box(vec![1_u8; 1 << 20])));
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        let ((), bytes) = most(|| ());
        assert_eq!(bytes, 0);
    }
}
