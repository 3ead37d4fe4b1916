//! `PAGEMAP_SCAN`, the request to `/proc/PID/pagemap` for runs of pages of some categories (include/uapi/linux/fs.h,
//! Linux 6.7).

/// The request's number.
pub const REQUEST: usize = 0xc060_6610;
/// Category: the page is there.
pub const PRESENT: u64 = 1 << 3;
/// Category: it is the shared zero page.
pub const ZERO: u64 = 1 << 5;
/// Category: a huge entry maps it.
pub const HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Argument {
    /// Bytes of this structure.
    pub size: u64,
    /// 0: nothing is changed.
    pub flags: u64,
    /// The addresses to scan begin here.
    pub start: u64,
    /// They end before this one.
    pub end: u64,
    /// The kernel's answer: where it stopped.
    pub walk_end: u64,
    /// Address of the list for runs.
    pub runs: u64,
    /// Room in that list.
    pub run_count: u64,
    /// The scan may stop after so many pages; 0: never.
    pub max_pages: u64,
    /// Categories that count where a page is not of them.
    pub inverted: u64,
    /// Categories that a page must all be of.
    pub required: u64,
    /// Categories of which it must be of one; 0: it need not.
    pub any_of: u64,
    /// Categories that are told of each run.
    pub returned: u64,
}

/// `struct page_region`: pages of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// The first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Those of `returned` that it is of.
    pub categories: u64,
}
