//! What the library takes of a program's resources: the one table, of which docs/preload.md has a copy that a test
//! compares.

use crate::cgroup;
use rustix::process::Resource;
use serde_json::{Value, json};

/// The row of control groups.
pub const GROUP_MEMORY: &str = "memory of a control group";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The library's work in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Page sizes and frames are left to the kernel.
    Kernel,
    /// Tiles, whatever they are made of.
    Sizes,
    /// An engine runs in the process.
    Frames,
}

impl Column {
    /// In the order of [`Surcharge::adds`].
    pub const ALL: [Column; 3] = [Column::Kernel, Column::Sizes, Column::Frames];
}

/// The unit of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Shown as KiB or MiB where whole.
    Bytes,
    /// Descriptors, processes, mappings, …
    Pieces,
}

impl Unit {
    /// In records.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Pieces => "pieces",
        }
    }

    /// `6 MiB`, `16 KiB`, `64`.
    pub fn shown(self, value: u64) -> String {
        match (self, value) {
            (Unit::Bytes, 1..) if value.is_multiple_of(MIB) => format!("{} MiB", value / MIB),
            (Unit::Bytes, 1..) if value >= 10 * MIB => format!("{:.1} MiB", value as f64 / MIB as f64),
            (Unit::Bytes, 1..) if value.is_multiple_of(KIB) => format!("{} KiB", value / KIB),
            (Unit::Bytes, 1..) if value >= KIB => format!("{:.1} KiB", value as f64 / KIB as f64),
            (Unit::Bytes, 1..) => format!("{value} bytes"),
            _ => value.to_string(),
        }
    }
}

/// How a user raises a limit.
#[derive(Clone, Copy, Debug)]
enum Raise {
    /// An option of the shell's `ulimit`, how many of the unit one of its own is, and prlimit(1)'s name for it.
    Ulimit(char, u64, &'static str),
    /// sysctl(8).
    Sysctl,
    /// The file of the control group.
    Group,
    /// Nothing can be raised.
    Nothing,
}

/// A row: how much more a program that natively gets by with a limit may need under a policy.
#[derive(Debug)]
pub struct Surcharge {
    /// The limit's name.
    pub name: &'static str,
    /// The text after the name in the docs.
    note: &'static str,
    /// Number for getrlimit(2).
    pub number: Option<Resource>,
    /// Its unit.
    pub unit: Unit,
    adds: [u64; 3],
    what: &'static str,
    raise: Raise,
}

impl Surcharge {
    /// The library's need in this mode.
    pub fn adds(&self, column: Column) -> u64 {
        self.adds[column as usize]
    }

    /// The name with its verb.
    pub fn subject(&self) -> &'static str {
        self.what
    }

    /// The command that raises the limit to `wanted`; `most`: what the user may raise it to.
    pub fn raise(&self, wanted: u64, most: u64) -> String {
        match self.raise {
            Raise::Ulimit(option, size, _) if wanted <= most => {
                format!("ulimit -{option} {}", wanted.div_ceil(size))
            }
            Raise::Ulimit(_, _, name) => format!("sudo prlimit --pid $$ --{name}={wanted}"),
            Raise::Sysctl => format!("sudo sysctl {}={wanted}", self.name),
            Raise::Group => match cgroup::memory() {
                Some(group) => format!("echo {wanted} | sudo tee {}", group.file.display()),
                None => "pagelab doctor".to_owned(),
            },
            Raise::Nothing => "pagelab doctor".to_owned(),
        }
    }

    /// The row as the docs have it.
    fn line(&self) -> String {
        let cells: Vec<String> = self.adds.iter().map(|&value| self.unit.shown(value)).collect();
        let name = if self.name.contains(' ') { self.name.to_owned() } else { format!("`{}`", self.name) };
        format!("| {name}{} | {} |", self.note, cells.join(" | "))
    }
}

/// The table as data, for tests and docs.
pub fn document() -> Value {
    TABLE
        .iter()
        .map(|row| {
            let [kernel, sizes, frames] = row.adds;
            json!({
                "resource": row.name, "unit": row.unit.name(), "line": row.line(),
                "adds": {"kernel": kernel, "sizes": sizes, "frames": frames},
            })
        })
        .collect()
}

const fn of(
    name: &'static str,
    number: Resource,
    unit: Unit,
    adds: [u64; 3],
    what: &'static str,
    raise: Raise,
) -> Surcharge {
    Surcharge { name, note: "", number: Some(number), unit, adds, what, raise }
}

const fn nothing(name: &'static str, number: Resource, note: &'static str) -> Surcharge {
    let unit = Unit::Pieces;
    Surcharge { name, note, number: Some(number), unit, adds: [0; 3], what: "", raise: Raise::Nothing }
}

/// Measured by `tests/test_resources.py`: the smallest limit natively, and under each policy.
pub const TABLE: &[Surcharge] = &[
    Surcharge {
        name: "stack of a call",
        note: ", `_exit` and exec included",
        number: None,
        unit: Unit::Bytes,
        adds: [KIB; 3],
        what: "the stack of a call is",
        raise: Raise::Nothing,
    },
    Surcharge {
        note: ", numbers",
        ..of(
            "RLIMIT_NOFILE",
            Resource::Nofile,
            Unit::Pieces,
            [0, 0, 1],
            "open files are",
            Raise::Ulimit('n', 1, "nofile"),
        )
    },
    nothing("RLIMIT_FSIZE", Resource::Fsize, ""),
    of(
        "RLIMIT_AS",
        Resource::As,
        Unit::Bytes,
        [2 * MIB, 6656 * KIB, 20 * MIB],
        "address space is",
        Raise::Ulimit('v', 1024, "as"),
    ),
    of(
        "RLIMIT_DATA",
        Resource::Data,
        Unit::Bytes,
        [MIB, 5632 * KIB, 19 * MIB],
        "data memory is",
        Raise::Ulimit('d', 1024, "data"),
    ),
    of(
        "RLIMIT_STACK",
        Resource::Stack,
        Unit::Bytes,
        [16 * KIB; 3],
        "the main stack is",
        Raise::Ulimit('s', 1024, "stack"),
    ),
    nothing("RLIMIT_MEMLOCK", Resource::Memlock, ""),
    of(
        "RLIMIT_NPROC",
        Resource::Nproc,
        Unit::Pieces,
        [1, 1, 3],
        "processes and threads are",
        Raise::Ulimit('u', 1, "nproc"),
    ),
    nothing("RLIMIT_CORE", Resource::Core, ""),
    nothing("RLIMIT_SIGPENDING", Resource::Sigpending, ""),
    nothing("RLIMIT_CPU", Resource::Cpu, ", seconds"),
    nothing("RLIMIT_MSGQUEUE", Resource::Msgqueue, ""),
    nothing("RLIMIT_NICE", Resource::Nice, ""),
    nothing("RLIMIT_RTPRIO", Resource::Rtprio, ""),
    Surcharge {
        name: "vm.max_map_count",
        note: ", mappings",
        number: None,
        unit: Unit::Pieces,
        adds: [24, 24, 64],
        what: "mappings are",
        raise: Raise::Sysctl,
    },
    Surcharge {
        name: GROUP_MEMORY,
        note: " without swap, the launcher's own included",
        number: None,
        unit: Unit::Bytes,
        adds: [3 * MIB / 2, 5 * MIB, 4 * MIB],
        what: "the memory of the control group is",
        raise: Raise::Group,
    },
    Surcharge {
        name: "space in the run directory",
        note: "",
        number: None,
        unit: Unit::Pieces,
        adds: [0; 3],
        what: "",
        raise: Raise::Nothing,
    },
];
