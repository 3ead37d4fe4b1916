//! Intel Sandy Bridge to Sapphire Rapids. Raw codes are cmask << 24 | umask << 8 | event.
//!
//! Loads and stores have events of their own, so that most roles are sums of two. Source: Intel's event files
//! (github.com/intel/perfmon, named with each row, version in brackets), the machine-readable form of the tables in
//! the Software Developer's Manual, volume 3B, chapter "Performance Monitoring Events".

use super::table::{Event, Microarchitecture, Processors, Row, plus, row};

const LOAD_HIT: &str = "DTLB_LOAD_MISSES.STLB_HIT";
const STORE_HIT: &str = "DTLB_STORE_MISSES.STLB_HIT";
const LOAD_WALK: &str = "DTLB_LOAD_MISSES.WALK_COMPLETED";
const STORE_WALK: &str = "DTLB_STORE_MISSES.WALK_COMPLETED";
const LOAD_DURATION: &str = "DTLB_LOAD_MISSES.WALK_DURATION";
const STORE_DURATION: &str = "DTLB_STORE_MISSES.WALK_DURATION";
const LOAD_PENDING: &str = "DTLB_LOAD_MISSES.WALK_PENDING";
const STORE_PENDING: &str = "DTLB_STORE_MISSES.WALK_PENDING";

const L1_MISS: &[Event] = &[plus(0x0151, "L1D.REPLACEMENT")];
const L2_MISS: &[Event] =
    &[plus(0x10d1, "MEM_LOAD_RETIRED.L2_MISS (MEM_LOAD_UOPS_RETIRED.L2_MISS before Skylake)")];
const L3_MISS: &[Event] = &[plus(0x412e, "LONGEST_LAT_CACHE.MISS")];

const SNB: &str = "intel/perfmon SNB/events/sandybridge_core.json (19), JKT/events/Jaketown_core.json (24)";
const IVB: &str = "intel/perfmon IVB/events/ivybridge_core.json (24), IVT/events/ivytown_core.json (24)";
const HSW: &str = "intel/perfmon HSW/events/haswell_core.json (36), HSX/events/haswellx_core.json (29)";
const BDW: &str = "intel/perfmon BDW/events/broadwell_core.json (30), BDX/events/broadwellx_core.json (23)";
const SKL: &str = "intel/perfmon SKL/events/skylake_core.json (59), SKX/events/skylakex_core.json (1.37), \
                   CLX/events/cascadelakex_core.json (1.25)";
const ICL: &str = "intel/perfmon ICL/events/icelake_core.json (1.24), ICX/events/icelakex_core.json (1.30), \
                   TGL/events/tigerlake_core.json (1.19), RKL/events/rocketlake_core.json (1.04)";
const SPR: &str =
    "intel/perfmon SPR/events/sapphirerapids_core.json (1.39), EMR/events/emeraldrapids_core.json (1.24)";

const SNB_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x1008, LOAD_HIT), plus(0x1049, STORE_HIT)], SNB),
    row("tlb.walks", &[plus(0x0208, LOAD_WALK), plus(0x0249, STORE_WALK)], SNB),
    row("tlb.walk_cycles", &[plus(0x0408, LOAD_DURATION), plus(0x0449, STORE_DURATION)], SNB),
    row("cache.l1_misses", L1_MISS, SNB),
    row("cache.l3_misses", L3_MISS, SNB),
];

const IVB_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x045f, LOAD_HIT), plus(0x1049, STORE_HIT)], IVB),
    row("tlb.walks", &[plus(0x8208, LOAD_WALK), plus(0x0249, STORE_WALK)], IVB),
    row("tlb.walk_cycles", &[plus(0x8408, LOAD_DURATION), plus(0x0449, STORE_DURATION)], IVB),
    row("cache.l1_misses", L1_MISS, IVB),
    row("cache.l2_misses", L2_MISS, IVB),
    row("cache.l3_misses", L3_MISS, IVB),
];

const HSW_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x6008, LOAD_HIT), plus(0x6049, STORE_HIT)], HSW),
    row("tlb.walks", &[plus(0x0e08, LOAD_WALK), plus(0x0e49, STORE_WALK)], HSW),
    row("tlb.walk_cycles", &[plus(0x1008, LOAD_DURATION), plus(0x1049, STORE_DURATION)], HSW),
    row("cache.l1_misses", L1_MISS, HSW),
    row("cache.l2_misses", L2_MISS, HSW),
    row("cache.l3_misses", L3_MISS, HSW),
];

const BDW_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x6008, LOAD_HIT), plus(0x6049, STORE_HIT)], BDW),
    row("tlb.walks", &[plus(0x0e08, LOAD_WALK), plus(0x0e49, STORE_WALK)], BDW),
    row("tlb.walk_cycles", &[plus(0x1008, LOAD_DURATION), plus(0x1049, STORE_DURATION)], BDW),
    row("cache.l1_misses", L1_MISS, BDW),
    row("cache.l2_misses", L2_MISS, BDW),
    row("cache.l3_misses", L3_MISS, BDW),
];

// From Skylake on two walkers work at once: WALK_PENDING counts each, WALK_ACTIVE (cmask 1) cycles with any.
const SKL_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x2008, LOAD_HIT), plus(0x2049, STORE_HIT)], SKL),
    row("tlb.walks", &[plus(0x0e08, LOAD_WALK), plus(0x0e49, STORE_WALK)], SKL),
    row("tlb.walk_cycles", &[plus(0x1008, LOAD_PENDING), plus(0x1049, STORE_PENDING)], SKL),
    row("tlb.walk_active", &[plus(0x0100_1008, "DTLB_LOAD_MISSES.WALK_ACTIVE")], SKL),
    row("cache.l1_misses", L1_MISS, SKL),
    row("cache.l2_misses", L2_MISS, SKL),
    row("cache.l3_misses", L3_MISS, SKL),
];

const ICL_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x2008, LOAD_HIT), plus(0x2049, STORE_HIT)], ICL),
    row("tlb.walks", &[plus(0x0e08, LOAD_WALK), plus(0x0e49, STORE_WALK)], ICL),
    row("tlb.walk_cycles", &[plus(0x1008, LOAD_PENDING), plus(0x1049, STORE_PENDING)], ICL),
    row("tlb.walk_active", &[plus(0x0100_1008, "DTLB_LOAD_MISSES.WALK_ACTIVE")], ICL),
    row("cache.l1_misses", L1_MISS, ICL),
    row("cache.l2_misses", L2_MISS, ICL),
    row("cache.l3_misses", L3_MISS, ICL),
];

const SPR_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x2012, LOAD_HIT), plus(0x2013, STORE_HIT)], SPR),
    row("tlb.walks", &[plus(0x0e12, LOAD_WALK), plus(0x0e13, STORE_WALK)], SPR),
    row("tlb.walk_cycles", &[plus(0x1012, LOAD_PENDING), plus(0x1013, STORE_PENDING)], SPR),
    row("tlb.walk_active", &[plus(0x0100_1012, "DTLB_LOAD_MISSES.WALK_ACTIVE")], SPR),
    row("cache.l1_misses", L1_MISS, SPR),
    row("cache.l2_misses", L2_MISS, SPR),
    row("cache.l3_misses", L3_MISS, SPR),
];

const fn intel(name: &'static str, models: &'static [u32], rows: &'static [Row]) -> Microarchitecture {
    Microarchitecture { name, processors: Processors::Intel(models), rows }
}

/// Models as in intel/perfmon's mapfile.csv.
pub const ALL: &[Microarchitecture] = &[
    intel("Intel Sandy Bridge", &[0x2a, 0x2d], SNB_ROWS),
    intel("Intel Ivy Bridge", &[0x3a, 0x3e], IVB_ROWS),
    intel("Intel Haswell", &[0x3c, 0x45, 0x46, 0x3f], HSW_ROWS),
    intel("Intel Broadwell", &[0x3d, 0x47, 0x4f, 0x56], BDW_ROWS),
    intel("Intel Skylake (to Cascade and Comet Lake)", &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6, 0x55], SKL_ROWS),
    intel("Intel Ice, Tiger and Rocket Lake", &[0x7d, 0x7e, 0x6a, 0x6c, 0x8c, 0x8d, 0xa7], ICL_ROWS),
    intel("Intel Sapphire and Emerald Rapids", &[0x8f, 0xcf], SPR_ROWS),
];
