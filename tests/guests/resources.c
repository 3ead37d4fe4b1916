/* How little of each resource a program gets by with: for each, the smallest limit under which a child that uses the
 * resource still does all it has to do; prints one line a resource, "name limit", -1 where not even the
 * largest does. As root: children for what is counted by user, or what root may exceed, are another user. */
#include "guest.h"
#include <mqueue.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static void memory_calls(void) {
    unsigned char *p = map_anon(3 * MIB);
    memset(p, 1, 3 * MIB);
    CHECK(mprotect(p + MIB, PAGE, PROT_READ) == 0);
    CHECK(munmap(p + 2 * MIB, MIB) == 0);
    CHECK(munmap(p, 2 * MIB) == 0);
    void *q = malloc(200 * KIB);
    CHECK(q);
    memset(q, 2, 200 * KIB);
    free(q);
}

static void forks(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void use_nothing(void) {}

static void use_descriptors(void) {
    int fds[2];
    for (int i = 0; i < 8; i++) CHECK(pipe(fds) == 0);
}

static void use_file_size(void) {
    FILE *file = tmpfile();
    CHECK(file);
    char page[4096] = {1};
    for (int i = 0; i < 3; i++) CHECK(fwrite(page, 1, sizeof page, file) == sizeof page);
    CHECK(fclose(file) == 0);
}

static void use_memory(void) {
    for (int i = 0; i < 64; i++) {
        unsigned char *p = malloc(MIB);
        CHECK(p);
        memset(p, 1, MIB);
    }
}

static void use_stack(void) {
    volatile unsigned char frame[256 << 10];
    for (size_t i = 0; i < sizeof frame; i += PAGE) frame[sizeof frame - 1 - i] = 1;
}

static void use_locked(void) {
    unsigned char *p = map_anon(64 * KIB);
    CHECK(mlock(p, 64 * KIB) == 0);
}

static void *thread(void *barrier) {
    memory_calls();
    pthread_barrier_wait(barrier);
    return NULL;
}

/* All three live at once, whatever the scheduler does, and no child beside them. */
static void use_threads(void) {
    pthread_t threads[3];
    pthread_barrier_t barrier;
    forks();
    CHECK(pthread_barrier_init(&barrier, NULL, 3) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, thread, &barrier) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void use_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    for (int i = 0; i < 8; i++) CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
}

static void use_processor(void) {
    struct timespec used;
    do {
        CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
    } while (used.tv_sec == 0 && used.tv_nsec < 500000000);
}

static void use_queue(void) {
    char name[64];
    snprintf(name, sizeof name, "/pagelab-resources-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 256};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue >= 0);
    CHECK(mq_unlink(name) == 0);
}

static void use_priority(void) {
    struct sched_param priority = {.sched_priority = 3};
    CHECK(sched_setscheduler(0, SCHED_FIFO, &priority) == 0);
}

static void use_nice(void) { CHECK(setpriority(PRIO_PROCESS, 0, -5) == 0); }

static const struct {
    const char *name;
    int resource, for_nobody;
    rlim_t most, step; /* the smallest limit is looked for up to `most`, in steps of `step` */
    void (*use)(void);
} resources[] = {
    {"RLIMIT_NOFILE", RLIMIT_NOFILE, 0, 1024, 1, use_descriptors},
    {"RLIMIT_FSIZE", RLIMIT_FSIZE, 0, 1 << 20, 4096, use_file_size},
    {"RLIMIT_AS", RLIMIT_AS, 0, 1 << 30, 64 << 10, use_memory},
    {"RLIMIT_DATA", RLIMIT_DATA, 0, 1 << 30, 64 << 10, use_memory},
    {"RLIMIT_STACK", RLIMIT_STACK, 0, 8 << 20, 4096, use_stack},
    {"RLIMIT_CORE", RLIMIT_CORE, 0, 1 << 20, 4096, use_nothing},
    {"RLIMIT_CPU", RLIMIT_CPU, 0, 16, 1, use_processor},
    {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE, 1, 512 << 10, 64, use_queue},
    {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING, 1, 1024, 1, use_signals},
    {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, 1, 1 << 20, 4096, use_locked},
    {"RLIMIT_NPROC", RLIMIT_NPROC, 1, 256, 1, use_threads},
    {"RLIMIT_RTPRIO", RLIMIT_RTPRIO, 1, 99, 1, use_priority},
    {"RLIMIT_NICE", RLIMIT_NICE, 1, 40, 1, use_nice},
};
#define RESOURCES (sizeof resources / sizeof resources[0])

/* What counts by user is used by a user whom nobody else runs as: two children that live at once have different ones. */
static int become_nobody(void) {
    uid_t user = 20000 + getpid() % 40000;
    return setresgid(user, user, user) || setresuid(user, user, user);
}

/* Everything that failing children say is expected. */
static int gets_by(const char *self, size_t i, rlim_t limit) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int nowhere = open("/dev/null", O_RDWR);
        dup2(nowhere, 1);
        dup2(nowhere, 2);
        close(nowhere);
        struct rlimit both = {limit, limit}, no_core = {0, 0};
        if (resources[i].resource != RLIMIT_CORE) setrlimit(RLIMIT_CORE, &no_core);
        if (resources[i].for_nobody && become_nobody()) _exit(3);
        if (setrlimit(resources[i].resource, &both)) _exit(3);
        execl(self, self, "use", resources[i].name, (char *)NULL);
        _exit(3);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void smallest(const char *self, size_t i) {
    rlim_t step = resources[i].step, low = 0, high = resources[i].most / step; /* in steps; `high` is enough */
    if (!gets_by(self, i, high * step)) {
        printf("%s -1\n", resources[i].name);
        return;
    }
    while (low < high) {
        rlim_t middle = (low + high) / 2;
        if (gets_by(self, i, middle * step))
            high = middle;
        else
            low = middle + 1;
    }
    printf("%s %llu\n", resources[i].name, (unsigned long long)(high * step));
}

/* How many mappings the program can have (vm.max_map_count): every other page of one block gets another protection. */
static void mappings(void) {
    size_t most = 80000, made = 0;
    unsigned char *p = mmap(NULL, most * 2 * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    while (made < most && mprotect(p + 2 * made * PAGE, PAGE, PROT_READ) == 0) made++;
    printf("vm.max_map_count %zu\n", 2 * made);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "use") == 0) {
        for (size_t i = 0; i < RESOURCES; i++)
            if (strcmp(argv[2], resources[i].name) == 0) {
                resources[i].use();
                if (resources[i].resource != RLIMIT_CPU) memory_calls();
                /* Threads that were joined count until the kernel has done with them: no child beside those. */
                if (resources[i].resource != RLIMIT_CPU && resources[i].resource != RLIMIT_NPROC) forks();
                return ok();
            }
        FAIL("%s is no resource", argv[2]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < RESOURCES; i++) smallest(argv[0], i);
    mappings();
    return ok();
}
