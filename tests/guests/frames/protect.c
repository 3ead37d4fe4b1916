/* Protections change before and after pages are there: no access hangs, none succeeds that must not, zeros stay zero. */
#include "frames.h"

static void reserve_then_commit(void) {
    unsigned char *p = mmap(NULL, 1000 * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(fault_signal(p + 500 * PAGE, READ_ACCESS) == SIGSEGV);
    for (size_t done = 0; done < 1000; done += 100) {
        CHECK(mprotect(p + done * PAGE, 100 * PAGE, RW) == 0);
        write_tags(p + done * PAGE, 100, done);
        check_tags(p + done * PAGE, 100, done);
    }
    CHECK_PLACED(p, 1000);
    CHECK(munmap(p, 1000 * PAGE) == 0);
}

/* A move into a page that may not be written is refused by the kernel: another way must be found. */
static void read_only_first(void) {
    unsigned char *p = map_anon(64 * PAGE);
    CHECK(mprotect(p, 64 * PAGE, PROT_READ) == 0);
    CHECK(all_zero(p, 32 * PAGE));
    CHECK(fault_signal(p, WRITE_ACCESS) == SIGSEGV);
    CHECK(fault_signal(p + 40 * PAGE, WRITE_ACCESS) == SIGSEGV);
    CHECK(mprotect(p, 64 * PAGE, RW) == 0);
    write_tags(p, 64, 3);
    check_tags(p, 64, 3);
    CHECK_PLACED(p + 41 * PAGE, 23); /* never touched while read-only */
    CHECK(munmap(p, 64 * PAGE) == 0);
    p = mmap(NULL, 64 * PAGE, PROT_READ, ANON, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, 64 * PAGE));
    CHECK(munmap(p, 64 * PAGE) == 0);
}

static void back_and_forth(void) {
    unsigned char *p = map_anon(40 * PAGE);
    write_tags(p, 20, 2);
    for (int round = 0; round < 50; round++) {
        CHECK(mprotect(p, 40 * PAGE, PROT_READ) == 0);
        check_tags(p, 20, 2);
        CHECK(mprotect(p + 20 * PAGE, PAGE, PROT_NONE) == 0);
        CHECK(fault_signal(p + 20 * PAGE, READ_ACCESS) == SIGSEGV);
        CHECK(mprotect(p, 40 * PAGE, RW) == 0);
    }
    CHECK_PLACED(p, 20);
    write_tags(p, 40, 2);
    check_tags(p, 40, 2);
    CHECK_PLACED(p, 40);
    CHECK(munmap(p, 40 * PAGE) == 0);
}

/* A just-in-time compiler's memory: writable and executable. */
static void executable(void) {
    static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
    unsigned char *p = mmap(NULL, 4 * PAGE, RW | PROT_EXEC, ANON, -1, 0);
    if (p == MAP_FAILED) return; /* refused by a security module */
    for (size_t i = 0; i < 4; i++) {
        memcpy(p + i * PAGE, answer, sizeof answer);
        CHECK(((int (*)(void))(p + i * PAGE))() == 42);
    }
    CHECK(munmap(p, 4 * PAGE) == 0);
    p = map_anon(4 * PAGE);
    for (size_t i = 0; i < 4; i++) memcpy(p + i * PAGE, answer, sizeof answer);
    CHECK_PLACED(p, 4);
    CHECK(mprotect(p, 4 * PAGE, PROT_READ | PROT_EXEC) == 0);
    for (size_t i = 0; i < 4; i++) CHECK(((int (*)(void))(p + i * PAGE))() == 42);
    CHECK(munmap(p, 4 * PAGE) == 0);
}

static void guard_pages(void) {
    for (int i = 0; i < 100; i++) {
        unsigned char *p = mmap(NULL, 18 * PAGE, PROT_NONE, ANON, -1, 0);
        CHECK(p != MAP_FAILED && mprotect(p + PAGE, 16 * PAGE, RW) == 0);
        write_tags(p + PAGE, 16, 1);
        CHECK_PLACED(p + PAGE, 16);
        CHECK(fault_signal(p + PAGE - 1, READ_ACCESS) == SIGSEGV && fault_signal(p + 17 * PAGE, WRITE_ACCESS) == SIGSEGV);
        CHECK(munmap(p, 18 * PAGE) == 0);
    }
}

int main(void) {
    reserve_then_commit();
    read_only_first();
    back_and_forth();
    executable();
    guard_pages();
    return ok();
}
