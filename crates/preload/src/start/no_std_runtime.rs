//! Parts that a library without std must bring along: a panic handler, and an allocator that nobody calls.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

use crate::boundary::sys;
use crate::state::message::say;

/// No known path leads here; if one does, it is better to end the process loudly than to go on with broken tables.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say(format_args!("internal error at {:?}: ending the process", info.location()));
    sys::exit_group(134)
}

/// Unoptimised code refers to it; nothing ever unwinds. (Not in release builds: the name must not conflict with that in
/// a program that loads Rust's own library.)
#[cfg(debug_assertions)]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Refuses every request: the shared layouts' encoding side could allocate, but the guest never does.
struct Refusing;

// SAFETY: null is a permitted answer; nothing was allocated, so nothing is freed.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

#[link(name = "c")]
unsafe extern "C" {}
