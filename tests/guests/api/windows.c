/* Windows: what is measured between pagelab_begin and pagelab_end, by what the argument says. */
#include "../guest.h"
#include <time.h>

#include "pagelab.h"

#define ANSWERS(expression, wanted)                                                                        \
    do {                                                                                                   \
        int answer_ = (expression);                                                                         \
        if (answer_ != (wanted)) {                                                                         \
            fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #expression, answer_, wanted); \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

static void touch(size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    CHECK(madvise(p, bytes, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
    for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
    munmap(p, bytes);
}

static void spend(long ms) {
    struct timespec now, begin;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

static void window(const char *name, void (*work)(long), long argument) {
    ANSWERS(pagelab_begin(name), 0);
    work(argument);
    ANSWERS(pagelab_end(), 0);
}

static void rest(long ms) { usleep(ms * 1000); }
static void nothing(long unused) { (void)unused; }
static void touch_mib(long mib) { touch(mib * MIB); }

/* The first touch of 32 MiB is outside every window. */
static void plain(void) {
    touch(32 * MIB);
    window("busy", spend, 40);
    window("idle", rest, 40);
    window("touching", touch_mib, 8);
}

static void repeated(void) {
    for (int i = 0; i < 5000; i++) window("again", nothing, 0);
}

static void nested(void) {
    ANSWERS(pagelab_begin("outer"), 0);
    spend(20);
    window("inner", spend, 20);
    window("inner", spend, 20);
    ANSWERS(pagelab_end(), 0);
}

static void *of_thread(void *argument) {
    for (int i = 0; i < 200; i++) window(argument, nothing, 0);
    window("work", spend, 20);
    return NULL;
}

static void threads(void) {
    pthread_t thread[8];
    ANSWERS(pagelab_begin("all"), 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_create(&thread[i], NULL, of_thread, "turn") == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    ANSWERS(pagelab_end(), 0);
}

/* Each process has its own windows; the parent's open one is not the child's. */
static void forks(void) {
    ANSWERS(pagelab_begin("parent"), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ANSWERS(pagelab_end(), -EINVAL);
        window("child", spend, 5);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    ANSWERS(pagelab_end(), 0);
}

static void *end_it(void *unused) {
    ANSWERS(pagelab_end(), -EINVAL);
    return unused;
}

static void misused(void) {
    ANSWERS(pagelab_end(), -EINVAL);
    ANSWERS(pagelab_begin("left open"), 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_it, NULL) == 0 && pthread_join(thread, NULL) == 0);
    ANSWERS(pagelab_begin("twice"), 0);
    ANSWERS(pagelab_begin("twice"), 0);
    ANSWERS(pagelab_end(), 0);
    ANSWERS(pagelab_end(), 0);
    for (int i = 0; i < 7; i++) ANSWERS(pagelab_begin(((char[]){'a' + i, 0})), 0);
    ANSWERS(pagelab_begin("too deep"), -ENOSPC);
    for (int i = 0; i < 7; i++) ANSWERS(pagelab_end(), 0);
    ANSWERS(pagelab_begin(NULL), -EINVAL);
    ANSWERS(pagelab_begin(""), -EINVAL);
    ANSWERS(pagelab_begin("a name that has one byte more than there is room for here"), -EINVAL);
    ANSWERS(pagelab_begin("a name that has as many bytes as there is room for, here"), 0);
    ANSWERS(pagelab_end(), 0);
    char name[16];
    int more = 0;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "name %d", i);
        if (pagelab_begin(name) == 0) {
            ANSWERS(pagelab_end(), 0);
            more++;
        }
    }
    printf("%d names\n", more);
}

/* 64 MiB more in memory at the second look than at the first; the look of the outer window is its own. */
static void placed(void) {
    ANSWERS(pagelab_window_placement(), -EINVAL);
    size_t bytes = 64 * MIB;
    ANSWERS(pagelab_begin("outer"), 0);
    window("no look", nothing, 0);
    ANSWERS(pagelab_begin("before"), 0);
    ANSWERS(pagelab_window_placement(), 0);
    ANSWERS(pagelab_end(), 0);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 1, bytes);
    ANSWERS(pagelab_begin("after"), 0);
    ANSWERS(pagelab_window_placement(), 0);
    ANSWERS(pagelab_end(), 0);
    /* A hundred looks take their time; the window has none of it. */
    ANSWERS(pagelab_begin("often"), 0);
    for (int i = 0; i < 100; i++) ANSWERS(pagelab_window_placement(), 0);
    ANSWERS(pagelab_end(), 0);
    munmap(p, bytes);
    ANSWERS(pagelab_window_placement(), 0);
    ANSWERS(pagelab_end(), 0);
}

static void killed(void) {
    window("whole", spend, 5);
    ANSWERS(pagelab_begin("half"), 0);
    raise(SIGKILL);
}

static void many(void) {
    int refused = 0;
    for (int i = 0; i < 200100; i++) {
        ANSWERS(pagelab_begin("many"), 0);
        int answer = pagelab_end();
        if (answer != 0) ANSWERS(answer, -ENOSPC);
        refused += answer != 0;
    }
    printf("%d refused\n", refused);
}

/* What a window takes of wall and processor time, in nanoseconds; told, not judged. */
static void cost(void) {
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID};
    struct timespec begin[2], end[2];
    window("first", nothing, 0);
    for (int i = 0; i < 2; i++) clock_gettime(clocks[i], &begin[i]);
    for (int i = 0; i < 20000; i++) {
        pagelab_begin("cost");
        pagelab_end();
    }
    for (int i = 0; i < 2; i++) {
        clock_gettime(clocks[i], &end[i]);
        printf("%.0f ", ((end[i].tv_sec - begin[i].tv_sec) * 1e9 + (end[i].tv_nsec - begin[i].tv_nsec)) / 20000);
    }
}

static void nobody_records(void) {
    int answer = pagelab_begin("nothing");
    printf("%d\n", answer);
    if (answer == 0) ANSWERS(pagelab_end(), 0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"plain", plain},   {"repeated", repeated}, {"nested", nested}, {"threads", threads}, {"forks", forks},
        {"misused", misused}, {"killed", killed},   {"many", many},     {"cost", cost},       {"nobody", nobody_records},
        {"placed", placed},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (argc == 2 && strcmp(argv[1], ways[i].name) == 0) {
            ways[i].run();
            return 0;
        }
    return 2;
}
