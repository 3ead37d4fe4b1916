/* sigaltstack on fresh, mapped memory; the handler runs on it and maps more. */
#include "guest.h"

static unsigned char *stack_base;
static volatile int on_the_stack;

static void on_signal(int signal_number) {
    volatile char local[6000];
    memset((void *)local, signal_number, sizeof local);
    on_the_stack += (unsigned char *)local >= stack_base && (unsigned char *)local < stack_base + 64 * KIB;
    unsigned char *p = mmap(NULL, MIB, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, MIB));
    CHECK(munmap(p, MIB) == 0);
}

int main(void) {
    stack_base = map_anon(64 * KIB);
    stack_t alternate = {.ss_sp = stack_base, .ss_size = 64 * KIB};
    CHECK(sigaltstack(&alternate, NULL) == 0);
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    for (int i = 0; i < 20; i++) CHECK(raise(SIGUSR1) == 0);
    CHECK(on_the_stack == 20);
    return ok();
}
