//! The types between the launcher and the Python package: the request that goes in, the record that comes
//! out, and the warnings of both.
//!
//! These types are the source. `make contract` writes their JSON schemas into `docs/schema` and the Python models into
//! `src/pagelab/contract`; `make lint` refuses copies that are out of date. Files that the launcher and the guest library
//! share are in `crates/abi`.

pub mod record;
pub mod request;
pub mod warning;

pub use record::Record;
pub use request::Request;
pub use warning::{RunWarning, Severity, WarningKind};
