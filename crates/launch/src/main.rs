//! The launcher binary.
fn main() {}
