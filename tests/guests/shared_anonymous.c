/* MAP_SHARED|MAP_ANONYMOUS across fork: both processes write the same pages. */
#include "guest.h"

int main(void) {
    unsigned char *p = mmap(NULL, 5 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && all_zero(p, 5 * MIB));
    fill(p, MIB, 1);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(holds(p, MIB, 1));
        fill(p + MIB, 4 * MIB, 2);
        CHECK(munmap(p, 2 * MIB) == 0);
        _exit(0);
    }
    CHECK(wait_for(pid) == 0);
    CHECK(holds(p, MIB, 1) && holds(p + MIB, 4 * MIB, 2));
    /* A process-shared mutex in it. */
    pthread_mutex_t *mutex = (void *)p;
    int *counter = (int *)(p + PAGE);
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
    *counter = 0;
    pid = fork();
    for (int i = 0; i < 2000; i++) {
        CHECK(pthread_mutex_lock(mutex) == 0);
        ++*counter;
        CHECK(pthread_mutex_unlock(mutex) == 0);
    }
    if (pid == 0) _exit(0);
    CHECK(wait_for(pid) == 0);
    CHECK(*counter == 4000);
    return ok();
}
