//! A strategy from a shared object: a table of C functions (`pagelab_strategy.h` is the other side of the interface).
#![allow(unsafe_code, reason = "calls functions of a foreign object through a C interface")]

use core::ffi::{c_char, c_int, c_void};
use core::fmt;

use super::{Strategy, Want};

/// Name of the object that a module exports: a [`ModuleTable`].
pub const MODULE_SYMBOL: &core::ffi::CStr = c"pagelab_strategy";
/// Version of the interface; a table of any other is refused.
pub const MODULE_VERSION: u32 = 1;

/// Flag: `want` depends on the address alone.
const BY_ADDRESS: u32 = 1;
/// An answer: any page.
const ANY: u64 = u64::MAX;
/// Bit that marks an answer as a frame number.
const FRAME: u64 = 1 << 63;

/// The setup that a module receives when it begins; laid out as `struct pagelab_strategy_setup`.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleSetup {
    /// [`MODULE_VERSION`].
    pub version: u32,
    /// Number of colours, at least 1.
    pub colours: u32,
    /// Process id.
    pub pid: u32,
    /// 0.
    pub reserved: u32,
    /// The policy's seed.
    pub seed: u64,
    /// The policy's `argument`, NUL-terminated, never null; lives as long as the process.
    pub argument: *const c_char,
}

/// The exported table; laid out as `struct pagelab_strategy`.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleTable {
    /// [`MODULE_VERSION`].
    pub version: u32,
    /// 1: `want` depends on the address alone.
    pub flags: u32,
    /// Bytes of zeroed state that `init` gets.
    pub state_bytes: u64,
    /// Pages after which the answers repeat; 0: never.
    pub period: u64,
    /// NUL-terminated name.
    pub name: *const c_char,
    /// Fills the state; 0, or an errno.
    pub init: Option<unsafe extern "C" fn(state: *mut c_void, setup: *const ModuleSetup) -> c_int>,
    /// The want of page `vpn`: a colour, 2^63 + a frame number, or 2^64 - 1 for any page.
    pub want: Option<unsafe extern "C" fn(state: *mut c_void, vpn: u64) -> u64>,
    /// Takes back the last `count` answers; may be null.
    pub take_back: Option<unsafe extern "C" fn(state: *mut c_void, count: u64)>,
}

/// Why a module cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleError {
    /// Written for another version of the interface.
    Version(u32),
    /// It has no `want`.
    NoWant,
    /// Wants more state than there is room for.
    State(u64),
    /// `init` failed with this errno.
    Init(i32),
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleError::Version(version) => {
                write!(f, "the module's table has version {version}, pagelab has {MODULE_VERSION}")
            }
            ModuleError::NoWant => write!(f, "the module's table has no function `want`"),
            ModuleError::State(bytes) => {
                write!(f, "the module wants {bytes} bytes of state, more than there is room for")
            }
            ModuleError::Init(errno) => write!(f, "the module's `init` failed with errno {errno}"),
        }
    }
}

/// A module with its state.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    want: unsafe extern "C" fn(*mut c_void, u64) -> u64,
    take_back: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    state: *mut c_void,
    colours: u64,
    period: u64,
    by_address: bool,
}

// SAFETY: the interface lets any thread call a module's functions, one at a time for one state; the caller's lock
// around the strategy ensures the latter.
unsafe impl Send for Module {}

impl Module {
    /// Checks the table and calls its `init`.
    ///
    /// # Safety
    /// The table is that of a module loaded for good and keeps the interface's promises; `state` (aligned to 16 bytes,
    /// `room` bytes, zeroed) belongs to this value as long as it is used, and `setup.argument` is NUL-terminated.
    pub unsafe fn start(
        table: &ModuleTable,
        state: *mut c_void,
        room: usize,
        setup: &ModuleSetup,
    ) -> Result<Module, ModuleError> {
        if table.version != MODULE_VERSION {
            return Err(ModuleError::Version(table.version));
        }
        let want = table.want.ok_or(ModuleError::NoWant)?;
        if table.state_bytes > room as u64 {
            return Err(ModuleError::State(table.state_bytes));
        }
        if let Some(init) = table.init {
            // SAFETY: the caller answers for both pointers and for the function.
            let errno = unsafe { init(state, setup) };
            if errno != 0 {
                return Err(ModuleError::Init(errno));
            }
        }
        let by_address = table.flags & BY_ADDRESS != 0;
        Ok(Module {
            want,
            take_back: table.take_back,
            state,
            colours: u64::from(setup.colours.max(1)),
            period: if by_address { table.period } else { 1 },
            by_address,
        })
    }
}

impl Strategy for Module {
    fn want(&mut self, vpn: u64) -> Want {
        // SAFETY: `start`'s caller answers for the function and the state.
        match unsafe { (self.want)(self.state, vpn) } {
            ANY => Want::Any,
            frame if frame & FRAME != 0 => Want::Frame(frame & !FRAME),
            colour => Want::Colour(colour.checked_rem(self.colours).unwrap_or(0) as u32),
        }
    }

    fn take_back(&mut self, count: usize) {
        if let Some(take_back) = self.take_back {
            // SAFETY: `start`'s caller answers for the function and the state.
            unsafe { take_back(self.state, count as u64) }
        }
    }

    fn is_by_address(&self) -> bool {
        self.by_address
    }

    fn period(&self) -> u64 {
        self.period
    }
}
