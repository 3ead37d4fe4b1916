/* On a machine with several memory nodes: every page comes from the node from which the kernel would take it (by mbind, by
 * the thread's own policy, by the processor), and has its colour there. Checked with move_pages, without the library. */
#define _GNU_SOURCE
#include "frames.h"
#include <linux/mempolicy.h>
#include <sched.h>

enum { PAGES = 600, NODES = 2 };
static int first_cpu[NODES];

static void *pinned_to(int node) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first_cpu[node], &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    return NULL;
}

/* How many of `count` pages are on each node. */
static void nodes_of(unsigned char *p, size_t count, size_t on[NODES], int *each) {
    on[0] = on[1] = 0;
    for (size_t i = 0; i < count; i++) {
        void *page = p + i * PAGE;
        int node = -1;
        CHECK(syscall(SYS_move_pages, 0, 1, &page, NULL, &node, 0) == 0);
        if (node < 0 || node >= NODES) FAIL("page %zu: %d", i, node);
        on[node]++;
        if (each) each[i] = node;
    }
}

#define CHECK_NODE(p, count, node, what)                                                            \
    do {                                                                                            \
        size_t on_[NODES];                                                                          \
        nodes_of(p, count, on_, NULL);                                                              \
        if (on_[node] != (count)) FAIL(what ": %zu of %d pages on node %d", on_[node], (int)(count), node); \
        CHECK_PLACED(p, count);                                                                     \
    } while (0)

static void local(int node) {
    pinned_to(node);
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 1);
    CHECK_NODE(p, PAGES, node, "local");
    unsigned char *q = map_anon(PAGES * PAGE);
    for (size_t i = 0; i < PAGES; i += 3) write_tag(q, i * 7 % PAGES, 1); /* here and there */
    for (size_t i = 0; i < PAGES; i++) write_tag(q, i, 1);
    CHECK_NODE(q, PAGES, node, "local, scattered");
    CHECK(madvise(p, PAGES * PAGE, MADV_DONTNEED) == 0);
    CHECK(madvise(p, PAGES * PAGE, MADV_POPULATE_WRITE) == 0);
    CHECK_NODE(p, PAGES, node, "populated");
    CHECK(munmap(p, PAGES * PAGE) == 0 && munmap(q, PAGES * PAGE) == 0);
}

static void *local_thread(void *node) {
    for (int round = 0; round < 3; round++) local((int)(intptr_t)node);
    return NULL;
}

static void bind_to(int node) {
    unsigned long mask = 1ul << node;
    unsigned char *p = map_anon(2 * PAGES * PAGE);
    CHECK(syscall(SYS_mbind, p + PAGES * PAGE, PAGES * PAGE, MPOL_BIND, &mask, 8 * sizeof mask, 0) == 0);
    pinned_to(!node);
    write_tags(p, 2 * PAGES, 1); /* half by the processor, half by the policy */
    CHECK_NODE(p, PAGES, !node, "beside the bound range");
    CHECK_NODE(p + PAGES * PAGE, PAGES, node, "bound");
    check_tags(p, 2 * PAGES, 1);
    CHECK(munmap(p, 2 * PAGES * PAGE) == 0);
}

static void prefer(int node) {
    unsigned long mask = 1ul << node;
    unsigned char *p = map_anon(PAGES * PAGE);
    CHECK(syscall(SYS_mbind, p, PAGES * PAGE, MPOL_PREFERRED, &mask, 8 * sizeof mask, 0) == 0);
    pinned_to(!node);
    CHECK(madvise(p, PAGES * PAGE, MADV_POPULATE_WRITE) == 0);
    CHECK_NODE(p, PAGES, node, "preferred");
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

static void in_turn(int by_thread) {
    unsigned long mask = 3;
    unsigned char *p = map_anon(PAGES * PAGE);
    if (by_thread) CHECK(syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &mask, 8 * sizeof mask) == 0);
    else CHECK(syscall(SYS_mbind, p, PAGES * PAGE, MPOL_INTERLEAVE, &mask, 8 * sizeof mask, 0) == 0);
    write_tags(p, PAGES, 1);
    if (by_thread) CHECK(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0);
    size_t on[NODES];
    int each[PAGES];
    nodes_of(p, PAGES, on, each);
    for (size_t i = 1; i < PAGES; i++)
        if (each[i] == each[i - 1]) FAIL("interleaved: pages %zu and %zu are both on node %d", i - 1, i, each[i]);
    CHECK_PLACED(p, PAGES);
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

static void by_thread(int node) {
    unsigned long mask = 1ul << node;
    pinned_to(!node);
    CHECK(syscall(SYS_set_mempolicy, MPOL_BIND, &mask, 8 * sizeof mask) == 0);
    unsigned char *p = map_anon(PAGES * PAGE);
    write_tags(p, PAGES, 1);
    CHECK(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0);
    CHECK_NODE(p, PAGES, node, "the thread's policy");
    CHECK(munmap(p, PAGES * PAGE) == 0);
}

/* Pages that move to where other colours are wanted keep their frames, and so their node. */
static void moved(int node) {
    pinned_to(node);
    unsigned char *p = map_anon(100 * PAGE), *to = map_anon(300 * PAGE) + 77 * PAGE;
    write_tags(p, 100, 1);
    pinned_to(!node);
    CHECK(mremap(p, 100 * PAGE, 100 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    check_tags(to, 100, 1);
    size_t on[NODES];
    nodes_of(to, 100, on, NULL);
    if (on[node] != 100) FAIL("moved: %zu of 100 pages are still on node %d", on[node], node);
}

int main(int argc, char **argv) {
    if (argc == 4) { /* under numactl, as it were: the policy is there before the engine is; then only the default is checked */
        unsigned long mask = 1ul << atoi(argv[3]);
        CHECK(syscall(SYS_set_mempolicy, MPOL_BIND, &mask, 8 * sizeof mask) == 0);
        execl(argv[0], argv[0], argv[1], argv[2], "x", argv[3], NULL);
        _exit(127);
    }
    CHECK(argc >= 3);
    first_cpu[0] = atoi(argv[1]);
    first_cpu[1] = atoi(argv[2]);
    if (argc == 5) {
        int bound = atoi(argv[4]);
        for (int node = 0; node < NODES; node++) {
            pinned_to(node);
            unsigned char *p = map_anon(PAGES * PAGE);
            write_tags(p, PAGES, 1);
            CHECK_NODE(p, PAGES, bound, "inherited");
        }
        return ok();
    }
    for (int node = 0; node < NODES; node++) {
        local(node);
        bind_to(node);
        prefer(node);
        by_thread(node);
        moved(node);
    }
    in_turn(0);
    in_turn(1);
    pthread_t threads[NODES];
    for (int node = 0; node < NODES; node++)
        CHECK(pthread_create(&threads[node], NULL, local_thread, (void *)(intptr_t)node) == 0);
    for (int node = 0; node < NODES; node++) CHECK(pthread_join(threads[node], NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        bind_to(0);
        local(1);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    return ok();
}
