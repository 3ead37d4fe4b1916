/* Takes memory until there is none: as many MiB as its argument says, by as many threads, each page written. Ends only if
 * there was enough. */
#include "frames.h"

static size_t mebibytes;

static void *take(void *unused) {
    (void)unused;
    for (size_t i = 0; i < mebibytes; i++) {
        unsigned char *p = map_anon(MIB);
        memset(p, 1, MIB);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    mebibytes = (size_t)atol(argv[1]);
    size_t count = (size_t)atol(argv[2]);
    pthread_t threads[64];
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, take, NULL) == 0);
    for (size_t i = 0; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return ok();
}
