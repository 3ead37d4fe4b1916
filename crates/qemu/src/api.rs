//! The used functions of QEMU's plugin interface, version 1 (QEMU 4.2 to 8.2; tested with Debian's 7.2).
//!
//! Declared from the interface's documentation; the emulator resolves them when it loads the plugin.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Names this plugin in calls.
pub type Id = u64;
/// Describes a memory access; opaque.
pub type MemoryInfo = u32;

/// A translation block; opaque.
#[repr(C)]
pub struct Block {
    _opaque: [u8; 0],
}

/// An instruction of a translation block; opaque.
#[repr(C)]
pub struct Instruction {
    _opaque: [u8; 0],
}

/// The beginning of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The guest's architecture, as in the emulator's name.
    pub target_name: *const c_char,
}

/// Callbacks do not read registers.
pub const NO_REGISTERS: c_int = 0;
/// Callbacks for reads and writes.
pub const ALL_ACCESSES: c_int = 3;

/// Called with the vCPU and the value given at registration.
pub type Executed = unsafe extern "C" fn(c_uint, *mut c_void);
/// Called with the vCPU, the access, its virtual address, and the value given at registration.
pub type Accessed = unsafe extern "C" fn(c_uint, MemoryInfo, u64, *mut c_void);
/// Called with the plugin and a vCPU.
pub type OfVcpu = unsafe extern "C" fn(Id, c_uint);
/// Called before a system call, with its number and eight arguments.
pub type SystemCall = unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: OfVcpu);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, callback: OfVcpu);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: unsafe extern "C" fn(Id, *mut Block));
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SystemCall);
    pub fn qemu_plugin_register_atexit_cb(
        id: Id,
        callback: unsafe extern "C" fn(Id, *mut c_void),
        data: *mut c_void,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    /// In version 1 the address of its bytes; from QEMU 9.1 on, how many of its bytes were copied to `place`.
    pub fn qemu_plugin_insn_data(instruction: *const Instruction, place: *mut c_void, length: usize) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: Accessed,
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
}
