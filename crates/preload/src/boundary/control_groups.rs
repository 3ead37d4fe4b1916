//! The memory that the limits of the process's control groups leave free.
//!
//! A page of the pool counts as the program's: in a group with a limit the pool takes from what the program could have.
//! So before the pool grows, or memory is populated ahead, the library reads the files of all groups up to the root:
//! their limits (version 2: `memory.max` and `memory.high`; version 1: `memory.limit_in_bytes`), the memory in use, and
//! the part of it that the kernel can reclaim. For the pool, limits are looked up again every second, since they change, and so does the group that a process is in.
//!
//! If the files cannot be read (a root directory without them), the library knows no limit, and gives no warning.

mod text;

use crate::boundary::own::Once;
use crate::boundary::sys;

use text::{Line, Place};

/// Where a hierarchy with the memory controller is mounted.
#[derive(Clone, Copy)]
struct Mount {
    place: Place,
    /// The group that the mount point shows: the paths of groups begin with it.
    root: Place,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The groups of this process, as far as they have limits.
pub struct Group {
    mount: Option<Mount>,
    levels: [Level; MOST_LEVELS],
    count: usize,
    /// When limits were looked up last, ns; 0: never.
    listed_ns: u64,
    /// When the usage was looked up last, ns, and the result.
    asked_ns: u64,
    left: Option<u64>,
}

struct Level {
    place: Place,
    limit: u64,
    /// Bytes of anonymous memory that may still go to swap.
    swap: u64,
}

/// Levels with a limit, nearest first; more of them are left out.
const MOST_LEVELS: usize = 4;
/// Limits are looked up again after so long, ns.
const LIST_AGAIN: u64 = 1_000_000_000;
/// ... and the usage after this many ns.
const ASK_AGAIN: u64 = 1_000_000;
/// Version-1 limits at or above this mean "none".
const NO_LIMIT: u64 = 1 << 62;
/// If more bytes than this are left of a limit, the reclaimable memory is not looked up.
const PLENTY: u64 = 64 << 20;
/// One part in this many of the anonymous memory that can be swapped out counts as free; not more, because it is the
/// program's, and comes back from swap.
const SWAP_SHARE: u64 = 4;

/// The mount that was found first, for [`left_now`]; hosts of containers have thousands to look through.
static MOUNT: Once<Option<Mount>> = Once::empty();

/// Bytes that the process may still use, as [`Group::left`], all looked up now but the mount. Called where no other
/// thread can reach the files (`apart`).
pub fn left_now() -> Option<u64> {
    let mut group = Group::unknown();
    if let Some(mount) = MOUNT.get() {
        group.mount = *mount;
    } else {
        group.learn();
        MOUNT.set(group.mount);
    }
    group.left()
}

impl Group {
    /// The state before [`Group::learn`].
    pub const fn unknown() -> Group {
        Group {
            mount: None,
            levels: [const { Level { place: Place::new(), limit: 0, swap: 0 } }; MOST_LEVELS],
            count: 0,
            listed_ns: 0,
            asked_ns: 0,
            left: None,
        }
    }

    /// Finds the places where groups are shown. Called once, while the engine starts.
    pub fn learn(&mut self) {
        let mut line = Line::new();
        text::each_line(c"/proc/self/mountinfo", &mut line, &mut |line| {
            let Some(mount) = text::mount(line) else { return true };
            // A hierarchy of version 2 that exists beside it has no memory controller.
            let first = mount.version == Version::One;
            if first || self.mount.is_none() {
                self.mount = Some(mount);
            }
            !first
        });
    }

    /// Bytes that may still be used, including those that the kernel can reclaim; `None`: no limit.
    pub fn left(&mut self) -> Option<u64> {
        let now = sys::monotonic_ns();
        if self.listed_ns == 0 || now - self.listed_ns >= LIST_AGAIN {
            (self.listed_ns, self.asked_ns) = (now, 0);
            self.list();
        }
        if self.count > 0 && (self.asked_ns == 0 || now - self.asked_ns >= ASK_AGAIN) {
            self.asked_ns = now;
            let version = self.mount.as_ref().map(|mount| mount.version)?;
            let levels = self.levels.iter().take(self.count);
            self.left = levels.filter_map(|level| level.left(version)).min();
        }
        self.left.filter(|_| self.count > 0)
    }

    /// Subtracts `bytes`, which the pool has taken.
    pub fn took(&mut self, bytes: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
    }

    /// Finds the levels with limits.
    #[inline(never)]
    fn list(&mut self) {
        self.count = 0;
        let Some(mount) = &self.mount else { return };
        let mut place = mount.own_group();
        loop {
            if let Some(level) = Level::read(&place, mount.version, free_swap)
                && let Some(free) = self.levels.get_mut(self.count)
            {
                *free = level;
                self.count += 1;
            }
            if !place.go_up(&mount.place) {
                return;
            }
        }
    }
}

/// Bytes of swap that nobody uses.
fn free_swap() -> u64 {
    text::value_in(c"/proc/meminfo", b"SwapFree:").unwrap_or(0) << 10
}

impl Mount {
    /// The directory of the process's group. If the group is not shown below the mount point, the mount point itself.
    fn own_group(&self) -> Place {
        let mut own: Option<Place> = None;
        text::each_line(c"/proc/self/cgroup", &mut Line::new(), &mut |line| {
            own = text::own_path(line, self.version).map(|path| self.place.below(path, &self.root));
            own.is_none()
        });
        own.filter(Place::is_there).unwrap_or(self.place)
    }
}

impl Level {
    /// Reads the limit and the usage of one level; `None`: it has no limit.
    fn read(place: &Place, version: Version, free_swap: fn() -> u64) -> Option<Level> {
        let number = |name: &str| text::value(&place.file(name)?, b"");
        let limit = match version {
            Version::One => number("memory.limit_in_bytes"),
            Version::Two => [number("memory.max"), number("memory.high")].into_iter().flatten().min(),
        };
        let limit = limit.filter(|limit| *limit < NO_LIMIT)?;
        let swap = match version {
            Version::One if number("memory.swappiness").is_none_or(|percent| percent == 0) => 0,
            Version::One => u64::MAX,
            Version::Two => {
                let most = number("memory.swap.max").unwrap_or(u64::MAX);
                most.saturating_sub(number("memory.swap.current").unwrap_or(0))
            }
        };
        let swap = if swap > 0 { swap.min(free_swap()) } else { 0 };
        Some(Level { place: *place, limit, swap })
    }

    #[inline(never)]
    fn left(&self, version: Version) -> Option<u64> {
        let (used, names): (_, [&[u8]; 4]) = match version {
            Version::One => (
                "memory.usage_in_bytes",
                [b"total_inactive_file ", b"total_active_file ", b"total_inactive_anon ", b"total_active_anon "],
            ),
            Version::Two => {
                ("memory.current", [b"inactive_file ", b"active_file ", b"inactive_anon ", b"active_anon "])
            }
        };
        let left = self.limit.saturating_sub(text::value(&self.place.file(used)?, b"")?);
        if left > PLENTY {
            return Some(left);
        }
        let mut values = [0; 4];
        text::each_line_at(&self.place.file("memory.stat")?, &mut Line::new(), &mut |line| {
            for (value, name) in values.iter_mut().zip(names) {
                if let Some(rest) = line.strip_prefix(name) {
                    *value = text::number(rest).unwrap_or(0);
                }
            }
            true
        });
        let [inactive_file, active_file, inactive, active] = values;
        let to_swap = (inactive + active).min(self.swap) / SWAP_SHARE;
        Some(left + inactive_file + active_file + to_swap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &std::path::Path, files: &[(&str, &str)]) -> Place {
        for (name, text) in files {
            std::fs::write(directory.join(name), text).unwrap();
        }
        Place::of(directory.to_str().unwrap().as_bytes()).unwrap()
    }

    fn directory(name: &str) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("pagelab-group-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_left_of_a_version_2_group() {
        let at = directory("two");
        let stat =
            "anon 1\nfile 2\ninactive_anon 8388608\nactive_anon 8388608\ninactive_file 1048576\nactive_file 4096\n";
        let files = [("memory.max", "67108864\n"), ("memory.high", "max\n"), ("memory.current", "66060288\n")];
        let place = written(&at, &files);
        written(&at, &[("memory.stat", stat), ("memory.swap.max", "max\n"), ("memory.swap.current", "0\n")]);
        let level = Level::read(&place, Version::Two, || 0).unwrap();
        assert_eq!((level.limit, level.swap), (64 * MIB, 0));
        assert_eq!(
            level.left(Version::Two),
            Some(2 * MIB + 4096),
            "one free, one of files; nothing can be swapped"
        );
        let level = Level::read(&place, Version::Two, || 1 << 40).unwrap();
        assert_eq!(level.left(Version::Two), Some(6 * MIB + 4096), "a quarter of what can go to swap");
        written(&at, &[("memory.high", "33554432\n"), ("memory.swap.max", "4194304\n")]);
        let level = Level::read(&place, Version::Two, || 1 << 40).unwrap();
        assert_eq!((level.limit, level.swap), (32 * MIB, 4 * MIB), "the lower one, and its own limit on swap");
        assert_eq!(level.left(Version::Two), Some(2 * MIB + 4096));
        written(&at, &[("memory.max", "max\n"), ("memory.high", "max\n")]);
        assert!(Level::read(&place, Version::Two, || 0).is_none());
        std::fs::remove_dir_all(at).unwrap();
    }

    #[test]
    fn what_is_left_of_a_version_1_group() {
        let at = directory("one");
        let stat = "inactive_file 7\ntotal_inactive_anon 4194304\ntotal_active_anon 0\ntotal_inactive_file 8192\n";
        let files = [("memory.limit_in_bytes", "16777216\n"), ("memory.usage_in_bytes", "16777216\n")];
        let place = written(&at, &files);
        written(&at, &[("memory.stat", stat), ("memory.swappiness", "0\n")]);
        let level = Level::read(&place, Version::One, || 1 << 40).unwrap();
        assert_eq!(level.left(Version::One), Some(8192), "it must not swap");
        written(&at, &[("memory.swappiness", "60\n")]);
        let level = Level::read(&place, Version::One, || 1 << 40).unwrap();
        assert_eq!(level.left(Version::One), Some(MIB + 8192));
        written(&at, &[("memory.limit_in_bytes", "9223372036854771712\n")]);
        assert!(Level::read(&place, Version::One, || 0).is_none());
        std::fs::remove_dir_all(at).unwrap();
    }

    #[test]
    fn the_level_that_leaves_least_counts_and_is_asked_again() {
        let outer = directory("levels");
        let inner = outer.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let limits = |max| [("memory.max", max), ("memory.current", "0"), ("memory.stat", "")];
        let place = written(&outer, &limits("4194304"));
        let own = written(&inner, &limits("8388608"));
        let mut group = Group::unknown();
        let mut at = own;
        loop {
            group.levels[group.count] = Level::read(&at, Version::Two, || 0).unwrap();
            group.count += 1;
            if !at.go_up(&place) {
                break;
            }
        }
        group.mount = Some(Mount { place, root: Place::new(), version: Version::Two });
        group.listed_ns = sys::monotonic_ns();
        assert_eq!((group.count, group.left()), (2, Some(4 * MIB)));
        group.took(MIB);
        assert!(group.left().is_some_and(|left| left == 3 * MIB || left == 4 * MIB), "unless a moment has passed");
        group.listed_ns = 1;
        written(&outer, &[("memory.max", "1048576")]);
        // The process is in no group below that mount point, so the mount point itself counts.
        assert_eq!((group.left(), group.count), (Some(MIB), 1));
        std::fs::remove_dir_all(outer).unwrap();
    }

    #[test]
    fn this_process_has_groups_or_none() {
        let mut group = Group::unknown();
        assert_eq!(group.left(), None, "nothing learned");
        group.learn();
        group.listed_ns = 0;
        let shown = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(group.mount.is_some(), shown.contains(" - cgroup"));
        group.left();
    }
}
