//! Page placement policies: where pages lie, how big they are, and when they come in.
//!
//! Pure: text and a description of the machine go in, a validated [`Policy`] and the compiled [`plan`] come out. No
//! file is opened, no clock read, no environment looked at.
//!
//! ```text
//! TOML, flags, Mosalloc CSV → RawPolicy → validate(&Machine) → Policy → compile → plan
//! ```

pub mod compile;
pub mod error;
pub mod guest;
pub mod machine;
pub mod mosalloc;
pub mod plan;
pub mod raw;
pub mod read;
pub mod size;
pub mod types;
pub mod units;
pub mod validate;

pub use error::{Place, PolicyError};
pub use machine::Machine;
pub use types::Policy;
