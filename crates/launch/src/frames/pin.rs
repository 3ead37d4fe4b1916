//! `pin = true`: locked memory that compaction leaves alone.

use crate::record::{Kind, Severity, Warnings};
use crate::settings::Held;
use crate::sys;
use serde_json::json;

/// Whether compaction may move locked pages.
const COMPACT: &str = "/proc/sys/vm/compact_unevictable_allowed";

/// Raises the limit on locked memory for the program (as far as permitted) and keeps compaction from locked pages.
/// `keeps_rights`: the program runs with the launcher's own rights.
pub fn allow(keeps_rights: bool, held: &mut Held, warnings: &mut Warnings) {
    let raised = sys::process::unlimit_locked_memory();
    let limit = sys::process::locked_memory_limit();
    let beyond = keeps_rights && sys::process::may_lock(limit.saturating_add(1));
    if let (Err(error), false) = (raised, beyond) {
        let message = format!(
            "pinning is limited to {} KiB a process: the limit on locked memory could not be raised: {}; run as root, \
             or: ulimit -l unlimited",
            limit >> 10,
            sys::errno_text(&error)
        );
        warnings.warn(Kind::FramesMoved, message, json!({"limit_bytes": limit}));
    }
    if let Some(why) = held.keep(COMPACT, "0", "pagelab-launch pin") {
        let message = format!(
            "pinned pages may be moved all the same: compaction could not be kept from locked memory ({COMPACT}: {why}); \
             run as root"
        );
        warnings.add(Kind::FramesMoved, Severity::Info, message, json!({"errno": why}));
    }
}
