/* real_time HOW: a real-time thread is woken with data and a signal at the same moment, and its buffer is fresh memory. While
 * a signal is pending, a fault in a system call does not sleep: whoever answers it needs a higher priority.
 *   started  the program is real-time from its start (natively it makes itself so)
 *   itself   it makes itself real-time
 *   raised   then it raises itself, twice
 *   direct   as `itself`, by system calls past the functions for them
 *   thread   its first thread makes another one real-time
 *   lowered  it is real-time, and then ordinary again: no thread stays real-time, which a program that gives up root would keep
 */
#include "frames.h"
#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>

enum { ROUNDS = 40, BYTES = 16 };
static const char data[BYTES] = "0123456789abcde";
static volatile int go;

static void ignore(int number) { (void)number; }

static struct sched_param at(int priority) { return (struct sched_param){.sched_priority = priority}; }

/* All on one processor, of which the last one is less used than the first. */
static void keep_to_one_processor(void) {
    cpu_set_t set, one;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && CPU_COUNT(&one) == 0; cpu--)
        if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* Reads what another process sends; this has the same priority, so that its signal comes before the reader runs. */
static void *reads(void *unused) {
    int ends[2], status;
    sigset_t signals;
    (void)unused;
    while (!go) usleep(100);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    CHECK(pipe(ends) == 0);
    pid_t reader = getpid(), writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            usleep(2000);
            if (write(ends[1], data, BYTES) != BYTES || kill(reader, SIGUSR1) != 0) _exit(1);
        }
        _exit(0);
    }
    CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        CHECK(read(ends[0], p, BYTES) == BYTES);
        CHECK(memcmp(p, data, BYTES) == 0);
        CHECK(munmap(p, 16 * PAGE) == 0);
    }
    while (waitpid(writer, &status, 0) < 0) CHECK(errno == EINTR);
    CHECK(status == 0);
    return NULL;
}

/* The highest real-time priority of this process's threads. */
static int highest_priority(void) {
    DIR *tasks = opendir("/proc/self/task");
    int most = 0;
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        struct sched_param found = {0};
        if (entry->d_name[0] != '.' && sched_getparam(atoi(entry->d_name), &found) == 0 && found.sched_priority > most)
            most = found.sched_priority;
    }
    CHECK(closedir(tasks) == 0);
    return most;
}

static void *is_real_time(void *unused) {
    struct sched_param low = at(20), ordinary = at(0);
    CHECK(sched_setscheduler(0, SCHED_FIFO, &low) == 0);
    while (go) usleep(100);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0);
    return unused;
}

static void is_lowered(void) {
    struct sched_param high = at(30), ordinary = at(0);
    pthread_t other;
    if (sched_setscheduler(0, SCHED_FIFO, &high) != 0) return;
    map_anon(4 * MIB)[MIB] = 1;
    CHECK(highest_priority() >= 30);
    go = 1;
    CHECK(pthread_create(&other, NULL, is_real_time, NULL) == 0);
    while (highest_priority() < 20) usleep(100);
    usleep(10000);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0);
    int beside = highest_priority();
    if (beside < 20 || beside > 21) FAIL("beside a thread of priority 20 there is one of %d", beside);
    go = 0;
    CHECK(pthread_join(other, NULL) == 0);
    if (highest_priority() != 0) FAIL("a thread of priority %d is left", highest_priority());
    CHECK(sched_setscheduler(0, SCHED_FIFO, &high) == 0 && highest_priority() >= 30);
    CHECK(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0 && highest_priority() == 0);
}

static double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "itself";
    struct sched_param low = at(20), high = at(30), highest = at(40);
    /* Whatever goes wrong, the processor is free again after three seconds. */
    struct rlimit limit = {3000000, 3000000};
    CHECK(setrlimit(RLIMIT_RTTIME, &limit) == 0);
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    map_anon(PAGE)[0] = 1; /* the engine has started */
    keep_to_one_processor();
    double begin = now();
    if (strcmp(how, "lowered") == 0) {
        is_lowered();
    } else if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
        int refused = pthread_setschedparam(thread, SCHED_FIFO, &low);
        if (!refused) CHECK(pthread_setschedprio(thread, high.sched_priority) == 0);
        go = 1;
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        int refused = 0;
        if (strcmp(how, "direct") == 0) {
            refused = syscall(SYS_sched_setscheduler, 0, SCHED_RR, &low) != 0;
            if (!refused) CHECK(syscall(SYS_sched_setparam, 0, &high) == 0);
        } else if (strcmp(how, "started") != 0 || sched_getscheduler(0) != SCHED_FIFO) {
            refused = sched_setscheduler(0, SCHED_FIFO, &low) != 0;
        }
        if (!refused && strcmp(how, "raised") == 0) {
            CHECK(sched_setparam(0, &high) == 0);
            CHECK(pthread_setschedprio(pthread_self(), highest.sched_priority) == 0);
        }
        go = 1;
        reads(NULL);
    }
    /* It takes a tenth of a second. What the kernel leaves to ordinary threads beside real-time ones takes far longer. */
    if (now() - begin > 10) FAIL("%.1f s", now() - begin);
    return ok();
}
