//! What is worth saying about a compiled policy before it runs, without being an error.

use crate::plan::{BASE_PAGE, PlanSpec, SectionSpec};
use pagelab_contract::warning::{RunWarning, Severity, WarningKind};

/// Everything worth saying of `plan`.
#[must_use]
pub fn remarks(plan: &PlanSpec) -> Vec<RunWarning> {
    tiles_under_frames(plan).into_iter().collect()
}

/// Tiles above the base page keep their size: their frames are the kernel's choice.
fn tiles_under_frames(plan: &PlanSpec) -> Option<RunWarning> {
    let has_tiles = |section: &&SectionSpec| {
        section.frames != 0
            && (section.otherwise > BASE_PAGE || section.intervals.iter().any(|tile| tile.page_bytes > BASE_PAGE))
    };
    let mut kinds: Vec<&str> =
        plan.sections.iter().filter(has_tiles).map(|section| section.memory.name()).collect();
    kinds.dedup();
    if kinds.is_empty() {
        return None;
    }
    let message = format!(
        "`pages` gives tiles larger than 4K to memory that `frames` is for ({}): these tiles keep their size and are \
         not placed; a tile of contiguous frames has every colour in order all the same",
        kinds.join(", ")
    );
    let warning = RunWarning::new(WarningKind::FramesOutOfReach, Severity::Info, message);
    Some(warning.with("reason", "larger-page").with("memory", kinds))
}
