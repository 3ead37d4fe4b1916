//! Page placement policies: the frames, the size and the fetch time of pages.
//!
//! The crate is pure: text and a description of the machine go in, a validated [`Policy`] and the compiled [`plan`]
//! come out. It opens no file, reads no clock and looks at no environment variable.
//!
//! ```text
//! TOML, flags, Mosalloc CSV → RawPolicy → validate(&Machine) → Policy → compile → plan
//! ```

pub mod compile;
pub mod error;
pub mod flags;
pub mod framemap;
pub mod frames;
pub mod hints;
pub mod machine;
pub mod mosalloc;
pub mod raw;
pub mod read;
pub mod size;
pub mod types;
pub mod units;
pub mod validate;
pub mod write;

pub use error::{Place, PolicyError};
pub use machine::Machine;
pub use pagelab_abi::{guest, page_hints, pagemap_scan, plan, windows};
pub use types::Policy;

/// Reads and validates a policy's TOML. `path` is for messages; `load` reads the layouts and saved maps that the policy
/// names.
///
/// # Errors
/// The first part that is refused.
pub fn parse(text: &str, path: &str, machine: &Machine, load: read::Load<'_>) -> Result<Policy, PolicyError> {
    validate::validate(&read::read_toml(text, path, load)?, machine)
}
