/* Anonymous memory: the ways in which a page of it comes. */
#include "tests.h"

#include <linux/userfaultfd.h>

void test_private_file(void)
{
    int file = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    volatile char *memory;
    CHECK(ftruncate(file, 64 * PAGE) == 0);
    memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 64));
    for (int at = 0; at < 32; at++) CHECK(memory[at * PAGE] == 0);
    touch(memory, 64);
    check_colors(memory, 64, 16);
}

void test_swap(void)
{
    volatile char *memory = map(256);
    unsigned char resident[256];
    int out = 0;
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, 256));
    touch(memory, 256);
    CHECK(madvise((void *)memory, 256 * PAGE, MADV_PAGEOUT) == 0);
    CHECK(mincore((void *)memory, 256 * PAGE, resident) == 0);
    for (int at = 0; at < 256; at++) out += !(resident[at] & 1);
    CHECK(out > 200, "%d are out", out);
    unsigned long before = counters().placed;
    for (int at = 0; at < 256; at++) CHECK(memory[at * PAGE] == (char)(at + 1));
    check_colors(memory, 256, 64);
    CHECK(counters().placed - before == (unsigned)out);
}

void test_userfaultfd(void)
{
    enum { COUNT = 64 };
    volatile char *memory = map(COUNT);
    char *source = (char *)map(COUNT);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)memory, COUNT * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_copy copy = {.dst = (uintptr_t)memory, .src = (uintptr_t)source, .len = COUNT * PAGE};
    int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    touch(source, COUNT);
    CHECK(file >= 0 && ioctl(file, UFFDIO_API, &api) == 0 && ioctl(file, UFFDIO_REGISTER, &range) == 0);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 64), memory, COUNT));
    CHECK(ioctl(file, UFFDIO_COPY, &copy) == 0);
    check_colors(memory, COUNT, 64);
    for (int at = 0; at < COUNT; at++) CHECK(memory[at * PAGE] == (char)(at + 1));
}

void test_ksm(void)
{
    volatile char *memory = map(64);
    char text[32] = "0";
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 64));
    for (int at = 0; at < 64; at++) memset((char *)memory + at * PAGE, 7, PAGE);
    CHECK(madvise((void *)memory, 64 * PAGE, MADV_MERGEABLE) == 0);
    write_file("/sys/kernel/mm/ksm/pages_to_scan", "10000");
    write_file("/sys/kernel/mm/ksm/run", "1");
    for (int round = 0; round < 300 && atoi(text) < 30; round++) {
        int file = open("/sys/kernel/mm/ksm/pages_sharing", O_RDONLY | O_CLOEXEC);
        ssize_t got = read(file, text, sizeof text - 1);
        close(file);
        text[got > 0 ? got : 0] = 0;
        usleep(50000);
    }
    CHECK(atoi(text) >= 30, "merged %s", text);
    write_file("/sys/kernel/mm/ksm/run", "0");
    /* Copies on write out of a merged page. */
    touch(memory, 64);
    check_colors(memory, 64, 16);
}

void test_huge_pages(void)
{
    enum { COUNT = 2048 };
    for (int kept = 0; kept < 3; kept++)
        CHILD({
            volatile char *memory = map(COUNT);
            struct page_hint asked = hint("page-coloring", 16);
            madvise((void *)memory, COUNT * PAGE, MADV_HUGEPAGE);
            asked.flags = kept == 1 ? PAGE_HINT_THP : 0;
            if (kept < 2) set(PAGE_HINTS_SET_DEFAULT, asked);
            touch(memory, COUNT);
            CHECK(has_huge(memory) == (kept > 0), "case %d", kept);
            if (!kept) check_colors(memory, COUNT, 16);
        });
}
