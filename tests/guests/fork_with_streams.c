/* fork in a program with threads and open streams: libc frees the streams' locks in the child before anybody else's turn
 * there, and goes through descriptors of threads, which lie on stacks that the program gave. Regression: on reserved pages
 * both were missing in the child, which died. */
#include "guest.h"

enum { STREAMS = 40, CHILDREN = 5 };
static const size_t STACK = 256 * KIB;

static void *wait_for_end(void *end) {
    char byte;
    CHECK(read(*(int *)end, &byte, 1) == 0);
    return NULL;
}

int main(void) {
    FILE *stream[STREAMS];
    int end[2];
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(pipe(end) == 0);
    for (int i = 0; i < STREAMS; i++) CHECK((stream[i] = fopen("/dev/null", "r+")) != NULL);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, map_anon(STACK), STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, wait_for_end, &end[0]) == 0);
    unsigned char *block = map_anon(3 * MIB);
    fill(block, 3 * MIB, 1);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(holds(block, 3 * MIB, 1));
            fill(block, 3 * MIB, 2);
            for (int k = 0; k < STREAMS; k++) CHECK(fputc('x', stream[k]) == 'x' && fclose(stream[k]) == 0);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(holds(block, 3 * MIB, 1));
    }
    CHECK(close(end[1]) == 0 && pthread_join(thread, NULL) == 0);
    for (int i = 0; i < STREAMS; i++) CHECK(fclose(stream[i]) == 0);
    return ok();
}
