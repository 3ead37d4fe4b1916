/* known MODE [ARGUMENT]: programs whose references are known; the array lies where it says, for --range. */
#define _GNU_SOURCE
#include <pthread.h>
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

/* Two threads that take turns: what one has done must be in the trace before what the other does next. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static long turn;

static void *player(void *number)
{
    for (long round = 0; round < 50; round++) {
        pthread_mutex_lock(&mutex);
        while (turn % 2 != (long)number)
            pthread_cond_wait(&condition, &mutex);
        store(turn, 1, 3);
        turn++;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void turns(void)
{
    pthread_t ids[2];
    map(100);
    for (long number = 0; number < 2; number++)
        pthread_create(&ids[number], NULL, player, (void *)number);
    for (int number = 0; number < 2; number++)
        pthread_join(ids[number], NULL);
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
        turns();
    else if (!strcmp(mode, "marked"))
        marked();
    else if (!strcmp(mode, "children"))
        children(argv[0]);
    else if (!strcmp(mode, "child"))
        child();
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
