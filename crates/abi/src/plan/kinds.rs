//! The plan's enumerations and switches.

/// Kinds of memory that a section can govern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Memory {
    /// The program break.
    Heap = 0,
    /// Private anonymous mappings that are not thread arenas.
    Anon = 1,
    /// Heaps of malloc's thread arenas.
    Arenas = 2,
    /// File mappings.
    File = 3,
    /// Data and bss of the program and its libraries.
    Data = 4,
    /// The main thread's stack.
    Stack = 5,
    /// An explicit range of addresses.
    Range = 6,
}

impl Memory {
    /// All kinds, in the order of their codes.
    pub const ALL: [Memory; 7] =
        [Memory::Heap, Memory::Anon, Memory::Arenas, Memory::File, Memory::Data, Memory::Stack, Memory::Range];

    /// The kind with this code.
    pub fn from_code(code: u64) -> Option<Memory> {
        Memory::ALL.get(usize::try_from(code).ok()?).copied()
    }

    /// Its name in policies and records.
    pub fn name(self) -> &'static str {
        match self {
            Memory::Heap => "heap",
            Memory::Anon => "anon",
            Memory::Arenas => "arenas",
            Memory::File => "file",
            Memory::Data => "data",
            Memory::Stack => "stack",
            Memory::Range => "range",
        }
    }
}

/// The way to make a tile of 2 MiB. 1 GiB tiles are always [`Via::Hugetlb`], every other size always [`Via::Thp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Via {
    /// Transparent huge pages: no reserved pool, no privileges, and partial unmapping stays possible.
    Thp = 0,
    /// The kernel's reserved pools.
    Hugetlb = 1,
}

impl Via {
    /// Its name in policies and records.
    pub fn name(self) -> &'static str {
        match self {
            Via::Thp => "thp",
            Via::Hugetlb => "hugetlb",
        }
    }
}

/// The time at which pages are brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fetch {
    /// Left to the kernel.
    Kernel = 0,
    /// On demand, without prepaging.
    Demand = 1,
    /// Populated when mapped.
    Prefault = 2,
    /// Read ahead in the background.
    WillNeed = 3,
}

impl Fetch {
    /// The value with this code.
    pub fn from_code(code: u8) -> Option<Fetch> {
        [Fetch::Kernel, Fetch::Demand, Fetch::Prefault, Fetch::WillNeed].get(usize::from(code)).copied()
    }
}

/// Switches of a whole plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Forked children keep the policy.
    pub const INHERIT_FORK: Flags = Flags(1);
    /// Programs started by exec keep the policy; without this flag the guest removes itself from their environment.
    pub const INHERIT_EXEC: Flags = Flags(1 << 1);
    /// Placement is measured at exit.
    pub const MEASURE: Flags = Flags(1 << 2);
    /// The resident part of mapped files is recorded at start.
    pub const RESIDENCY: Flags = Flags(1 << 3);
    /// The guest may switch mTHP sizes in sysfs around populating a tile (several mTHP sizes; root, a host of one's own).
    pub const MTHP_SWITCHES: Flags = Flags(1 << 4);
    /// The program runs in a user-mode emulator; `/proc/self/task` counts the emulator's own threads with the program's.
    pub const EMULATED: Flags = Flags(1 << 5);
    /// The program's own hints (`pagelab.h`) go to the kernel, which places pages itself.
    pub const HINTS_BY_KERNEL: Flags = Flags(1 << 6);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
