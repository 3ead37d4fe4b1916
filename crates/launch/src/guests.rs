//! The library's reports: from guest files to processes, placement, residency and warnings.

use crate::frames::report as frames;
use crate::warnings::{Kind, Severity, Warning, Warnings};
use crate::words;
use pagelab_contract::record::{FileResidency, GuestCounters, Placement, Process, Region, SizeBytes};
use pagelab_policy::guest::{GuestWarning, Measuring, RegionReport, Report, Started, State, WarningReport};
use pagelab_policy::plan::{Memory, Via};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// The value of a process that counts its images that began by fork.
pub const FORKED: &str = "images.forked";

/// Everything that the guests of one run reported, in the order in which the images began.
#[derive(Debug, Default)]
pub struct Guests {
    /// One report an image.
    pub reports: Vec<Report>,
    /// Guest files that could not be used, the first ones: (name, why).
    pub unreadable: Vec<(String, String)>,
    /// How many could not be used.
    pub unusable: u64,
    /// Processes with an image that could have no guest file.
    pub lost: BTreeSet<i32>,
    /// Such images by the errno that kept them from it.
    pub lost_by_errno: BTreeMap<i32, u64>,
    /// Reports beyond what the launcher keeps.
    pub left_out: u64,
    /// Entries of the directory that are no guest files.
    pub foreign: u64,
    /// When images began whose process is not known: they have an id of another PID namespace.
    pub unidentified: Vec<u64>,
}

impl Guests {
    /// The program's own first image.
    pub fn program(&self, pid: i32) -> Option<&Report> {
        self.reports.iter().find(|report| report.pid as i32 == pid)
    }

    /// Whether the library reported on a program that a process executed within this time, or could not report.
    pub fn reported(&self, pid: i32, while_it_ran: Range<u64>) -> bool {
        if self.lost.contains(&pid) || self.unidentified.iter().any(|start_ns| while_it_ran.contains(start_ns)) {
            return true;
        }
        let own = |report: &&Report| report.pid as i32 == pid && report.started == Started::Exec;
        self.reports.iter().filter(own).any(|report| while_it_ran.contains(&report.start_ns))
    }

    /// How long all images (of one process) took to measure their placement at exit; None when none did.
    pub fn measuring_ns(&self, pid: Option<i32>) -> Option<u64> {
        let wanted = |report: &&Report| pid.is_none_or(|pid| report.pid as i32 == pid);
        let took = |report: &Report| Some(report.measured_ns?.saturating_sub(report.end_ns?));
        self.reports.iter().filter(wanted).filter_map(took).reduce(|sum, one| sum + one)
    }

    /// CPU time and faults that measuring took, in all images (of one process). The kernel's accounts contain it.
    pub fn measuring(&self, pid: Option<i32>) -> Measuring {
        let wanted = |report: &&Report| pid.is_none_or(|pid| report.pid as i32 == pid);
        self.reports.iter().filter(wanted).fold(Measuring::default(), |sum, report| Measuring {
            user_ns: sum.user_ns.saturating_add(report.measuring.user_ns),
            system_ns: sum.system_ns.saturating_add(report.measuring.system_ns),
            minor_faults: sum.minor_faults.saturating_add(report.measuring.minor_faults),
            major_faults: sum.major_faults.saturating_add(report.measuring.major_faults),
        })
    }

    /// Processes as the guests describe them. Images of one process (exec) become one process: the last image names
    /// it, placement is of the images that measured any, counters add up.
    pub fn processes(&self, run_started_ns: u64) -> BTreeMap<i32, Process> {
        let mut processes: BTreeMap<i32, Process> = BTreeMap::new();
        let mut placing: BTreeMap<i32, frames::Sum> = BTreeMap::new();
        for report in &self.reports {
            let pid = report.pid as i32;
            if report.engine.is_some() || !report.frames.is_empty() {
                placing.entry(pid).or_default().add(report);
            }
            let process = processes.entry(pid).or_insert_with(|| Process {
                pid,
                start_ns: Some(report.start_ns.saturating_sub(run_started_ns)),
                ..Process::default()
            });
            describe(process, report, run_started_ns);
        }
        for (pid, sum) in placing {
            processes.entry(pid).and_modify(|process| process.frames = Some(sum.block(false, None)));
        }
        processes
    }

    /// Placement over all processes.
    pub fn placement(&self) -> Placement {
        let mut by_size: BTreeMap<u64, u64> = BTreeMap::new();
        let mut placement = Placement::default();
        for region in self.reports.iter().flat_map(|report| &report.regions) {
            for (page_bytes, bytes) in sizes(region) {
                *by_size.entry(page_bytes).or_default() += bytes;
            }
            if let Some((whole, as_asked)) = tiles(region) {
                placement.whole_touched_tiles += whole;
                placement.tiles_as_asked += as_asked;
            }
        }
        placement.by_size =
            by_size.into_iter().map(|(page_bytes, bytes)| SizeBytes { page_bytes, bytes }).collect();
        if placement.whole_touched_tiles > 0 {
            let (asked, got) = (placement.whole_touched_tiles as f64, placement.tiles_as_asked as f64);
            placement.placed_fraction = Some(got / asked);
        }
        placement
    }

    /// Residency of mapped files when the processes started, without pagelab's own; a file's first sight counts.
    pub fn residency(&self, run_dir: &Path) -> Vec<FileResidency> {
        let mut files: BTreeMap<&str, FileResidency> = BTreeMap::new();
        let all = self.reports.iter().flat_map(|report| &report.residency);
        for seen in all.filter(|seen| !Path::new(&seen.path).starts_with(run_dir)) {
            files.entry(&seen.path).or_insert_with(|| FileResidency {
                path: seen.path.clone(),
                pages: seen.pages,
                resident_pages: seen.resident_pages,
            });
        }
        files.into_values().collect()
    }

    /// Warnings from the guests' notes and states, and of unreadable files. (`warn_short_placed` in
    /// `process_tree/record.rs` warns of missing tiles.)
    pub fn warn(&self, program: i32, warnings: &mut Warnings) {
        self.warn_unusable(warnings);
        self.warn_lost(warnings);
        self.warn_disabled(program, warnings);
        self.warn_unmeasured(warnings);
        for (kind, total) in self.guest_warnings() {
            warnings.0.push(run_warning(kind, &total));
        }
        self.warn_uncounted(warnings);
    }

    /// Warns of unusable guest files. (A program may write such files on purpose.)
    fn warn_unusable(&self, warnings: &mut Warnings) {
        for (name, why) in &self.unreadable {
            let message =
                format!("the guest file {name} could not be used: {why}; its process is not in the placement");
            warnings.warn(Kind::PlacementUnknown, message, json!({"file": name, "reason": why}));
        }
        let unnamed = self.unusable.saturating_sub(self.unreadable.len() as u64);
        if unnamed > 0 {
            let message = format!("{unnamed} more guest files could not be used");
            warnings.warn(Kind::PlacementUnknown, message, json!({"files": unnamed}));
        }
        if self.foreign > 0 {
            let message = format!("{} entries in the directory of the guest files are none", self.foreign);
            warnings.warn(Kind::PlacementUnknown, message, json!({"files": self.foreign}));
        }
        if self.left_out > 0 {
            let message = format!("the reports of {} process images were too many to keep", self.left_out);
            warnings.warn(Kind::PlacementUnknown, message, json!({"images": self.left_out}));
        }
    }

    fn warn_lost(&self, warnings: &mut Warnings) {
        for (&errno, images) in &self.lost_by_errno {
            let error = std::io::Error::from_raw_os_error(errno);
            let way_out = match errno {
                libc::EFBIG => {
                    "; their limit on the size of files is below that of a guest file; run: ulimit -f unlimited"
                }
                libc::EMFILE | libc::ENFILE => "; run: ulimit -n 1024",
                libc::ENOSPC | libc::EDQUOT => "; name a place with more room: --run-dir DIR",
                _ => "",
            };
            let message = format!(
                "{images} process images ran as the policy says but could not report: no guest file could be made: {}{way_out}",
                crate::sys::errno_text(&error)
            );
            let data = json!({"images": images, "errno": crate::sys::errno_text(&error)});
            warnings.warn(Kind::PlacementUnknown, message, data);
        }
    }

    fn warn_disabled(&self, program: i32, warnings: &mut Warnings) {
        for report in &self.reports {
            let Some((reason, errno)) = report.disabled else { continue };
            let whose = if report.pid as i32 == program { "the program" } else { "a child" };
            let errno = errno.map(|errno| std::io::Error::from_raw_os_error(errno).to_string());
            let detail = errno.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            let message = format!(
                "{whose} ({}, process {}) ran ungoverned: {}{detail}",
                report.exe,
                report.pid,
                reason.name()
            );
            let data =
                json!({"pid": report.pid, "executable": report.exe, "reason": reason.name(), "errno": errno});
            if report.pid as i32 == program {
                warnings.add(Kind::GuestDisabled, Severity::Serious, message, data);
            } else {
                warnings.warn(Kind::ChildUngoverned, message, data);
            }
        }
    }

    fn warn_unmeasured(&self, warnings: &mut Warnings) {
        let early = self.reports.iter().filter(|report| has_ended_early(report));
        let pids: Vec<u32> = early.map(|report| report.pid).collect();
        if !pids.is_empty() {
            let message = format!(
                "{} of {} process images ended without measuring their placement (killed, _exit or exec)",
                pids.len(),
                self.reports.len()
            );
            warnings.add(Kind::PlacementUnknown, Severity::Info, message, json!({"pids": pids}));
        }
        let dropped: u64 = self.reports.iter().map(|report| report.regions_dropped).sum();
        if dropped > 0 {
            let message =
                format!("{dropped} regions found no room in their guest files and are not in the placement");
            warnings.warn(Kind::PlacementUnknown, message, json!({"regions": dropped}));
        }
    }

    /// The kernel shows sizes between the base page and 2M to root only (/proc/kpageflags); sums do not show tiles.
    fn warn_uncounted(&self, warnings: &mut Warnings) {
        let all = self.reports.iter().flat_map(|report| &report.regions);
        let uncounted = all.filter(|region| region.tiles.is_none() && region.resident_bytes > 0);
        let sizes: BTreeSet<u64> = uncounted.filter_map(|region| region.asked).collect();
        if !sizes.is_empty() {
            let names: Vec<String> = sizes.into_iter().map(words::size).collect();
            let message = format!(
                "whether tiles of {} are as asked was not counted; run as root: pagelab map -- CMD",
                names.join(", ")
            );
            warnings.add(Kind::PlacementUnknown, Severity::Info, message, json!({"sizes": names}));
        }
    }

    /// Warnings of all processes, added up by kind.
    fn guest_warnings(&self) -> Vec<(GuestWarning, WarningReport)> {
        let mut totals: Vec<(GuestWarning, WarningReport)> = Vec::new();
        // Where the heap lies harms few programs, and those it harms are killed.
        let matters = |report: &Report, kind| kind != GuestWarning::HeapMoved || has_ended_early(report);
        let noted = self.reports.iter().flat_map(|report| report.warnings.iter().map(move |noted| (report, noted)));
        for warning in noted.filter(|(report, noted)| matters(report, noted.kind)).map(|(_, noted)| noted) {
            match totals.iter_mut().find(|(kind, _)| *kind == warning.kind) {
                Some((_, total)) => total.count += warning.count,
                None => totals.push((warning.kind, warning.clone())),
            }
        }
        totals
    }
}

/// Whether an image ended without measuring its placement.
fn has_ended_early(report: &Report) -> bool {
    report.state == State::Active || report.state == State::Starting
}

fn describe(process: &mut Process, report: &Report, run_started_ns: u64) {
    process.ppid = report.ppid as i32;
    process.executable.clone_from(&report.exe);
    process.governed = report.disabled.is_none();
    if let Some(end) = report.end_ns {
        let start = run_started_ns + process.start_ns.unwrap_or(0);
        process.wall_ns = Some(end.saturating_sub(start));
    }
    if let Some(usage) = report.rusage {
        process.user_ns = Some(usage.user_ns);
        process.system_ns = Some(usage.system_ns);
        process.minor_faults = Some(usage.minor_faults);
        process.major_faults = Some(usage.major_faults);
        process.peak_rss_bytes = Some(usage.max_rss_bytes);
    }
    process.placement.extend(report.regions.iter().map(region));
    let guest = process.guest.get_or_insert(GuestCounters { values: BTreeMap::new() });
    for &(name, value) in &report.counters {
        *guest.values.entry(name.to_owned()).or_default() += value;
    }
    let images = if report.started == Started::Fork { FORKED } else { "images.executed" };
    *guest.values.entry(images.to_owned()).or_default() += 1;
}

fn region(report: &RegionReport) -> Region {
    Region {
        region: match report.memory {
            Some(Memory::Heap) => "heap",
            Some(Memory::Anon) => "anon",
            Some(Memory::Arenas) => "arenas",
            Some(Memory::File) => "file",
            Some(Memory::Data) => "data",
            Some(Memory::Stack) => "stack",
            Some(Memory::Range) => "range",
            None => "other",
        },
        asked: report.asked.map_or_else(|| "kernel".to_owned(), words::size),
        via: report.via.map(|via| if via == Via::Hugetlb { "hugetlb" } else { "thp" }),
        start: report.start,
        end: report.end,
        mapped_bytes: report.mapped_bytes,
        resident_bytes: report.resident_bytes,
        by_size: sizes(report).into_iter().map(|(page_bytes, bytes)| SizeBytes { page_bytes, bytes }).collect(),
        given_back_bytes: report.retired_by_size.iter().map(|&(_, bytes)| bytes).sum(),
        whole_touched_tiles: tiles(report).map(|tiles| tiles.0),
        tiles_as_asked: tiles(report).map(|tiles| tiles.1),
    }
}

/// Bytes by page size over the whole run: resident at the end, and given back before.
fn sizes(report: &RegionReport) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::new();
    for &(page_bytes, bytes) in report.by_size.iter().chain(&report.retired_by_size) {
        *sizes.entry(page_bytes).or_default() += bytes;
    }
    sizes
}

/// Numbers over the whole run: whole, touched tiles, and those of them that are as requested.
fn tiles(report: &RegionReport) -> Option<(u64, u64)> {
    match (report.tiles, report.retired_tiles) {
        (Some(now), Some(before)) => Some((now.0 + before.0, now.1 + before.1)),
        (now, before) => now.or(before),
    }
}

fn run_warning(kind: GuestWarning, total: &WarningReport) -> Warning {
    let errno = total.errno.map(|errno| crate::sys::errno_text(&std::io::Error::from_raw_os_error(errno)));
    let first = errno.as_deref().map(|text| format!("; the first time: {text}")).unwrap_or_default();
    let message = format!("{} ({} times{first})", warning_text(kind), total.count);
    let data = json!({
        "note": kind.name(), "count": total.count, "errno": errno,
        "first_address": total.address, "first_bytes": total.bytes,
    });
    let data = if let serde_json::Value::Object(map) = data { map } else { serde_json::Map::new() };
    let known = Kind::ALL.iter().copied().find(|known| known.name() == kind.warning_kind());
    // Splits are common and caused by the program itself; their effect on placement is judged by the tiles.
    let severity = if kind == GuestWarning::TileSplit { Severity::Info } else { Severity::Warning };
    Warning { kind: known.unwrap_or(Kind::FallbackToKernel), severity, message, data }
}

fn warning_text(kind: GuestWarning) -> &'static str {
    match kind {
        GuestWarning::Fallback => "requests for memory went to the kernel unchanged",
        GuestWarning::CollapseFailed => "the kernel refused to make tiles huge",
        GuestWarning::TileSplit => "the program split tiles by unmapping, protecting or discarding parts of them",
        GuestWarning::CallRefused => {
            "calls of the program were answered with an error the kernel would not have given"
        }
        GuestWarning::HugetlbExhausted => {
            "the kernel's pool of huge pages was exhausted; run: sudo pagelab doctor --fix hugepages-SIZE=N, where N is \
             the pool's present size (see: pagelab doctor) plus the missing pages"
        }
        GuestWarning::MapCountNear => {
            "tiles were not made because vm.max_map_count is near; run: sysctl vm.max_map_count"
        }
        GuestWarning::AdviceRefused => "the kernel refused advice on file mappings",
        GuestWarning::PrefaultSkipped => "memory was not populated for lack of it",
        GuestWarning::SwitchDenied => "a page size could not be switched on; mTHP sizes need root",
        GuestWarning::PlacementUnknown => "placement could not be measured",
        GuestWarning::PoolOccupied => "something else lay in a pool's address range",
        GuestWarning::Sandboxed => {
            "processes locked themselves in with seccomp, have their system calls sent to themselves, or watch their \
             memory calls with a userfaultfd: their placement and usage are those of that moment"
        }
        GuestWarning::DlopenUnwatched => "libraries loaded with dlopen are not watched",
        GuestWarning::HeapMoved => {
            "process images ended early whose heap lies below 4 GiB without a policy (not PIE), and above with it: if \
             they keep pointers in 32 bits, leave the heap to the kernel: --pages heap=kernel"
        }
    }
}
