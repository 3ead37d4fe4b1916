//! Caches behind an emulated machine: physical addresses of loads and stores into a hierarchy of `pagelab_simulate`.
//!
//! `qemu-system-x86_64 -plugin libpagelab_qemu.so,hierarchy=CACHES.json,windows=OUT ...`. The guest marks the time: a
//! store to [`MARKER`] starts feeding the caches, which are empty then; a store 8 bytes behind it opens a window; one
//! 16 bytes behind closes it and ends the feeding. Each window is a line of JSON in OUT. Everything that the machine
//! does in a window counts: the program, the kernel, interrupts. Instruction fetches and the reads of page walks are
//! missing, because this interface does not report them.

use crate::api::{self, ALL_ACCESSES, Block, CurrentVcpu, Data, Id, MemoryInfo, NO_REGISTERS};
use pagelab_simulate::cache::{Counts, Hierarchy, HierarchySpec, MemoryCounts};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Virtual address of the page that the guest's program maps for its marks: no address that Linux chooses by itself.
const MARKER: u64 = 0x7a6e_0000_0000;
/// Bytes from one mark to the next.
const STEP: u64 = 8;
/// The page.
const PAGE_BITS: u32 = 12;
const LOAD: usize = 0;
const STORE: usize = 1;

/// Whether the caches are fed.
static FED: AtomicBool = AtomicBool::new(false);
static MACHINE: OnceLock<Mutex<Machine>> = OnceLock::new();

/// The caches, and what was counted in them.
struct Machine {
    spec: HierarchySpec,
    line_bits: u32,
    hierarchy: Hierarchy,
    /// Accesses that go to devices.
    devices: u64,
    opened: Option<Opened>,
    windows: u64,
    out: File,
}

/// Counts at the beginning of a window.
struct Opened {
    levels: Vec<Counts>,
    memory: MemoryCounts,
    devices: u64,
}

/// Sets up the simulation.
///
/// # Errors
/// An argument that is not understood, a file, the hierarchy's.
pub fn install<'a>(id: Id, arguments: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let (mut hierarchy, mut windows) = (None, None);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("hierarchy", path)) => hierarchy = Some(path),
            Some(("windows", path)) => windows = Some(path),
            _ => return Err(format!("argument {argument}: not understood")),
        }
    }
    let (Some(path), Some(windows)) = (hierarchy, windows) else {
        return Err("a whole machine is emulated: hierarchy=FILE and windows=FILE are needed".into());
    };
    let told = |path: &str, error: &dyn std::fmt::Display| format!("{path}: {error}");
    let text = std::fs::read_to_string(path).map_err(|error| told(path, &error))?;
    let spec: HierarchySpec = serde_json::from_str(&text).map_err(|error| told(path, &error))?;
    let hierarchy = Hierarchy::new(&spec, 0).map_err(|error| told(path, &error))?;
    let out = File::create(windows).map_err(|error| told(windows, &error))?;
    let line_bits = spec.line_bytes.trailing_zeros();
    let machine = Machine { spec, line_bits, hierarchy, devices: 0, opened: None, windows: 0, out };
    if MACHINE.set(Mutex::new(machine)).is_err() {
        return Err("installed twice".into());
    }
    api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    Ok(())
}

extern "C" fn translated(_id: Id, block: &Block) {
    let count = api::qemu_plugin_tb_n_insns(block);
    for instruction in (0..count).filter_map(|index| api::qemu_plugin_tb_get_insn(block, index)) {
        let data = ptr::null_mut();
        api::qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, ALL_ACCESSES, data);
    }
}

extern "C" fn accessed(vcpu: CurrentVcpu, info: MemoryInfo, address: u64, _: Data) {
    let mark = address.wrapping_sub(MARKER);
    if mark >> PAGE_BITS == 0 && api::qemu_plugin_mem_is_store(info) {
        with(|machine| machine.mark(mark / STEP));
    } else if FED.load(Relaxed) {
        with(|machine| machine.access(vcpu.number() as usize, info, address));
    }
}

fn with(act: impl FnOnce(&mut Machine)) {
    let machine = MACHINE.get().expect("installed");
    act(&mut machine.lock().unwrap_or_else(PoisonError::into_inner));
}

impl Machine {
    fn mark(&mut self, number: u64) {
        match number {
            0 => {
                self.hierarchy = Hierarchy::new(&self.spec, 0).expect("checked when it was installed");
                self.opened = None;
                FED.store(true, Relaxed);
            }
            1 => {
                self.opened = Some(Opened {
                    levels: self.hierarchy.counts().copied().collect(),
                    memory: *self.hierarchy.memory(),
                    devices: self.devices,
                });
            }
            2 => {
                FED.store(false, Relaxed);
                if let Some(opened) = self.opened.take() {
                    self.write(&opened);
                }
            }
            _ => {}
        }
    }

    fn access(&mut self, vcpu: usize, info: MemoryInfo, address: u64) {
        let Some(hardware) = api::qemu_plugin_get_hwaddr(info, address) else { return };
        if api::qemu_plugin_hwaddr_is_io(hardware) {
            self.devices += 1;
            return;
        }
        let first = api::qemu_plugin_hwaddr_phys_addr(hardware);
        // Another frame lies behind the page's end; the emulator does not report it.
        let last = (first + (1 << api::qemu_plugin_mem_size_shift(info)) - 1).min(first | ((1 << PAGE_BITS) - 1));
        let kind = if api::qemu_plugin_mem_is_store(info) { STORE } else { LOAD };
        for line in first >> self.line_bits..=last >> self.line_bits {
            self.hierarchy.access(vcpu % self.spec.cores, kind, line);
        }
    }

    fn write(&mut self, opened: &Opened) {
        let since = |now: &[u64], then: &[u64], kind: usize| now[kind] - then[kind];
        let levels =
            self.hierarchy.counts().zip(&opened.levels).zip(&self.spec.levels).map(|((now, then), level)| {
                json!({
                    "name": level.name,
                    "loads": since(&now.accesses, &then.accesses, LOAD),
                    "stores": since(&now.accesses, &then.accesses, STORE),
                    "load_misses": since(&now.misses, &then.misses, LOAD),
                    "store_misses": since(&now.misses, &then.misses, STORE),
                })
            });
        let (now, then) = (self.hierarchy.memory(), &opened.memory);
        let line = json!({
            "window": self.windows,
            "levels": levels.collect::<Vec<_>>(),
            "memory_reads": since(&now.reads, &then.reads, LOAD) + since(&now.reads, &then.reads, STORE),
            "memory_writes": now.writes - then.writes,
            "devices": self.devices - opened.devices,
        });
        self.windows += 1;
        if let Err(error) = writeln!(self.out, "{line}") {
            let _ = writeln!(std::io::stderr(), "pagelab trace: plugin: cannot write a window: {error}");
        }
    }
}
