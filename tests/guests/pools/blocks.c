/* blocks MODE [tell]: memory of each kind, touched page by page in a known order, and kept until the end. Then tells where it
 * lies, if asked to. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define MIB (1UL << 20)

static void *blocks[4096];
static int count;

static void *noted(void *block)
{
    return blocks[count++] = block;
}

static void touch(char *block, size_t bytes, size_t step)
{
    for (size_t at = 0; at < bytes; at += step)
        block[at] = 1;
}

static void *mapped(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        abort();
    return noted(block);
}

static void *allocated(size_t bytes)
{
    char *block = malloc(bytes);
    if (!block)
        abort();
    touch(block, bytes, PAGE);
    return noted(block);
}

/* The break, by malloc and by hand; small and large mappings; one that grows and moves. */
static void one_thread(void)
{
    for (int block = 0; block < 300; block++)
        allocated(1000 + 97 * block);
    touch(sbrk(3 * MIB + 5000), 3 * MIB, 3 * PAGE);
    for (size_t size = PAGE; size < 9 * MIB; size = size * 3 + PAGE)
        touch(mapped(size), size, 2 * PAGE);
    char *block = mapped(PAGE * 700);
    touch(block, PAGE * 700, PAGE);
    mapped(PAGE);
    block = mremap(block, PAGE * 700, PAGE * 2100, MREMAP_MAYMOVE);
    if (block == MAP_FAILED)
        abort();
    touch(noted(block), PAGE * 2100, 5 * PAGE);
    munmap(mapped(6 * MIB), 6 * MIB);
    touch(mapped(5 * MIB), 5 * MIB, PAGE);
}

/* One after the other gets its arena, so that natively and in an emulator they are the same threads. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long next = -1; /* nobody's turn: the stacks of all are mapped first */

static void *worker(void *number)
{
    long own = (long)number;
    pthread_mutex_lock(&turn);
    while (next != own)
        pthread_cond_wait(&changed, &turn);
    for (int block = 0; block < 200; block++)
        allocated(3000 + 211 * (block + own));
    touch(mapped(MIB * (own + 1)), MIB * (own + 1), 3 * PAGE);
    next++;
    pthread_cond_broadcast(&changed);
    /* All live until the program's end: what a thread that ends gives back of its stack is in no picture of the end. */
    for (;;)
        pthread_cond_wait(&changed, &turn);
}

static void threads(void)
{
    pthread_t ids[5];
    for (long number = 0; number < 5; number++)
        pthread_create(&ids[number], NULL, worker, (void *)number);
    pthread_mutex_lock(&turn);
    next = 0;
    pthread_cond_broadcast(&changed);
    while (next < 5)
        pthread_cond_wait(&changed, &turn);
    pthread_mutex_unlock(&turn);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "all";
    if (strcmp(mode, "threads"))
        one_thread();
    if (strcmp(mode, "heap"))
        threads();
    for (int at = 0; argc > 2 && at < count; at++)
        printf("%p\n", blocks[at]);
    return 0;
}
