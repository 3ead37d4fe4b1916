//! AMD Zen 2 to Zen 5. Raw codes are umask << 8 | event.
//!
//! Sources: the event files of Linux (tools/perf/pmu-events/arch/x86/amdzen*), which follow AMD's Processor Programming
//! References: 55803 (family 17h model 31h), 55898 (family 19h model 01h), 55901 (family 19h model 11h).

use super::table::{Microarchitecture, Processors, Row, checked, experimental, plus, row};

/// Compared with a chase of one pointer a page and a chase of one a line, over 4K and 2M pages.
const CHASE: &str = "pointer chase, two-core Zen 3 guest, Linux 6.18";

const ZEN2: &str = "AMD PPR 55803, PMCx045/043/064; Linux amdzen2/memory.json, cache.json";
const ZEN3: &str = "AMD PPR 55898, PMCx045/043/064; Linux amdzen3/memory.json, cache.json";
const ZEN4: &str = "AMD PPR 55901, PMCx045/043/064; Linux amdzen4/memory.json, cache.json";
const ZEN5: &str = "Linux amdzen5/load-store.json, l2-cache.json (AMD family 1Ah)";
const WALKER: &str = "not documented by AMD; seen on Zen 3: 61 to 196 cycles a walk, and run time minus it constant over \
                      page sizes within 2%";

const HITS: &str = "ls_l1_d_tlb_miss.tlb_reload_*_l2_hit";
const WALKS: &str = "ls_l1_d_tlb_miss.all_l2_miss";
const L2_MISS: &str = "l2_cache_req_stat.ls_rd_blk_c";

const ZEN2_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x0f45, HITS)], ZEN2),
    row("tlb.walks", &[plus(0xf045, WALKS)], ZEN2),
    row("cache.l1_misses", &[plus(0x5b43, "ls_refills_from_sys")], ZEN2),
    row("cache.l2_misses", &[plus(0x0864, L2_MISS)], ZEN2),
    row("cache.l3_misses", &[plus(0x4843, "ls_refills_from_sys.*_dram")], ZEN2),
    row("cache.fills_l2", &[plus(0x0143, "ls_refills_from_sys.ls_mabresp_lcl_l2")], ZEN2),
    row("cache.fills_l3", &[plus(0x0243, "ls_refills_from_sys.ls_mabresp_lcl_cache")], ZEN2),
];

const ZEN3_ROWS: &[Row] = &[
    checked("tlb.hits", &[plus(0x0f45, HITS)], ZEN3, CHASE),
    checked("tlb.walks", &[plus(0xf045, WALKS)], ZEN3, CHASE),
    experimental("tlb.walk_cycles", &[plus(0xff4e, "PMCx04E")], WALKER),
    checked("tlb.hits_4k", &[plus(0x0145, "ls_l1_d_tlb_miss.tlb_reload_4k_l2_hit")], ZEN3, CHASE),
    checked("tlb.walks_4k", &[plus(0x1045, "ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss")], ZEN3, CHASE),
    row("cache.l1_misses", &[plus(0xff43, "ls_dmnd_fills_from_sys.all")], ZEN3),
    checked("cache.l2_misses", &[plus(0x0864, L2_MISS)], ZEN3, CHASE),
    checked("cache.l3_misses", &[plus(0x4843, "ls_dmnd_fills_from_sys.mem_io_local|mem_io_remote")], ZEN3, CHASE),
    checked("cache.fills_l2", &[plus(0x0143, "ls_dmnd_fills_from_sys.lcl_l2")], ZEN3, CHASE),
    checked("cache.fills_l3", &[plus(0x0243, "ls_dmnd_fills_from_sys.int_cache")], ZEN3, CHASE),
];

const ZEN4_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x0f45, HITS)], ZEN4),
    row("tlb.walks", &[plus(0xf045, WALKS)], ZEN4),
    experimental("tlb.walk_cycles", &[plus(0xff4e, "PMCx04E")], WALKER),
    row("tlb.hits_4k", &[plus(0x0145, "ls_l1_d_tlb_miss.tlb_reload_4k_l2_hit")], ZEN4),
    row("tlb.walks_4k", &[plus(0x1045, "ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss")], ZEN4),
    row("cache.l1_misses", &[plus(0xff43, "ls_dmnd_fills_from_sys.all")], ZEN4),
    row("cache.l2_misses", &[plus(0x0864, L2_MISS)], ZEN4),
    row("cache.l3_misses", &[plus(0x4843, "ls_dmnd_fills_from_sys.dram_io_near|dram_io_far")], ZEN4),
    row("cache.fills_l2", &[plus(0x0143, "ls_dmnd_fills_from_sys.local_l2")], ZEN4),
    row("cache.fills_l3", &[plus(0x0243, "ls_dmnd_fills_from_sys.local_ccx")], ZEN4),
];

const ZEN5_ROWS: &[Row] = &[
    row("tlb.hits", &[plus(0x0f45, HITS)], ZEN5),
    row("tlb.walks", &[plus(0xf045, WALKS)], ZEN5),
    row("cache.l1_misses", &[plus(0xff43, "ls_dmnd_fills_from_sys.all")], ZEN5),
    row("cache.l2_misses", &[plus(0x0864, L2_MISS)], ZEN5),
    row("cache.l3_misses", &[plus(0x4843, "ls_dmnd_fills_from_sys.dram_io_all")], ZEN5),
    row("cache.fills_l2", &[plus(0x0143, "ls_dmnd_fills_from_sys.local_l2")], ZEN5),
    row("cache.fills_l3", &[plus(0x0243, "ls_dmnd_fills_from_sys.local_ccx")], ZEN5),
];

/// Families and models as in Linux's tools/perf/pmu-events/arch/x86/mapfile.csv.
pub const ALL: &[Microarchitecture] = &[
    Microarchitecture { name: "AMD Zen 2", processors: Processors::Amd(0x17, &[(0x30, 0xff)]), rows: ZEN2_ROWS },
    Microarchitecture {
        name: "AMD Zen 3",
        processors: Processors::Amd(0x19, &[(0x00, 0x0f), (0x20, 0x2f), (0x40, 0x5f)]),
        rows: ZEN3_ROWS,
    },
    Microarchitecture {
        name: "AMD Zen 4",
        processors: Processors::Amd(0x19, &[(0x10, 0x1f), (0x30, 0x3f), (0x60, 0xff)]),
        rows: ZEN4_ROWS,
    },
    Microarchitecture { name: "AMD Zen 5", processors: Processors::Amd(0x1a, &[(0x00, 0xff)]), rows: ZEN5_ROWS },
];
