/*
 * A program that looks at its own pages, under page coloring with 16 colors, whatever started it. 0 if all pages that it
 * touched are of their address's color. With "child" two children have to be right, too: one that executes the program
 * anew, and one that goes on as it is. With "heap" only its heap is touched and has to be right;
 * with "each" all kinds of memory but the stack, and shared memory, are touched, and its mappings have to be right.
 */
#include "common.h"

enum { COLORS = 16, PAGES = 200 };

static char data[PAGES * PAGE] __attribute__((aligned(4096))) = {1};
static char bss[PAGES * PAGE] __attribute__((aligned(4096)));

static void check_stack(void)
{
    volatile char deep[PAGES * PAGE];
    touch(deep, PAGES);
    /* Not the pages that main's frame and the arguments share. */
    uintptr_t first = ((uintptr_t)deep + PAGE - 1) & ~(PAGE - 1);
    check_colors((volatile char *)first, PAGES - 2, COLORS);
}

static void check_heap(void)
{
    char *heap = sbrk(PAGES * PAGE + PAGE);
    heap = (char *)(((uintptr_t)heap + PAGE - 1) & ~(PAGE - 1));
    touch(heap, PAGES - 1);
    check_colors(heap, PAGES - 1, COLORS);
}

static void check_all(void)
{
    volatile char *anonymous = map(PAGES);
    check_heap();
    touch(anonymous, PAGES);
    touch(data, PAGES);
    touch(bss, PAGES);
    check_colors(anonymous, PAGES, COLORS);
    check_colors(data, PAGES, COLORS);
    check_colors(bss, PAGES, COLORS);
    check_stack();
}

static void touch_each(void)
{
    volatile char *anonymous = map(PAGES);
    volatile char *shared = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    touch(sbrk(PAGES * PAGE), PAGES);
    touch(data, PAGES);
    touch(bss, PAGES);
    touch(shared, 64);
    touch(anonymous, PAGES);
    check_colors(anonymous, PAGES, COLORS);
    for (size_t at = 0; at < 64; at++) CHECK(frame_of(shared + at * PAGE) % 8 == at % 8, "shared page %zu", at);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "each")) {
        touch_each();
        puts("ok");
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "heap")) {
        check_heap();
        touch(map(PAGES), PAGES);
        touch(data, PAGES);
        puts("ok");
        return 0;
    }
    check_all();
    if (count > 1) {
        CHILD(execv("/proc/self/exe", (char *[]){arguments[0], NULL}); _exit(1));
        CHILD(check_all());
    }
    puts("ok");
    return 0;
}
