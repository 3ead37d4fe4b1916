/* The guest's tests, and what several of their files share. */
#ifndef TESTS_H
#define TESTS_H

#include "../common.h"

#include <dirent.h>
#include <sched.h>

void test_colors(void);
void test_vectors(void);
void test_vectors_fragmented(void);
void test_hash(void);
void test_default_and_ranges(void);
void test_kinds(void);
void test_defaults(void);
void test_static_pie(void);
void test_replaced(void);
void test_per_process(void);
void test_other_process(void);
void test_fork(void);
void test_fork_pinned(void);
void test_private_file(void);
void test_exec(void);
void test_exact(void);
void test_remap(void);
void test_remap_sparse(void);
void test_remap_evicts(void);
void test_remap_stays(void);
void test_remap_cpuset(void);
void test_swap(void);
void test_userfaultfd(void);
void test_ksm(void);
void test_huge_pages(void);
void test_exhaustion(void);
void test_memory_short(void);
void test_memcg(void);
void test_cma_balance(void);
void test_memory_policy(void);
void test_interleave_hits(void);
void test_node_reclaim(void);
void test_compaction(void);
void test_pin(void);
void test_pin_shared(void);
void test_pin_huge(void);
void test_slab(void);
void test_slab_unasked(void);
void test_migration(void);
void test_bad_input(void);
void test_attacker(void);
void test_modules(void);
void test_counts_add_up(void);
void test_stress(void);
void test_free_pages_add_up(void);
void test_boot_default(void);
void test_prepaging(void);
void test_demand(void);
void test_file(void);
void test_file_interleave(void);
void test_file_spread(void);
void test_file_unmovable(void);
void test_file_dirty(void);
void test_cost(void);
void test_cost_hints(void);
void test_cost_random(void);
void test_stock(void);
int exec_placed(void);
int exec_hinted(void);
int exec_defaults(void);
int exec_waits(void);

/* A count of /proc/vmstat. */
static inline long vmstat(const char *name)
{
    char line[256], word[128];
    long value = -1, read;
    FILE *file = fopen("/proc/vmstat", "re");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %ld", word, &read) == 2 && !strcmp(word, name)) value = read;
    fclose(file);
    return value;
}

/* Holds back a random half of `pages` pages, so that free memory is single pages in no order. */
static inline char *fragment(size_t pages)
{
    char *memory = (char *)map(pages);
    size_t *order = malloc(pages * sizeof *order);
    madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    touch(memory, pages);
    for (size_t at = 0; at < pages; at++) order[at] = at;
    srandom(1);
    for (size_t at = pages - 1; at > 0; at--) {
        size_t other = (size_t)random() % (at + 1), held = order[at];
        order[at] = order[other];
        order[other] = held;
    }
    for (size_t at = 0; at < pages / 2; at++) madvise(memory + order[at] * PAGE, PAGE, MADV_DONTNEED);
    free(order);
    return memory;
}

static inline int has_huge(const volatile void *address)
{
    char line[256];
    unsigned long start, end;
    int inside = 0, huge = 0, kb;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        if (inside && sscanf(line, "AnonHugePages: %d", &kb) == 1) huge = kb > 0;
    }
    fclose(file);
    return huge;
}

static inline int has_thp(void)
{
    return access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0;
}

/* Caches of objects give back what is free in them, and with KASAN what waits in its quarantine. */
static inline void shrink_slabs(void)
{
    char path[512];
    DIR *caches = opendir("/sys/kernel/slab");
    for (struct dirent *each; caches && (each = readdir(caches)) != NULL;) {
        int file;
        snprintf(path, sizeof path, "/sys/kernel/slab/%s/shrink", each->d_name);
        file = each->d_name[0] == '.' ? -1 : open(path, O_WRONLY | O_CLOEXEC);
        if (file < 0) continue;
        if (write(file, "1", 1) != 1) printf("%s: not shrunk\n", path);
        close(file);
    }
    if (caches) closedir(caches);
}

/* All memory is back but 2 MiB for the kernel's own caches; what is freed under RCU comes a moment later. */
static inline void check_free_again(long before)
{
    long after = free_pages_everywhere();
    for (int round = 0; round < 50 && after < before - 512; round++) {
        usleep(100000);
        if (round % 10 == 9) shrink_slabs();
        after = free_pages_everywhere();
    }
    printf("%ld pages free before, %ld after\n", before, after);
    CHECK(after >= before - 512);
}

/* From then on memory comes from the first node, as long as it has some. */
static inline void stay_on_first_node(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
}

static inline int node_of(volatile void *page)
{
    void *pages[] = {(void *)page};
    int status[] = {-1};
    CHECK(syscall(SYS_move_pages, 0, 1, pages, NULL, status, 0) == 0);
    return status[0];
}

static inline void expect(int file, unsigned long number, const void *argument, int error, int line)
{
    int got = command(file, number, argument);
    CHECK(got == error, "line %d: %d instead of %d", line, got, error);
}
#define EXPECT(number, argument, error) expect(file, number, argument, error, __LINE__)

#endif
