/* Memory of every kind, argv[1] MiB of it (4), and a forked child that writes a little of it and ends as programs do. */
#include "guest.h"

int main(int argc, char **argv) {
    size_t half = (argc > 1 ? strtoul(argv[1], NULL, 10) : 4) * MIB / 2;
    unsigned char *mapped = map_anon(half);
    memset(mapped, 1, half);
    for (size_t left = half; left >= PAGE; left -= PAGE) {
        unsigned char *block = malloc(PAGE - 64);
        CHECK(block);
        memset(block, 2, PAGE - 64);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        memset(mapped, 3, 16 * PAGE);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("ok");
    return 0;
}
