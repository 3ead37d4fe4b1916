/* personality(READ_IMPLIES_EXEC) makes all memory executable that is mapped from then on. Regression: memory that the library
 * had mapped before, as the rest of a tile, was not. */
#include "guest.h"
#include <sys/personality.h>
#include <sys/syscall.h>

static sigjmp_buf refused;

static void refuse(int signal) {
    siglongjmp(refused, signal);
}

static int runs(unsigned char *code) {
#ifdef __x86_64__
    code[0] = 0xc3;
    if (sigsetjmp(refused, 1) != 0) return 0;
    ((void (*)(void))code)();
    return 1;
#else
    return code != NULL;
#endif
}

static void blocks_run(int expected) {
    static const size_t sizes[] = {PAGE, 64 * KIB, MIB, 2 * MIB, 3 * MIB, 200 * KIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *block = map_anon(sizes[i]);
        CHECK(runs(block) == expected && runs(block + sizes[i] - PAGE) == expected);
        unsigned char *shut = mmap(NULL, sizes[i], PROT_NONE, ANON, -1, 0);
        CHECK(shut != MAP_FAILED && mprotect(shut, sizes[i], RW) == 0);
        CHECK(runs(shut) == expected);
    }
}

int main(void) {
    signal(SIGSEGV, refuse);
    /* The rest of the tile of this block would be the next one. */
    map_anon(PAGE)[0] = 1;
    CHECK(sbrk(PAGE) != (void *)-1);
    int before = personality(0xffffffff);
    CHECK(before >= 0 && personality((unsigned long)before | READ_IMPLIES_EXEC) == before);
    blocks_run(1);
    unsigned char *heap = sbrk(MIB);
    CHECK(heap != (void *)-1 && runs((unsigned char *)(((uintptr_t)heap + 2 * PAGE) & ~(PAGE - 1))));
    CHECK(syscall(SYS_personality, (unsigned long)before & ~READ_IMPLIES_EXEC) >= 0);
    blocks_run(0);
    return ok();
}
