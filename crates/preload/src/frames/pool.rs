//! Free pages in whose frames the engine knows: where they come from, and when they go back.

pub mod chunks;
pub mod grip;
pub mod node_pools;
pub mod pools;
pub mod release;
pub mod verify;
