//! Limits that the run's control groups put on it, version 1 and 2.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of limit files, each with the version-1 controller that has the file.
const V1: [(&str, &str); 6] = [
    ("memory", "memory.limit_in_bytes"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_period_us"),
    ("cpuset", "cpuset.effective_cpus"),
    ("cpuset", "cpuset.effective_mems"),
    ("pids", "pids.max"),
];
const V2: [&str; 8] = [
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "cpu.max",
    "cpuset.cpus.effective",
    "cpuset.mems.effective",
    "pids.max",
    "hugetlb.2MB.max",
];
/// Version-1 memory limits at or above this mean "none" (the kernel rounds LONG_MAX down to a page).
const NO_LIMIT: u64 = 1 << 62;

/// The limits in force.
#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    /// By file name, as read; of a parent's and a group's own limit, the lower one.
    pub files: BTreeMap<String, String>,
    /// Smallest memory limit along the path to the root; a limit that slows processes down (`memory.high`) counts like
    /// one that ends them.
    pub memory_bytes: Option<u64>,
    /// CPUs' worth of time, when limited.
    pub cpu_quota: Option<f64>,
}

/// Reads the limits of this process.
pub fn limits() -> Limits {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    read(&groups, &mounts)
}

/// The tightest limit on processes and threads, and how many there are in that group; `None` without a limit.
pub fn processes() -> Option<(u64, u64)> {
    let (groups, mounts) = membership()?;
    places(&groups, &mounts)
        .filter_map(|place| Some((number(&place.join("pids.max"))?, number(&place.join("pids.current"))?)))
        .min_by_key(|(limit, used)| limit.saturating_sub(*used))
}

/// A group that limits memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory that its processes may have together, in bytes.
    pub limit: u64,
    /// Memory that they have, without the page cache, which can be dropped.
    pub used: u64,
    /// Page cache that counts against the limit.
    pub cached: u64,
    /// Where the limit is set.
    pub file: PathBuf,
}

impl Memory {
    /// Memory that can be had without dropping a file from the page cache.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_add(self.cached))
    }
}

/// The tightest limit on memory; `None` without a limit.
pub fn memory() -> Option<Memory> {
    let (groups, mounts) = membership()?;
    places(&groups, &mounts)
        .filter_map(|place| memory_of(&place, &ENDING))
        .min_by_key(|found| found.limit.saturating_sub(found.used))
}

/// Memory that can be had before a limit makes the kernel drop files or slow processes down; `None` without a limit.
pub fn free_memory() -> Option<u64> {
    let (groups, mounts) = membership()?;
    places(&groups, &mounts).filter_map(|place| free_memory_of(&place)).min()
}

fn free_memory_of(group: &Path) -> Option<u64> {
    [&ENDING[..], &SLOWING[..]].iter().filter_map(|files| memory_of(group, files)).map(|found| found.free()).min()
}

/// Files of a limit, of what is used, and of `memory.stat`: the page cache and the shared memory in it.
type MemoryFiles = [&'static str; 4];
/// Of limits beyond which processes are ended.
const ENDING: [MemoryFiles; 2] = [
    ["memory.max", "memory.current", "file", "shmem"],
    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"],
];
/// Of the one beyond which they are slowed down.
const SLOWING: [MemoryFiles; 1] = [["memory.high", "memory.current", "file", "shmem"]];

fn memory_of(group: &Path, files: &[MemoryFiles]) -> Option<Memory> {
    files.iter().find_map(|&[limit, used, cache, shared]| {
        let file = group.join(limit);
        let limit = number(&file).filter(|&bytes| bytes < NO_LIMIT)?;
        let parts = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let part = |name: &str| {
            let found =
                parts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
            found.unwrap_or(0)
        };
        let droppable = part(cache).saturating_sub(part(shared));
        let used = number(&group.join(used))?.saturating_sub(droppable);
        Some(Memory { limit, used, cached: droppable, file })
    })
}

/// `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn membership() -> Option<(String, String)> {
    Some((fs::read_to_string("/proc/self/cgroup").ok()?, fs::read_to_string("/proc/self/mountinfo").ok()?))
}

/// The directories of all groups that hold this process, up to the roots.
fn places<'a>(groups: &'a str, mounts: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    groups
        .lines()
        .filter_map(move |line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            Some(levels(&mount_point(mounts, controllers)?, path))
        })
        .flatten()
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn read(groups: &str, mounts: &str) -> Limits {
    let mut limits = Limits::default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let Some(mount) = mount_point(mounts, controllers) else { continue };
        let levels = levels(&mount, path);
        if controllers.is_empty() {
            V2.iter().for_each(|name| collect(&mut limits, &levels, name));
        } else {
            let has = |wanted: &str| controllers.split(',').any(|controller| controller == wanted);
            V1.iter()
                .filter(|(controller, _)| has(controller))
                .for_each(|(_, name)| collect(&mut limits, &levels, name));
        }
    }
    let quota_of = |name: &str| limits.files.get(name)?.parse::<f64>().ok();
    if let (Some(quota), Some(period)) = (quota_of("cpu.cfs_quota_us"), quota_of("cpu.cfs_period_us"))
        && quota > 0.0
    {
        limits.cpu_quota = Some(quota / period);
    }
    limits
}

/// Where the hierarchy of these controllers is mounted; the empty name means version 2.
fn mount_point(mounts: &str, controllers: &str) -> Option<PathBuf> {
    let wanted = controllers.split(',').next()?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let fits = match wanted {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        fits.then(|| PathBuf::from(left.split(' ').nth(4).unwrap_or_default()))
    })
}

/// Directories from the process's group up to the mount point. In a cgroup namespace, or a container that sees only
/// its own part of the tree, the path does not exist below the mount point; then the mount point itself counts.
fn levels(mount: &Path, path: &str) -> Vec<PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    if !own.is_dir() {
        return vec![mount.to_owned()];
    }
    own.ancestors().take_while(|level| level.starts_with(mount)).map(Path::to_owned).collect()
}

fn collect(limits: &mut Limits, levels: &[PathBuf], name: &str) {
    for level in levels {
        let Ok(text) = fs::read_to_string(level.join(name)) else { continue };
        note(limits, name, text.trim());
    }
}

fn note(limits: &mut Limits, name: &str, text: &str) {
    let bytes = text.parse::<u64>().ok().filter(|&bytes| bytes < NO_LIMIT);
    let tighter = match name {
        "memory.max" | "memory.high" | "memory.limit_in_bytes" => {
            limits.memory_bytes = limits.memory_bytes.into_iter().chain(bytes).min();
            let known = limits.files.get(name).and_then(|text| text.parse::<u64>().ok());
            bytes.is_some_and(|bytes| known.is_none_or(|known| bytes < known))
        }
        "cpu.max" => {
            let quota = quota(text);
            let tighter = quota.is_some_and(|quota| limits.cpu_quota.is_none_or(|known| quota < known));
            if tighter {
                limits.cpu_quota = quota;
            }
            tighter
        }
        // The nearest group's value is what holds (effective sets), or good enough to know.
        _ => false,
    };
    if tighter || !limits.files.contains_key(name) {
        limits.files.insert(name.to_owned(), text.to_owned());
    }
}

/// `cpu.max` is "quota period", or "max period".
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_memory_limit_along_the_path_is_in_force() {
        let mut limits = Limits::default();
        for (name, text) in [("memory.max", "max"), ("memory.max", "1048576"), ("memory.max", "2097152")] {
            note(&mut limits, name, text);
        }
        assert_eq!(limits.memory_bytes, Some(1_048_576));
        assert_eq!(limits.files.get("memory.max").map(String::as_str), Some("1048576"));
        for text in ["4194304", "524288"] {
            note(&mut limits, "memory.high", text);
        }
        assert_eq!(limits.memory_bytes, Some(524_288));
        assert_eq!(limits.files.get("memory.high").map(String::as_str), Some("524288"));
        assert_eq!(limits.files.get("memory.max").map(String::as_str), Some("1048576"));
    }

    #[test]
    fn unlimited_is_not_a_limit() {
        let mut limits = Limits::default();
        note(&mut limits, "memory.limit_in_bytes", "9223372036854771712");
        note(&mut limits, "cpu.max", "max 100000");
        assert_eq!((limits.memory_bytes, limits.cpu_quota), (None, None));
        note(&mut limits, "cpu.max", "150000 100000");
        assert_eq!(limits.cpu_quota, Some(1.5));
    }

    #[test]
    fn mount_points_are_found_for_both_versions() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                      31 23 0:27 / /cg/mem rw - cgroup cgroup rw,memory\n";
        assert_eq!(mount_point(mounts, ""), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point(mounts, "memory"), Some(PathBuf::from("/cg/mem")));
        assert_eq!(mount_point(mounts, "cpu"), None);
    }

    #[test]
    fn files_in_memory_are_room_and_shared_memory_is_none() {
        let group = std::env::temp_dir().join(format!("pagelab-group-{}", std::process::id()));
        let versions = [
            ("memory.max", "memory.current", "anon 5000\nfile 3000\nfile_mapped 7\nshmem 1000\n"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "cache 1\ntotal_cache 3000\ntotal_shmem 1000\n"),
        ];
        for (limit, used, parts) in versions {
            fs::create_dir(&group).expect("new");
            for (name, text) in [(limit, "65536\n"), (used, "8000\n"), ("memory.stat", parts)] {
                fs::write(group.join(name), text).expect("written");
            }
            let (found, free) = (memory_of(&group, &ENDING), free_memory_of(&group));
            fs::write(group.join("memory.high"), "20000").expect("written");
            let before_high = free_memory_of(&group);
            fs::write(group.join(limit), if limit == "memory.max" { "max" } else { "9223372036854771712" })
                .expect("written");
            let unlimited = memory_of(&group, &ENDING);
            fs::remove_dir_all(&group).expect("removed");
            assert_eq!(found, Some(Memory { limit: 65536, used: 6000, cached: 2000, file: group.join(limit) }));
            assert_eq!(unlimited, None);
            assert_eq!(free, Some(57536));
            assert_eq!(before_high, Some(if limit == "memory.max" { 12000 } else { 57536 }));
        }
    }
}
