/* Each test by its name: 0 and "ok", or 1 and what was wrong. */
#include "tests.h"

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"colors", test_colors},
    {"vectors", test_vectors},
    {"vectors-fragmented", test_vectors_fragmented},
    {"hash", test_hash},
    {"default-and-ranges", test_default_and_ranges},
    {"kinds", test_kinds},
    {"defaults", test_defaults},
    {"static-pie", test_static_pie},
    {"replaced", test_replaced},
    {"per-process", test_per_process},
    {"other-process", test_other_process},
    {"fork", test_fork},
    {"fork-pinned", test_fork_pinned},
    {"private-file", test_private_file},
    {"exec", test_exec},
    {"exact", test_exact},
    {"remap", test_remap},
    {"remap-sparse", test_remap_sparse},
    {"remap-evicts", test_remap_evicts},
    {"remap-stays", test_remap_stays},
    {"remap-cpuset", test_remap_cpuset},
    {"swap", test_swap},
    {"userfaultfd", test_userfaultfd},
    {"ksm", test_ksm},
    {"huge-pages", test_huge_pages},
    {"exhaustion", test_exhaustion},
    {"memory-short", test_memory_short},
    {"memcg", test_memcg},
    {"cma-balance", test_cma_balance},
    {"memory-policy", test_memory_policy},
    {"interleave-hits", test_interleave_hits},
    {"node-reclaim", test_node_reclaim},
    {"compaction", test_compaction},
    {"pin", test_pin},
    {"pin-shared", test_pin_shared},
    {"pin-huge", test_pin_huge},
    {"slab", test_slab},
    {"slab-unasked", test_slab_unasked},
    {"migration", test_migration},
    {"bad-input", test_bad_input},
    {"attacker", test_attacker},
    {"modules", test_modules},
    {"counts-add-up", test_counts_add_up},
    {"stress", test_stress},
    {"free-pages-at-first", test_free_pages_add_up},
    {"free-pages-at-last", test_free_pages_add_up},
    {"boot-default", test_boot_default},
    {"prepaging", test_prepaging},
    {"demand", test_demand},
    {"file", test_file},
    {"file-interleave", test_file_interleave},
    {"file-spread", test_file_spread},
    {"file-unmovable", test_file_unmovable},
    {"file-dirty", test_file_dirty},
    {"stock", test_stock},
    {"cost", test_cost},
    {"cost-hints", test_cost_hints},
    {"cost-random", test_cost_random},
};

int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "exec-placed")) return exec_placed();
    if (count == 2 && !strcmp(words[1], "exec-hinted")) return exec_hinted();
    if (count == 2 && !strcmp(words[1], "exec-defaults")) return exec_defaults();
    if (count == 2 && !strcmp(words[1], "exec-waits")) return exec_waits();
    for (size_t at = 0; count == 2 && at < sizeof tests / sizeof *tests; at++) {
        if (strcmp(words[1], tests[at].name)) continue;
        tests[at].run();
        puts("ok");
        return 0;
    }
    fprintf(stderr, "%s: no such test\n", words[0]);
    return 2;
}
