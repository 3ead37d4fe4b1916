/* Memory that exists before the library can govern it: data, bss and stack keep their contents; their pages, touched by
 * the loader or not, come to be what the policy promises. Argument: "placed" where the test expects that. */
#include "frames.h"

int main(int argc, char **argv);

enum { LARGE = 80 * 4096 };
#define ALIGNED __attribute__((aligned(4096)))
static unsigned char initialised[LARGE] ALIGNED = {1, 2, 3, [LARGE / 2] = 4, [LARGE - 1] = 5};
static unsigned char zeroed[LARGE] ALIGNED;
static void *const relocated[512] ALIGNED = {&zeroed, &initialised, (void *)main};
static void *pointers[512] ALIGNED = {&zeroed, &initialised, (void *)main, &pointers};
static __thread uint64_t thread_local_word = 0x1234;

static uint64_t deep(int levels) {
    volatile unsigned char here[PAGE];
    here[0] = here[PAGE - 1] = (unsigned char)levels;
    uint64_t below = levels ? deep(levels - 1) : 0;
    CHECK(here[0] == (unsigned char)levels && here[PAGE - 1] == (unsigned char)levels);
    return below + here[0];
}

int main(int argc, char **argv) {
    int placed = argc > 1 && strcmp(argv[1], "placed") == 0;
    CHECK(initialised[0] == 1 && initialised[1] == 2 && initialised[2] == 3);
    CHECK(all_zero(initialised + 3, LARGE / 2 - 3) && initialised[LARGE / 2] == 4);
    CHECK(all_zero(initialised + LARGE / 2 + 1, LARGE / 2 - 2) && initialised[LARGE - 1] == 5);
    CHECK(relocated[0] == &zeroed && relocated[1] == &initialised && relocated[2] == (void *)main && !relocated[3]);
    CHECK(pointers[0] == &zeroed && pointers[2] == (void *)main && pointers[3] == &pointers && !pointers[4]);
    CHECK(all_zero(zeroed, LARGE));
    CHECK(thread_local_word == 0x1234 && argv[argc] == NULL && getenv("PATH"));
    memset(initialised, 0x11, LARGE);
    write_tags(zeroed, LARGE / PAGE, 1);
    check_tags(zeroed, LARGE / PAGE, 1);
    uint64_t sum = 0;
    for (int i = 0; i <= 200; i++) sum += (unsigned char)i;
    CHECK(deep(200) == sum);
    if (placed) {
        CHECK_PLACED(zeroed, LARGE / PAGE);
        CHECK_PLACED(initialised, LARGE / PAGE);
        CHECK_PLACED(pointers, 1);
        unsigned char *grown = (unsigned char *)((uintptr_t)__builtin_frame_address(0) & ~(PAGE - 1)) - 150 * PAGE;
        CHECK_PLACED(grown, 140);
    }
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(initialised[77] == 0x11);
        memset(initialised, 0x22, LARGE);
        write_tags(zeroed, LARGE / PAGE, 3);
        deep(250);
        _exit(thread_local_word == 0x1234 ? 0 : 1);
    }
    CHECK(wait_for(pid) == 0);
    check_tags(zeroed, LARGE / PAGE, 1);
    CHECK(initialised[77] == 0x11 && initialised[LARGE - 1] == 0x11);
    return ok();
}
