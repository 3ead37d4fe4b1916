/* What a placement of pages does to the caches: programs in fragmented or fresh memory, each in windows that the emulator's
 * caches count (crates/qemu, system.rs).
 *
 *   effect PLACEMENT MEMORY PROGRAM SEED
 *   effect hold MEMORY SEED COMMAND ...     # another program in such memory; its exit code
 *
 * PLACEMENT is "usual", a strategy of 16 colors, or "each": ten seeds, and under each the usual one and two strategies; MEMORY "fresh" or "fragmented"; PROGRAM "sweep" or "sort". SEED makes one
 * boot another than the next: which pages are free, or where fresh memory begins. */
#include "common.h"

#define PROCESSES 4
#define COLORS 16
/* Seven of each color's eight ways, so that the kernel's own lines find room beside the set. */
#define SET_PAGES 112UL
#define PASSES 40
/* Half of them stay free, far more than the sets need; the allocator takes single pages before it splits blocks. */
#define FRAGMENTED_PAGES 8192UL
#define MARKER ((volatile char *)0x7a6e00000000UL)
#define BEGIN MARKER[0] = 1
#define OPEN MARKER[8] = 1
#define CLOSE MARKER[16] = 1

static uint64_t state;

/* Numbers that repeat with the seed: Marsaglia's xorshift64*. */
static uint64_t drawn(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dUL;
}

/* Holds back a random half of `pages` pages, so that free memory is single pages in no order. */
static void fragment(size_t pages)
{
    volatile char *memory = map(pages);
    size_t *order = malloc(pages * sizeof *order);
    CHECK(order != NULL);
    madvise((void *)memory, pages * PAGE, MADV_NOHUGEPAGE);
    touch(memory, pages);
    for (size_t at = 0; at < pages; at++) order[at] = at;
    for (size_t at = pages - 1; at > 0; at--) {
        size_t other = drawn() % (at + 1), held = order[at];
        order[at] = order[other];
        order[other] = held;
    }
    for (size_t at = 0; at < pages / 2; at++) madvise((void *)(memory + order[at] * PAGE), PAGE, MADV_DONTNEED);
    free(order);
}

static void sweep(volatile char *set)
{
    for (size_t at = 0; at < SET_PAGES * PAGE; at += 64) set[at]++;
}

static void sift(uint64_t *of, size_t root, size_t count)
{
    uint64_t value = of[root];
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && of[child + 1] > of[child]) child++;
        if (of[child] <= value) break;
        of[root] = of[child];
    }
    of[root] = value;
}

/* A heap sort of random numbers: in place, and all over the set. */
static void sort(uint64_t *of, size_t count)
{
    for (size_t at = 0; at < count; at++) of[at] = drawn();
    for (size_t at = count / 2; at-- > 0;) sift(of, at, count);
    for (size_t at = count - 1; at > 0; at--) {
        uint64_t largest = of[0];
        of[0] = of[at];
        of[at] = largest;
        sift(of, 0, at);
    }
}

static void run(const char *program, int hinted)
{
    int sorts = !strcmp(program, "sort"), passes = sorts ? 1 : PASSES;
    volatile char *set = map(SET_PAGES), *marker = mmap((void *)MARKER, PAGE, PROT_READ | PROT_WRITE,
                                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    unsigned of_color[COLORS] = {0}, most = 0;
    struct page_hint_counters counted = {0};
    CHECK(marker == MARKER);
    *marker = 0;
    touch(set, SET_PAGES);
    /* Once through before the window opens: first uses are no question of placement. */
    BEGIN;
    sweep(set);
    OPEN;
    for (int pass = 0; pass < passes; pass++) {
        if (sorts)
            sort((uint64_t *)set, SET_PAGES * PAGE / sizeof(uint64_t));
        else
            sweep(set);
    }
    CLOSE;
    for (size_t at = 0; at < SET_PAGES; at++) {
        unsigned pages = ++of_color[frame_of(set + at * PAGE) % COLORS];
        if (pages > most) most = pages;
    }
    if (hinted) counted = counters();
    printf("placed %llu fallen %lu most-of-a-color %u\n", (unsigned long long)counted.placed, fallen(counted), most);
    fflush(stdout);
}

/* The program under a placement, in `PROCESSES` processes one after the other. */
static void run_all(const char *placement, const char *program)
{
    int hinted = strcmp(placement, "usual") != 0;
    for (int at = 0; at < PROCESSES; at++) {
        uint64_t seed = drawn();
        CHILD({
            if (hinted) {
                struct page_hint asked = hint(placement, COLORS);
                /* page-coloring draws nothing. */
                if (!strcmp(placement, "bin-hopping")) asked.seed = seed;
                set(PAGE_HINTS_SET_DEFAULT, asked);
            }
            run(program, hinted);
        });
    }
}

/* Makes memory what it is to be, by the seed; it stays so while this process lives. */
static void prepare(const char *memory, uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15UL + 1;
    if (!strcmp(memory, "fragmented"))
        fragment(FRAGMENTED_PAGES);
    else
        touch(map(4096), drawn() % 4096);
}

/* A program, while this one holds its part of memory. */
static int hold(const char *memory, const char *seed, char **command)
{
    int status, child;
    prepare(memory, strtoull(seed, NULL, 10));
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        execvp(command[0], command);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int count, char **arguments)
{
    const char *placements[] = {"usual", "page-coloring", "bin-hopping"};
    if (count > 4 && !strcmp(arguments[1], "hold")) return hold(arguments[2], arguments[3], arguments + 4);
    CHECK(count == 5, "PLACEMENT MEMORY PROGRAM SEED");
    uint64_t seed = strtoull(arguments[4], NULL, 10);
    if (strcmp(arguments[1], "each")) {
        prepare(arguments[2], seed);
        run_all(arguments[1], arguments[3]);
        return 0;
    }
    /* Each placement finds memory made anew by the same seed: pages that a placed process freed would be handed on. */
    for (unsigned at = 0; at < 10; at++)
        for (unsigned turn = 0; turn < 3; turn++) {
            const char *placement = placements[(at + turn) % 3];
            printf("seed %llu %s\n", (unsigned long long)(seed + at), placement);
            fflush(stdout);
            CHILD(prepare(arguments[2], seed + at); run_all(placement, arguments[3]));
        }
    return 0;
}
