/* known MODE [ARGUMENT]: programs whose references are known; the array lies where it says, for --range. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARKER 0x50474c42
#define PAGE 4096
/* Far from everything that the emulator maps by itself. */
static char *const arena = (char *)0x10000000000;

static void map(long pages)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(arena, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) != arena)
        abort();
}

/* `count` stores of 4 bytes each to pages `first` ... `first + pages - 1` in turn. */
static void store(long first, long pages, long count)
{
    char *base = arena + first * PAGE;
    for (long at = 0; at < count; at++)
        __asm__ volatile("movl %0, (%1)" ::"r"((int)at), "r"(base + at % pages * PAGE) : "memory");
}

static void load(long first, long pages, long count)
{
    char *base = arena + first * PAGE;
    for (long at = 0; at < count; at++) {
        int value;
        __asm__ volatile("movl (%1), %0" : "=r"(value) : "r"(base + at % pages * PAGE) : "memory");
    }
}

static pthread_barrier_t barrier;

static void *thread(void *number)
{
    long own = (long)number;
    pthread_barrier_wait(&barrier);
    store(own * 16, 16, 100000 + own * 1000);
    return NULL;
}

static void threads(void)
{
    pthread_t ids[4];
    map(64);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long number = 0; number < 4; number++)
        pthread_create(&ids[number], NULL, thread, (void *)number);
    for (int number = 0; number < 4; number++)
        pthread_join(ids[number], NULL);
}

/* Two threads that take turns: what one has done must be in the trace before what the other does next, whatever it is that
   lets the other go on. */
#define TURNS 600 /* at most; even */
static long all_turns;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t semaphores[2];
static int pipes[2][2];
static long turn;
static pthread_t players[2];
static volatile sig_atomic_t told[2];

struct way {
    const char *name;
    void (*wait)(long own);
    void (*pass)(long own);
};

static void wait_condition(long own)
{
    pthread_mutex_lock(&mutex);
    while (turn % 2 != own)
        pthread_cond_wait(&condition, &mutex);
}

static void pass_condition(long own)
{
    (void)own;
    turn++;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
}

/* An unlock that is a plain store, a lock that is an atomic instruction. */
static void wait_spinlock(long own)
{
    for (;;) {
        pthread_spin_lock(&spin);
        if (turn % 2 == own)
            return;
        pthread_spin_unlock(&spin);
        sched_yield();
    }
}

static void pass_spinlock(long own)
{
    (void)own;
    turn++;
    pthread_spin_unlock(&spin);
}

/* A flag that is set by a plain store, and polled by plain loads. What is found at the first look is in no order
 * (docs/trace.md), however seldom that is: each looks twice, or pauses before it looks. */
static void wait_flag(long own)
{
    do
        (void)__atomic_load_n(&turn, __ATOMIC_ACQUIRE);
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) % 2 != own);
}

static void wait_pause(long own)
{
    do
        __builtin_ia32_pause();
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) % 2 != own);
}

static void pass_flag(long own)
{
    (void)own;
    __atomic_store_n(&turn, turn + 1, __ATOMIC_RELEASE);
}

/* One that is set by XCHG, and looked at once in a while. */
static void wait_looking(long own)
{
    static long elsewhere[2][8];
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) % 2 != own)
        for (int at = 0; at < 8; at++)
            __atomic_store_n(&elsewhere[own][at], at, __ATOMIC_RELAXED);
}

static void pass_exchange(long own)
{
    (void)own;
    __atomic_exchange_n(&turn, turn + 1, __ATOMIC_SEQ_CST);
}

static void wait_add(long own)
{
    while (__atomic_fetch_add(&turn, 0, __ATOMIC_SEQ_CST) % 2 != own)
        ;
}

static void wait_semaphore(long own)
{
    while (sem_wait(&semaphores[own]))
        ;
}

static void pass_semaphore(long own)
{
    turn++;
    sem_post(&semaphores[!own]);
}

static void wait_pipe(long own)
{
    char byte;
    if (read(pipes[own][0], &byte, 1) != 1)
        abort();
}

static void pass_pipe(long own)
{
    turn++;
    if (write(pipes[!own][1], "", 1) != 1)
        abort();
}

/* The signal's handler does what is to be done. */
static void handler(int number)
{
    (void)number;
    long own = !pthread_equal(pthread_self(), players[0]);
    store(turn, 1, 3);
    turn++;
    told[own] = 1;
}

static void wait_signal(long own)
{
    while (!told[own])
        sched_yield();
    told[own] = 0;
}

static void pass_signal(long own)
{
    if (turn < all_turns)
        pthread_kill(players[!own], SIGUSR1);
}

static const struct way ways[] = {
    {"condition", wait_condition, pass_condition}, {"spinlock", wait_spinlock, pass_spinlock},
    {"flag", wait_flag, pass_flag},                {"pause", wait_pause, pass_flag},
    {"looking", wait_looking, pass_exchange},      {"add", wait_add, pass_exchange},
    {"semaphore", wait_semaphore, pass_semaphore}, {"pipe", wait_pipe, pass_pipe},
    {"signal", wait_signal, pass_signal},
};
static const struct way *way;

static void *player(void *number)
{
    long own = (long)number;
    for (long round = 0; round < all_turns / 2; round++) {
        way->wait(own);
        if (way->wait != wait_signal)
            store(turn, 1, 3);
        way->pass(own);
    }
    return NULL;
}

static int turns(const char *name, long count)
{
    all_turns = count;
    for (size_t at = 0; at < sizeof ways / sizeof *ways; at++)
        if (!strcmp(ways[at].name, name))
            way = &ways[at];
    if (!way || pipe(pipes[0]) || pipe(pipes[1]))
        return 2;
    map(TURNS);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphores[0], 0, 1);
    sem_init(&semaphores[1], 0, 0);
    if (way->wait == wait_pipe && write(pipes[0][1], "", 1) != 1)
        return 2;
    signal(SIGUSR1, handler);
    for (long number = 0; number < 2; number++)
        pthread_create(&players[number], NULL, player, (void *)number);
    if (way->wait == wait_signal)
        pthread_kill(players[0], SIGUSR1);
    for (int number = 0; number < 2; number++)
        pthread_join(players[number], NULL);
    return 0;
}

/* Threads that have ended before the first one looks: joining them makes no system call then. */
static void *ends(void *number)
{
    store((long)number * 2, 1, 3);
    return NULL;
}

static void joined(void)
{
    map(2 * TURNS);
    for (long number = 0; number < TURNS; number++) {
        pthread_t id;
        pthread_create(&id, NULL, ends, (void *)number);
        if (number % 2)
            usleep(300);
        pthread_join(id, NULL);
        store(number * 2 + 1, 1, 3);
    }
}

static void marked(void)
{
    map(8);
    store(0, 8, 1000);
    prctl(MARKER, 1);
    load(0, 8, 500);
    prctl(MARKER, 0);
    store(0, 8, 1000);
    puts("the end");
}

static void children(char *self)
{
    map(4);
    store(0, 1, 10);
    if (fork() == 0) {
        store(1, 1, 20);
        char *argv[] = {self, "child", NULL};
        execv(self, argv);
        _exit(1);
    }
    wait(NULL);
    store(2, 1, 30);
}

/* `count` processes that have all stored before the first one ends. */
static void crowd(long count)
{
    int gate[2];
    char byte;
    map(1);
    if (pipe(gate) != 0)
        abort();
    for (long number = 0; number < count; number++)
        if (fork() == 0) {
            close(gate[1]);
            store(0, 1, 4096);
            byte = read(gate[0], &byte, 1);
            _exit(0);
        }
    sleep(1);
    close(gate[1]);
    while (wait(NULL) > 0)
        ;
}

/* The first process ends at once; its child begins its work later. */
static void outlived(void)
{
    map(1);
    if (fork() != 0)
        _exit(0);
    usleep(500000);
    store(0, 1, 60);
    _exit(0);
}

/* The first process executes itself, by this path, in which %d is its number. */
static void replaced(char *self, char *path)
{
    char name[4096];
    snprintf(name, sizeof name, path, (int)getpid());
    map(4);
    if (chdir("/"))
        abort();
    store(0, 1, 10);
    char *argv[] = {self, "child", NULL};
    execv(name, argv);
    _exit(9);
}

/* A forked child with a window and an exit code of its own, which its parent's window tells. */
static int forked(void)
{
    int status;
    map(4);
    store(0, 1, 10);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(MARKER, 1);
        store(1, 1, 20);
        prctl(MARKER, 0);
        store(1, 1, 100000);
        _exit(5);
    }
    waitpid(pid, &status, 0);
    prctl(MARKER, 1);
    store(2, 1, WEXITSTATUS(status) * 10);
    prctl(MARKER, 0);
    return 0;
}

/* A thread of a process forks: its child has one thread. */
static void *forks(void *number)
{
    (void)number;
    if (fork() == 0) {
        store(1, 1, 20);
        _exit(0);
    }
    wait(NULL);
    return NULL;
}

static void fork_of_thread(void)
{
    pthread_t id;
    map(2);
    store(0, 1, 10);
    pthread_create(&id, NULL, forks, NULL);
    pthread_join(id, NULL);
}

/* Stores that both a process and its child have made, before and behind a fork, which end with a kill. */
static void forked_and_killed(void)
{
    map(2);
    store(0, 1, 40);
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    store(1, 1, 40);
    kill(getpid(), SIGKILL);
}

static void child(void)
{
    map(4);
    store(3, 1, 40);
}

/* Closes every descriptor it has not opened, and opens files where the trace's may have been. */
static void descriptors(char *file)
{
    map(2);
    store(0, 2, 50000);
    for (int number = 3; number < 2048; number++)
        close(number);
    for (int number = 0; number < 64; number++)
        if (!freopen(file, "w", number ? fopen("/dev/null", "r") : stderr))
            abort();
    store(0, 2, 50000);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "threads"))
        threads();
    else if (!strcmp(mode, "turns"))
        return turns(argv[2], atol(argv[3]));
    else if (!strcmp(mode, "joined"))
        joined();
    else if (!strcmp(mode, "marked"))
        marked();
    else if (!strcmp(mode, "children"))
        children(argv[0]);
    else if (!strcmp(mode, "crowd"))
        crowd(atol(argv[2]));
    else if (!strcmp(mode, "child"))
        child();
    else if (!strcmp(mode, "outlived"))
        outlived();
    else if (!strcmp(mode, "replaced"))
        replaced(argv[0], argv[2]);
    else if (!strcmp(mode, "forked"))
        return forked();
    else if (!strcmp(mode, "fork-of-thread"))
        fork_of_thread();
    else if (!strcmp(mode, "forked-and-killed"))
        forked_and_killed();
    else if (!strcmp(mode, "descriptors"))
        descriptors(argv[2]);
    else if (!strcmp(mode, "loop")) {
        map(32);
        store(0, 32, atol(argv[2]));
    } else if (!strcmp(mode, "die")) {
        map(1);
        store(0, 1, 5);
        kill(getpid(), SIGKILL);
    } else if (!strcmp(mode, "exit"))
        return 3;
    else
        return 2;
    return 0;
}
