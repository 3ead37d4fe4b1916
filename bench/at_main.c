/* Prints the time (CLOCK_MONOTONIC, ns) at which main was reached. */
#include <stdio.h>
#include <time.h>

int main(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    return 0;
}
