//! Paging with colours: page faults for every memory size and every colour count.
//!
//! A memory of M frames with c colours is c lists of M/c frames, each with its own replacement (PAGING, section 2:
//! Lynch and Flynn, "Paging performance with page coloring", CSL-TR-91-492, 1991).
