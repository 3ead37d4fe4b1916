/* Memory that the program maps but never touches costs nothing: argv[1] blocks (20) of 1 MiB, and a thread's stack. Then
 * it uses 4 MiB. Regression: where memory is populated when it is mapped, the limit of a control group was not heeded. */
#include "guest.h"

static void *work(void *unused) { return unused; }

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 20;
    for (size_t i = 0; i < count; i++) map_anon(MIB);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0 && pthread_join(thread, NULL) == 0);
    memset(map_anon(4 * MIB), 1, 4 * MIB);
    return ok();
}
