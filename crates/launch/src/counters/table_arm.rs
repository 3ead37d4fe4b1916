//! Arm Neoverse N1, V1, N2, V2: architected PMUv3 common events. Codes and names as in Linux,
//! tools/perf/pmu-events/arch/arm64/common-and-microarch.json; which of them these cores implement:
//! tools/perf/pmu-events/arch/arm64/arm/neoverse-*/tlb.json, l1d_cache.json, l2_cache.json, ll_cache.json.
//!
//! None of these cores counts cycles of walks (DTLB_WALK_PERCYC came later), so that the role is missing.

use super::table::{Microarchitecture, Processors, Row, minus, plus, row};

const ARM: &str = "PMUv3 common events, Linux pmu-events/arch/arm64/common-and-microarch.json; arm/neoverse-*/tlb.json, *_cache.json";

const ROWS: &[Row] = &[
    // Both of the second level, so that both count the same population (instruction side included).
    row("tlb.hits", &[plus(0x2f, "L2D_TLB"), minus(0x2d, "L2D_TLB_REFILL")], ARM),
    row("tlb.walks", &[plus(0x34, "DTLB_WALK")], ARM),
    row("cache.l1_misses", &[plus(0x03, "L1D_CACHE_REFILL")], ARM),
    row("cache.l2_misses", &[plus(0x17, "L2D_CACHE_REFILL")], ARM),
    row("cache.l3_misses", &[plus(0x37, "LL_CACHE_MISS_RD")], ARM),
];

const fn arm(name: &'static str, part: u32) -> Microarchitecture {
    Microarchitecture { name, processors: Processors::Arm(part), rows: ROWS }
}

/// Part numbers as in MIDR_EL1.
pub const ALL: &[Microarchitecture] = &[
    arm("Arm Neoverse N1", 0xd0c),
    arm("Arm Neoverse V1", 0xd40),
    arm("Arm Neoverse N2", 0xd49),
    arm("Arm Neoverse V2", 0xd4f),
];
