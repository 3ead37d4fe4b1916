//! The guest file's enumerations, each value with the name that reaches the record.

macro_rules! coded {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$inner])* $variant,)+ }

        impl $name {
            /// All values, in the order of their codes.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The value with this code.
            pub fn from_code(code: u64) -> Option<$name> {
                $name::ALL.get(usize::try_from(code).ok()?).copied()
            }

            /// Its code in the file.
            pub fn code(self) -> u64 {
                self as u64
            }

            /// Its name in records.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }
    };
}

coded! {
    /// State of the guest.
    State {
        /// The start-up code runs: a file left in this state means that the program died in it.
        Starting = "starting",
        /// Governing.
        Active = "active",
        /// Loaded, but all calls go to the kernel unchanged: see [`DisabledReason`].
        Disabled = "disabled",
        /// Measured, or decided not to, and exiting.
        Exited = "exited",
        /// The image was replaced by exec.
        Execed = "exec",
    }
}

coded! {
    /// Start of a process image.
    Started {
        /// By exec: the library was loaded by the dynamic linker.
        Exec = "exec",
        /// By fork: the library was already there.
        Fork = "fork",
    }
}

coded! {
    /// Why the guest left the process alone.
    DisabledReason {
        /// It did not leave it alone.
        None = "none",
        /// `PAGELAB_PLAN` is not set.
        NoPlan = "no-plan",
        /// The plan could not be opened or mapped.
        PlanUnreadable = "plan-unreadable",
        /// The plan's contents are not valid for this library.
        PlanInvalid = "plan-invalid",
        /// The process has no GNU libc.
        UnknownLibc = "unknown-libc",
        /// An entry point of libc is missing.
        SymbolMissing = "symbol-missing",
        /// An entry point is too short, or does not begin as expected (already patched by another tool?).
        UnexpectedCode = "unexpected-code",
        /// libc's code could not be written (seccomp, memory-deny-write-execute).
        PatchDenied = "patch-denied",
        /// More than one thread was running already.
        Threads = "threads",
        /// The policy is not inherited over fork.
        NotInherited = "not-inherited",
        /// The library could not get memory for itself.
        NoMemory = "no-memory",
        /// The processor architecture is not supported.
        Architecture = "architecture",
        /// The program's break cannot be moved to the pool.
        Break = "break",
        /// A sanitizer's runtime that allows memory only in its own places (ThreadSanitizer, MemorySanitizer); or, for
        /// policies that place frames, valgrind, which knows neither userfaultfds nor threads that are not made by
        /// libc.
        Sanitizer = "sanitizer",
    }
}

coded! {
    /// State of the engine that places frames.
    EngineState {
        /// Not needed, or not needed yet.
        Off = "off",
        /// Placing.
        Running = "running",
        /// Ended in order (exit, exec, a sandbox); memory that was governed is the kernel's from then on.
        Stopped = "stopped",
        /// Could not be started, or broke down: see [`EngineFailure`].
        Failed = "failed",
    }
}

coded! {
    /// Why a process has no engine although its policy governs frames, or has lost it.
    EngineFailure {
        /// It has one.
        None = "none",
        /// There is no userfaultfd that sees the kernel's own accesses.
        Userfaultfd = "userfaultfd",
        /// The kernel cannot move pages (UFFDIO_MOVE, Linux 6.8).
        NoMove = "no-move",
        /// Frame numbers could not be read from /proc/self/pagemap.
        FrameNumbers = "frame-numbers",
        /// There is no memory for the engine or its first pages.
        NoMemory = "no-memory",
        /// Its threads could not be started.
        Threads = "threads",
        /// Memory could not be registered.
        Register = "register",
        /// The program installed a seccomp filter.
        Sandbox = "sandbox",
        /// The program entered other namespaces, which the kernel allows only to a single thread.
        Namespaces = "namespaces",
        /// The policy is not inherited over fork.
        NotInherited = "not-inherited",
        /// A strategy's module could not be used.
        Module = "module",
        /// Its handler ended unexpectedly.
        HandlerDied = "handler-died",
        /// Anything else; see the errno.
        Other = "other",
        /// The program contains LeakSanitizer's runtime, which stops all threads, also the library's, and then reads
        /// the program's memory.
        Sanitizer = "sanitizer",
        /// The process was made past libc (by its clone, or by the system call).
        PastLibc = "past-libc",
        /// The engine's threads could not give up the program's rights without giving others a hold on the program.
        Rights = "rights",
    }
}

coded! {
    /// Why governed memory could not be placed.
    OutOfReach {
        /// It lies in tiles of larger pages, which the axis `pages` requested.
        LargerPage = "larger-page",
        /// It is a file's page cache, or a private page not yet copied from it.
        File = "file",
        /// It is shared with other processes.
        Shared = "shared",
        /// It is locked in memory or read-only, so that nothing can be moved there.
        LockedReadonly = "locked-readonly",
        /// It is a stack in use.
        StackInUse = "stack-in-use",
        /// It existed before the library.
        Early = "early",
        /// Anything else.
        Other = "other",
    }
}

coded! {
    /// Counters of the guest. Names are stable: they are keys of `guest.values` in records.
    Counter {
        /// mmap calls that mapped memory in a pool.
        MmapGoverned = "mmap.governed",
        /// mmap calls that the kernel placed outside the pools, including those that failed there.
        MmapPassed = "mmap.passed",
        /// munmap calls that touched a pool; a call over several pools counts once in each, here and below.
        MunmapGoverned = "munmap.governed",
        /// mremap calls that touched a pool.
        MremapGoverned = "mremap.governed",
        /// brk calls answered by the guest (sbrk included).
        BrkGoverned = "brk.governed",
        /// madvise and posix_madvise calls that touched a pool.
        MadviseGoverned = "madvise.governed",
        /// mprotect and pkey_mprotect calls that touched a pool.
        MprotectGoverned = "mprotect.governed",
        /// malloc arena heaps recognised.
        ArenasRecognised = "arenas.recognised",
        /// Requests that went to the kernel unchanged because the pool had no room.
        FallbackPoolFull = "fallback.pool-full",
        /// … because the kernel refused the guest's mapping for lack of memory.
        FallbackNoMemory = "fallback.enomem",
        /// … because something else was mapped at the pool's address.
        FallbackOccupied = "fallback.eexist",
        /// … for another errno.
        FallbackOther = "fallback.other",
        /// … because the guest's own tables were full.
        FallbackTables = "fallback.tables",
        /// Tiles not made because `vm.max_map_count` was near.
        FallbackMapCount = "fallback.map-count",
        /// hugetlb tiles replaced by transparent huge or base pages because the kernel's pool was exhausted.
        FallbackHugetlb = "fallback.hugetlb",
        /// Tiles that governed requests entered.
        TilesAsked = "tiles.asked",
        /// Tiles mapped whole at first touch.
        TilesMaterialised = "tiles.materialised",
        /// Tiles made huge by collapsing.
        TilesCollapsed = "tiles.collapsed",
        /// Tiles that the kernel refused to collapse.
        TilesCollapseFailed = "tiles.collapse-failed",
        /// Tiles split by a partial munmap, mprotect or madvise of the program.
        TilesSplit = "tiles.split",
        /// Tiles made whole again after having been split.
        TilesRefilled = "tiles.refilled",
        /// hugetlb tiles mapped.
        HugetlbTiles = "hugetlb.tiles",
        /// Partial operations on hugetlb tiles that the library carried out itself (holding, copying).
        HugetlbEmulated = "hugetlb.emulated",
        /// hugetlb tiles turned into normal memory (mprotect, fork).
        HugetlbDemoted = "hugetlb.demoted",
        /// Tiles between 4K and 2M that became separate mappings, because the policy names several sizes.
        MthpTiles = "mthp.tiles",
        /// Calls answered with an error that the kernel would not have returned.
        CallsRefused = "calls.refused",
        /// File mappings advised (MADV_RANDOM or MADV_WILLNEED).
        FilesAdvised = "files.advised",
        /// … populated.
        FilesPrefaulted = "files.prefaulted",
        /// … where the kernel refused the advice.
        FilesRefused = "files.refused",
        /// Scans for new file mappings after dlopen.
        DlopenRescans = "dlopen.rescans",
        /// Anonymous mappings populated.
        PrefaultDone = "prefault.done",
        /// Anonymous mappings not populated (NORESERVE, PROT_NONE, or too little memory available).
        PrefaultSkipped = "prefault.skipped",
        /// Spans given back without a look at their placement, because many before them had hardly been touched.
        RetiredUnseen = "retired.unseen",
        /// exec calls.
        Execs = "execs",
        /// exec calls whose environment was stripped of the guest.
        ExecsStripped = "execs.stripped",
    }
}

coded! {
    /// Events with a typed warning.
    GuestWarning {
        /// A request went to the kernel unchanged. `bytes`: its length.
        Fallback = "fallback",
        /// A tile could not be collapsed. `address`: the tile.
        CollapseFailed = "collapse-failed",
        /// The program split a tile. `address`: where.
        TileSplit = "tile-split",
        /// A call was refused. `address`, `bytes`: its arguments.
        CallRefused = "call-refused",
        /// The kernel's huge-page pool was exhausted. `bytes`: the page size.
        HugetlbExhausted = "hugetlb-exhausted",
        /// `vm.max_map_count` was near. `bytes`: mappings seen.
        MapCountNear = "map-count-near",
        /// File advice was refused. `address`: the mapping.
        AdviceRefused = "advice-refused",
        /// Populating was skipped for lack of memory. `bytes`: its length.
        PrefaultSkipped = "prefault-skipped",
        /// A page size could not be switched. `bytes`: the size.
        SwitchDenied = "switch-denied",
        /// Placement could not be measured.
        PlacementUnknown = "placement-unknown",
        /// Memory of another owner lay in a pool. `address`: where.
        PoolOccupied = "pool-occupied",
        /// The program installed a seccomp filter: placement was measured then, and nothing after it.
        Sandboxed = "sandboxed",
        /// The hook that watches dlopen could not be installed.
        DlopenUnwatched = "dlopen-unwatched",
        /// The kernel's heap of the program lies below 4 GiB, the governed one above. `address`: the kernel's break.
        HeapMoved = "heap-moved",
    }
}

impl GuestWarning {
    /// Name of its `WarningKind` in the record.
    pub fn warning_kind(self) -> &'static str {
        match self {
            GuestWarning::Fallback
            | GuestWarning::HugetlbExhausted
            | GuestWarning::MapCountNear
            | GuestWarning::PoolOccupied => "fallback-to-kernel",
            GuestWarning::CollapseFailed | GuestWarning::SwitchDenied => "placement-shortfall",
            GuestWarning::TileSplit => "tile-split",
            GuestWarning::CallRefused => "call-refused",
            GuestWarning::AdviceRefused | GuestWarning::DlopenUnwatched | GuestWarning::PrefaultSkipped => {
                "readahead-not-controlled"
            }
            GuestWarning::PlacementUnknown | GuestWarning::Sandboxed => "placement-unknown",
            GuestWarning::HeapMoved => "heap-moved",
        }
    }
}
