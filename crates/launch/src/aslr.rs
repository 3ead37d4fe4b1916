//! Address-space layout randomisation of the program.

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::process;

const NO_RANDOMIZE: u32 = libc::ADDR_NO_RANDOMIZE as u32;

/// The personality to set before exec, by the request; None: it is left as it is.
pub fn personality(asked: Option<bool>) -> Result<Option<u32>> {
    let Some(on) = asked else { return Ok(None) };
    let now = process::personality().map_err(|error| {
        Error::Cannot(format!(
            "cannot read the personality: {}{}",
            sys::errno_text(&error),
            crate::sandbox::hint(&error)
        ))
    })?;
    Ok(Some(if on { now & !NO_RANDOMIZE } else { now | NO_RANDOMIZE }))
}

/// Whether the program's addresses were randomised: if the system's switch permits it, the request decides, or, without
/// one, the inherited personality.
pub fn in_force(asked: Option<bool>) -> Option<bool> {
    let level = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").ok()?;
    let system = level.trim() != "0";
    let inherited = process::personality().ok().map(|flags| flags & NO_RANDOMIZE == 0);
    Some(system && asked.or(inherited)?)
}
