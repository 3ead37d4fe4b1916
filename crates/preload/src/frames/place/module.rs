//! Strategies from modules: shared objects that the dynamic linker loads before this library.

use core::sync::atomic::{AtomicUsize, Ordering};

use pagelab_abi::plan::{MAX_STRATEGIES, Plan, Strategy as Spec, StrategyKind};
use pagelab_frames::strategy::{MODULE_SYMBOL, MODULE_VERSION, Module, ModuleSetup, ModuleTable};

use crate::boundary::arch::PAGE;
use crate::boundary::elf::{self, Object};
use crate::boundary::sys;

/// Room for a module's state, bytes.
const STATE_BYTES: usize = 1 << 20;

/// Where the tables of the strategies' modules lie; 0: not found.
static TABLES: [AtomicUsize; MAX_STRATEGIES] = [const { AtomicUsize::new(0) }; MAX_STRATEGIES];

/// Looks up all modules of the plan. Not to be done later: it takes the dynamic linker's lock.
pub fn learn(plan: &Plan<'_>) {
    for (number, place) in (0..).zip(&TABLES) {
        let Some(spec) = plan.strategy(number).filter(|spec| spec.kind == StrategyKind::Module) else { continue };
        let path = plan.module(&spec);
        let has_table = |name: &[u8], object: &Object| name == path && object.symbol(MODULE_SYMBOL).is_some();
        let table = elf::find_named(&has_table).and_then(|object| object.symbol(MODULE_SYMBOL)).filter(|table| {
            table.bytes >= size_of::<ModuleTable>() && table.address.is_multiple_of(align_of::<ModuleTable>())
        });
        place.store(table.map_or(0, |table| table.address), Ordering::Release);
    }
}

/// Addresses of the tables found.
pub fn tables() -> impl Iterator<Item = usize> {
    TABLES.iter().map(|place| place.load(Ordering::Acquire)).filter(|table| *table != 0)
}

/// Starts the module of strategy `number`; `None` if it is not loaded, or refuses.
pub fn start(plan: &Plan<'static>, number: u32, spec: &Spec, pid: u32) -> Option<Module> {
    let table = TABLES.get(number as usize)?.load(Ordering::Acquire) as *const ModuleTable;
    // SAFETY: null, or a symbol of an object that is loaded for good, of a table's size and alignment.
    let table = unsafe { table.as_ref() }?;
    let argument = plan.argument(spec);
    let state = sys::mmap_own(STATE_BYTES.next_multiple_of(PAGE)).ok()?;
    let setup = ModuleSetup {
        version: MODULE_VERSION,
        colours: spec.colours,
        pid,
        reserved: 0,
        seed: spec.seed,
        // The plan keeps a NUL behind a text.
        argument: if argument.is_empty() { c"".as_ptr() } else { argument.as_ptr().cast() },
    };
    // SAFETY: the object is loaded for good; the state is fresh, used by this module alone, and page aligned; the
    // argument is NUL-terminated.
    unsafe { Module::start(table, state as *mut _, STATE_BYTES, &setup) }.ok()
}
