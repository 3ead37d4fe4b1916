//! The bundled workloads.
fn main() {}
