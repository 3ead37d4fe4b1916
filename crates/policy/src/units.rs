//! Units and address spaces as types: a byte count, a page size, an offset in a pool and a virtual address never mix.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::size;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::format(self.0))
    }
}

/// The size of a page in bytes: a power of two of at least 512.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct PageSize(u64);

impl PageSize {
    /// 4 KiB.
    pub const K4: PageSize = PageSize(4 << 10);
    /// 2 MiB.
    pub const M2: PageSize = PageSize(2 << 20);
    /// 1 GiB.
    pub const G1: PageSize = PageSize(1 << 30);

    /// A page size of `bytes`; `None` if this is no power of two, or below 512.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<PageSize> {
        if bytes.is_power_of_two() && bytes >= 512 { Some(PageSize(bytes)) } else { None }
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Whether `position` is a multiple of the size.
    #[must_use]
    pub const fn aligns(self, position: u64) -> bool {
        position & (self.0 - 1) == 0
    }
}

impl TryFrom<u64> for PageSize {
    type Error = String;

    fn try_from(bytes: u64) -> Result<Self, String> {
        PageSize::new(bytes).ok_or_else(|| format!("{bytes} is not a page size: a power of two of at least 512"))
    }
}

impl From<PageSize> for u64 {
    fn from(size: PageSize) -> u64 {
        size.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::format(self.0))
    }
}

/// A position in a region's pool, in bytes from the start of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolOffset(pub u64);

impl fmt::Display for PoolOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::format(self.0))
    }
}

/// A virtual address of the measured program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The number of a physical page frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FrameNumber(pub u64);

/// The colour of a page: the part of a physically indexed cache in which its lines can lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Colour(pub u32);
