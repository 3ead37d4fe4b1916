//! The used functions of QEMU's plugin interface, version 1 (QEMU 4.2 to 8.2; tested with Debian's 7.2).
//!
//! Declared from the interface's documentation; the emulator resolves them when it loads the plugin.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Names this plugin in calls.
pub type Id = u64;
/// Describes a memory access; opaque.
pub type MemoryInfo = u32;

/// A translation block; opaque. The emulator gives references to those that are valid, for one call.
#[repr(C)]
pub struct Block {
    _opaque: UnsafeCell<[u8; 0]>,
}

/// An instruction of a translation block; opaque, as valid as its block.
#[repr(C)]
pub struct Instruction {
    _opaque: UnsafeCell<[u8; 0]>,
}

/// Where an access went in the machine's memory; opaque, valid until the vCPU's next one.
#[repr(C)]
pub struct HardwareAddress {
    _opaque: UnsafeCell<[u8; 0]>,
}

/// The number of a vCPU, in its own thread: only the emulator makes such values, one for each call of a callback there.
#[repr(transparent)]
pub struct CurrentVcpu(c_uint);

impl CurrentVcpu {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.0
    }
}

/// A value that is given at registration, and handed to the callback: a number, not an address.
pub type Data = *mut c_void;

/// The beginning of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The guest's architecture, as in the emulator's name.
    pub target_name: *const c_char,
    /// The oldest version of the interface that it takes, and its own.
    pub version: [c_int; 2],
    /// A whole machine, not a program.
    pub system_emulation: bool,
}

/// Callbacks do not read registers.
pub const NO_REGISTERS: c_int = 0;
/// Callbacks for reads and writes.
pub const ALL_ACCESSES: c_int = 3;

/// Called with the vCPU and the value given at registration.
pub type Executed = extern "C" fn(CurrentVcpu, Data);
/// Called with the vCPU, the access, its virtual address, and the value given at registration.
pub type Accessed = extern "C" fn(CurrentVcpu, MemoryInfo, u64, Data);
/// Called with the plugin and a vCPU.
pub type OfVcpu = extern "C" fn(Id, c_uint);
/// Called with the plugin and a block that has just been translated.
pub type Translated = extern "C" fn(Id, &Block);
/// Called before a system call, with its number and eight arguments.
pub type SystemCall = extern "C" fn(Id, CurrentVcpu, i64, u64, u64, u64, u64, u64, u64, u64, u64);

// The interface asks nothing of the callers of these functions but valid blocks and instructions, which the references
// are.
unsafe extern "C" {
    pub safe fn qemu_plugin_register_vcpu_init_cb(id: Id, callback: OfVcpu);
    pub safe fn qemu_plugin_register_vcpu_exit_cb(id: Id, callback: OfVcpu);
    pub safe fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: Translated);
    pub safe fn qemu_plugin_register_vcpu_syscall_cb(id: Id, callback: SystemCall);
    pub safe fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, Data), data: Data);
    pub safe fn qemu_plugin_tb_n_insns(block: &Block) -> usize;
    /// `None`: the block has no such instruction.
    pub safe fn qemu_plugin_tb_get_insn(block: &Block, index: usize) -> Option<&Instruction>;
    /// In version 1 the address of its bytes; from QEMU 9.1 on, how many of its bytes were copied to `place`.
    pub fn qemu_plugin_insn_data(instruction: &Instruction, place: *mut c_void, length: usize) -> usize;
    pub safe fn qemu_plugin_insn_vaddr(instruction: &Instruction) -> u64;
    pub safe fn qemu_plugin_insn_size(instruction: &Instruction) -> usize;
    pub safe fn qemu_plugin_register_vcpu_tb_exec_cb(block: &Block, callback: Executed, flags: c_int, data: Data);
    pub safe fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: &Instruction,
        callback: Executed,
        flags: c_int,
        data: Data,
    );
    pub safe fn qemu_plugin_register_vcpu_mem_cb(
        instruction: &Instruction,
        callback: Accessed,
        flags: c_int,
        accesses: c_int,
        data: Data,
    );
    pub safe fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub safe fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
    /// `None`: a program is emulated, not a machine.
    pub safe fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> Option<&'static HardwareAddress>;
    pub safe fn qemu_plugin_hwaddr_is_io(address: &HardwareAddress) -> bool;
    pub safe fn qemu_plugin_hwaddr_phys_addr(address: &HardwareAddress) -> u64;
}
