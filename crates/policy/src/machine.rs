//! Capabilities of a machine, as data: the policy crate never reads the machine itself.

use serde::{Deserialize, Serialize};

use crate::units::PageSize;

/// Method of making tiles above the base page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Transparent huge pages. (Sizes that only hugetlb offers, such as 1G, come from hugetlb all the same.)
    #[default]
    Thp,
    /// The reserved pools of hugetlb.
    Hugetlb,
}

impl Via {
    /// Both.
    pub const ALL: [Via; 2] = [Via::Thp, Via::Hugetlb];

    /// The word in the policy language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Via::Thp => "thp",
            Via::Hugetlb => "hugetlb",
        }
    }
}

/// A hugetlb page size that the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugetlbPool {
    /// Size of its pages.
    pub page_bytes: PageSize,
    /// Available pages: reserved in the pool plus allowed overcommit. `None`: unknown, and assumed to be enough.
    #[serde(default)]
    pub pages: Option<u64>,
    /// All pages in the pool, those in use too. `None`: unknown.
    #[serde(default)]
    pub total_pages: Option<u64>,
}

/// The cache whose sets page colours divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// Bytes in a line.
    pub line_bytes: u32,
    /// Sets.
    pub sets: u32,
    /// Ways of each set.
    pub ways: u32,
}

impl CacheGeometry {
    /// Number of page colours: bytes in one way over bytes in a page, at least 1.
    #[must_use]
    pub fn colours(self, page: PageSize) -> u64 {
        (u64::from(self.line_bytes) * u64::from(self.sets) / page.bytes()).max(1)
    }
}

/// A machine description; unknown JSON keys are ignored, so that a full doctor report can be passed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Size of the base page.
    pub base_page_bytes: PageSize,
    /// Size of a PMD-mapped transparent huge page; `None`: the kernel has none.
    #[serde(default)]
    pub thp_bytes: Option<PageSize>,
    /// Sizes between the two that the kernel can use for anonymous memory.
    #[serde(default)]
    pub mthp_bytes: Vec<PageSize>,
    /// Whether the system-wide mTHP switches may be written (root).
    #[serde(default)]
    pub mthp_switchable: bool,
    /// hugetlb sizes.
    #[serde(default)]
    pub hugetlb: Vec<HugetlbPool>,
    /// `vm.max_map_count`: each interval of a mosaic is a separate mapping.
    #[serde(default)]
    pub max_map_count: Option<u64>,
    /// The last-level cache, if known.
    #[serde(default)]
    pub cache: Option<CacheGeometry>,
}

impl Machine {
    /// An x86-64 machine that offers everything the language has: for reading policies away from the machine on which
    /// they ran.
    #[must_use]
    pub fn generic_x86_64() -> Machine {
        let hugetlb = |page_bytes| HugetlbPool { page_bytes, pages: None, total_pages: None };
        Machine {
            base_page_bytes: PageSize::K4,
            thp_bytes: Some(PageSize::M2),
            mthp_bytes: (14..=20).filter_map(|shift| PageSize::new(1 << shift)).collect(),
            mthp_switchable: true,
            hugetlb: vec![hugetlb(PageSize::M2), hugetlb(PageSize::G1)],
            max_map_count: None,
            cache: None,
        }
    }

    /// Reads a description from JSON.
    ///
    /// # Errors
    /// The fault of the JSON, as serde reports it.
    pub fn from_json(text: &str) -> Result<Machine, String> {
        serde_json::from_str(text).map_err(|error| format!("machine description: {error}"))
    }

    /// The hugetlb pool of that page size.
    #[must_use]
    pub fn pool(&self, size: PageSize) -> Option<HugetlbPool> {
        self.hugetlb.iter().copied().find(|pool| pool.page_bytes == size)
    }

    /// Whether transparent huge pages come in this size (the base page counts).
    #[must_use]
    pub fn is_transparent(&self, size: PageSize) -> bool {
        size == self.base_page_bytes || self.thp_bytes == Some(size) || self.mthp_bytes.contains(&size)
    }

    /// The actual way to make a tile of this size under `via`: sizes that are never transparent come from hugetlb.
    #[must_use]
    pub fn effective_via(&self, size: PageSize, via: Via) -> Via {
        if size == self.base_page_bytes {
            Via::Thp
        } else if self.is_transparent(size) {
            via
        } else {
            Via::Hugetlb
        }
    }

    /// Everything offered, by size and kind, for messages: `4K`, `64K (mTHP)`, `2M (thp)`, `1G (hugetlb)`.
    #[must_use]
    pub fn offered(&self) -> Vec<String> {
        let mut all = vec![self.base_page_bytes.to_string()];
        if self.mthp_switchable {
            all.extend(self.mthp_bytes.iter().map(|size| format!("{size} (mTHP)")));
        }
        all.extend(self.thp_bytes.iter().map(|size| format!("{size} (thp)")));
        all.extend(self.offered_hugetlb());
        all
    }

    /// The sizes available under `via`.
    #[must_use]
    pub fn offered_sizes(&self, via: Via) -> Vec<PageSize> {
        let mut all = vec![self.base_page_bytes];
        if via == Via::Thp {
            if self.mthp_switchable {
                all.extend(&self.mthp_bytes);
            }
            all.extend(self.thp_bytes);
        }
        let usable = self.hugetlb.iter().filter(|pool| pool.pages != Some(0)).map(|pool| pool.page_bytes);
        all.extend(usable.filter(|size| via == Via::Hugetlb || !self.is_transparent(*size)));
        all
    }

    /// Sizes available by hugetlb, for messages.
    #[must_use]
    pub fn offered_hugetlb(&self) -> Vec<String> {
        let usable = |pool: &&HugetlbPool| pool.pages != Some(0);
        self.hugetlb.iter().filter(usable).map(|pool| format!("{} (hugetlb)", pool.page_bytes)).collect()
    }
}
