/* A handler for SIGSEGV on an alternate stack of the classic SIGSTKSZ, 8 KiB, with an inaccessible page below, ends the
 * program by _exit: crash reporters do that. */
#include "guest.h"

static void on_segv(int signal_number) {
    (void)signal_number;
    _exit(42);
}

int main(void) {
    unsigned char *area = map_anon(3 * PAGE);
    CHECK(mprotect(area, PAGE, PROT_NONE) == 0);
    stack_t alternate = {.ss_sp = area + PAGE, .ss_size = 2 * PAGE};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction act = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &act, NULL) == 0);
    memset(map_anon(4 * MIB), 1, 4 * MIB);
    *(volatile char *)area = 1;
    return 1;
}
