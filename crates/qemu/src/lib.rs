//! The plugin that QEMU loads: in the user-mode emulator it captures a program's references, in the emulator of whole
//! machines it simulates caches behind their memory (`system`).
//!
//! `qemu-x86_64 -plugin libpagelab_qemu.so,socket=PATH,mode=runs,... -0 NAME PROGRAM ARGUMENTS`. The plugin filters and
//! packs references and sends them to a collector (`pagelab_trace::capture`); `docs/trace.md` lists what a trace
//! contains and what it does not.

mod api;
mod callbacks;
mod channel;
mod children;
mod config;
mod elf;
mod state;
mod system;

use api::{Data, Id, Info};
use config::{Config, Shared, Window};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The version of the interface: the emulator reads it when it has loaded the plugin.
///
/// 1 is the version of QEMU up to 8.2 (the plugin was tested with 7.2). The functions used here are the same in version
/// 2, which QEMU 9 requires at least (not tested).
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the emulator looks for this name")]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the plugin is loaded, before its version is read.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

extern "C" fn choose_version() {
    // SAFETY: a C string; the answer is only compared.
    let newer = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_scoreboard_new".as_ptr()) };
    if !newer.is_null() {
        qemu_plugin_version.store(2, Relaxed);
    }
}

extern "C" fn thread_begins(_id: Id, index: c_uint) {
    state::begin(index);
}

extern "C" fn thread_ends(_id: Id, _: c_uint) {
    state::end();
}

extern "C" fn process_ends(_id: Id, _: Data) {
    if children::is_left_out() {
        return;
    }
    state::send_all(&mut channel::lock());
    state::send_end();
}

/// Called by the emulator when it has loaded the plugin.
///
/// # Safety
/// The emulator gives a valid description of itself and `argc` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let argument = |index: usize| {
        // SAFETY: by the caller.
        unsafe { CStr::from_ptr(*argv.add(index)) }.to_str().unwrap_or("(not UTF-8)")
    };
    let refused = |message: String| {
        let _ = writeln!(std::io::stderr(), "pagelab trace: plugin: {message}");
        1
    };
    // SAFETY: by the caller.
    let info = unsafe { &*info };
    if info.system_emulation {
        return system::install(id, (0..argc as usize).map(argument)).map_or_else(refused, |()| 0);
    }
    let config = match Config::parse((0..argc as usize).map(argument)) {
        Ok(config) => config,
        Err(message) => return refused(message),
    };
    // SAFETY: by the caller.
    let target = unsafe { CStr::from_ptr(info.target_name) }.to_string_lossy().into_owned();
    callbacks::set_page_bits(config.page_bits);
    state::set_active(config.window == Window::Whole);
    channel::begin_image(config.handed_on);
    config::set_shared(Shared { config, target });
    children::remember_program();
    children::watch_forks();
    api::qemu_plugin_register_vcpu_init_cb(id, thread_begins);
    api::qemu_plugin_register_vcpu_exit_cb(id, thread_ends);
    api::qemu_plugin_register_vcpu_tb_trans_cb(id, callbacks::translated);
    api::qemu_plugin_register_vcpu_syscall_cb(id, children::system_call);
    api::qemu_plugin_register_atexit_cb(id, process_ends, std::ptr::null_mut());
    0
}
