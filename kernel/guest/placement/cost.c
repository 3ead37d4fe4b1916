/*
 * What paths of the kernel cost, in instructions: under QEMU's -icount the time stamp counter counts them. Least of
 * seven rounds, lest interrupts count.
 */
#include "tests.h"

enum { COST_PAGES = 1024 };

static void cost_fault(void)
{
    volatile char *memory = map(COST_PAGES);
    madvise((void *)memory, COST_PAGES * PAGE, MADV_NOHUGEPAGE);
    touch(memory, COST_PAGES);
    munmap((void *)memory, COST_PAGES * PAGE);
}

static void cost_fork(void)
{
    for (int round = 0; round < 16; round++) {
        int status, child = fork();
        if (!child) _exit(0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

static void cost_file(void)
{
    static char page[PAGE];
    int file = open("/tmp/cost", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int at = 0; at < COST_PAGES; at++) CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
    close(file);
    unlink("/tmp/cost");
}

static void cost_read(void)
{
    static char page[PAGE];
    int file = open("/tmp/read", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lseek(file, 0, SEEK_END) == 0)
        for (int at = 0; at < COST_PAGES; at++) CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
    for (int at = 0; at < COST_PAGES; at++) CHECK(pread(file, page, PAGE, at * (long)PAGE) == (ssize_t)PAGE);
    close(file);
}

struct searches {
    long pages, entries;
};

/* Pages that the strategies have placed since the boot, and entries of free lists that were looked at for them. */
static struct searches searches(void)
{
    char line[1024];
    struct searches sum = {0};
    FILE *file = fopen("/proc/page_color", "re");
    while (file && fgets(line, sizeof line, file)) {
        long pages, entries;
        CHECK(sscanf(line, "%*s placed %ld", &pages) == 1);
        CHECK(sscanf(strstr(line, " scanned "), " scanned %ld", &entries) == 1);
        sum.pages += pages;
        sum.entries += entries;
    }
    if (file) fclose(file);
    return sum;
}

static void cost(const char *name, void (*path)(void), unsigned per)
{
    unsigned long least = ~0UL;
    struct searches searched = {0};
    for (int round = 0; round < 7; round++) {
        struct searches first = searches(), last;
        unsigned long before = __builtin_ia32_rdtsc(), taken;
        path();
        taken = __builtin_ia32_rdtsc() - before;
        last = searches();
        if (taken >= least) continue;
        least = taken;
        searched = (struct searches){last.pages - first.pages, last.entries - first.entries};
    }
    printf("cost %s %lu\n", name, least / per);
    if (searched.pages) printf("searched %s %.1f\n", name, (double)searched.entries / searched.pages);
}

void test_cost(void)
{
    cost("fault", cost_fault, COST_PAGES);
    cost("fork", cost_fork, 16);
    cost("file-write", cost_file, COST_PAGES);
    cost("file-read", cost_read, COST_PAGES);
    /* The same where free memory is single pages in no order. */
    char *held = fragment((size_t)free_pages() * 3 / 4);
    cost("fault-fragmented", cost_fault, COST_PAGES);
    cost("fork-fragmented", cost_fork, 16);
    CHECK(held != NULL);
}

void test_cost_hints(void)
{
    set(PAGE_HINTS_SET_DEFAULT, hint("page-coloring", 16));
    set(PAGE_HINTS_SET_FILE, hint("page-coloring", 16));
    test_cost();
    CHECK(counters().placed > COST_PAGES);
}

/* A color drawn for each page, as palloc draws one of its group's. */
void test_cost_random(void)
{
    set(PAGE_HINTS_SET_DEFAULT, hint("random", 16));
    set(PAGE_HINTS_SET_FILE, hint("random", 16));
    test_cost();
    CHECK(counters().placed > COST_PAGES);
}
