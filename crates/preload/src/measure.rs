//! stub
/// x
pub fn all() {}
