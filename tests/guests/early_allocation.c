/* Memory taken before main (preinit array, constructors), kept until after it (destructors, atexit). */
#include "guest.h"

static unsigned char *from_preinit, *from_constructor, *mapped;

static void before_constructors(int argc, char **argv, char **envp) {
    (void)argc, (void)argv, (void)envp;
    from_preinit = malloc(150 * KIB);
    fill(from_preinit, 150 * KIB, 1);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_constructors;

__attribute__((constructor(101))) static void begin(void) {
    CHECK(holds(from_preinit, 150 * KIB, 1));
    from_constructor = malloc(70 * KIB);
    fill(from_constructor, 70 * KIB, 2);
    mapped = map_anon(5 * MIB);
    CHECK(all_zero(mapped, 5 * MIB));
    fill(mapped, 5 * MIB, 3);
    pid_t pid = fork();
    if (pid == 0) {
        churn(1, 200, 300 * KIB);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
}

__attribute__((destructor)) static void end(void) {
    CHECK(holds(from_preinit, 150 * KIB, 1) && holds(from_constructor, 70 * KIB, 2) && holds(mapped, 5 * MIB, 3));
    CHECK(munmap(mapped, 5 * MIB) == 0);
    free(from_constructor);
    churn(2, 200, 300 * KIB);
}

int main(void) {
    free(from_preinit);
    from_preinit = malloc(150 * KIB);
    fill(from_preinit, 150 * KIB, 1);
    churn(3, 400, 300 * KIB);
    return ok();
}
