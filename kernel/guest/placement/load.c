/* Under load: modules that come and go, threads that change hints, counts and free pages that add up. */
#include "tests.h"

#include <pthread.h>
#include <time.h>

static int unload(const char *module)
{
    return syscall(SYS_delete_module, module, O_NONBLOCK) == 0 ? 0 : errno;
}

static int load(const char *module)
{
    char path[64];
    int file, result;
    snprintf(path, sizeof path, "/modules/%s.ko", module);
    file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0, "%s", path);
    result = syscall(SYS_finit_module, file, "", 0) == 0 ? 0 : errno;
    close(file);
    return result;
}

void test_modules(void)
{
    struct page_hint asked = hint("random", 16);
    CHILD({
        int file = hints_of(0, O_RDWR);
        set(PAGE_HINTS_SET_DEFAULT, asked);
        touch(map(64), 64);
        CHECK(unload("placement_random") == EWOULDBLOCK);
        EXPECT(PAGE_HINTS_CLEAR, (&(struct page_hint_range){0, 0}), 0);
        usleep(100000);
        CHECK(unload("placement_random") == 0);
        EXPECT(PAGE_HINTS_SET_DEFAULT, &asked, ENOENT);
        CHECK(statistic("random", "placed") == -1);
    });
    CHECK(load("placement_random") == 0);
    CHECK(load("placement_random") == EEXIST);
    set(PAGE_HINTS_SET_DEFAULT, asked);
    CHECK(statistic("random", "placed") >= 0);
}

/* Two counts of the same: of all processes by strategy, and of this one. */
void test_counts_add_up(void)
{
    long placed = statistic("page-coloring", "placed"), scanned = statistic("page-coloring", "scanned");
    volatile char *memory = map(1000);
    set(PAGE_HINTS_SET_RANGE, ranged(hint("page-coloring", 16), memory, 1000));
    touch(memory, 1000);
    CHECK(counters().placed == 1000 && fallen(counters()) == 0);
    CHECK(statistic("page-coloring", "placed") - placed == 1000);
    CHECK(statistic("page-coloring", "scanned") - scanned >= 1000);
    CHECK(statistic("page-coloring", "longest") <= 4096 * 2);
}

static volatile int stop;

/* Changes the defaults of its process, and forgets ranges, until the end. */
static void *changer(void *unused)
{
    const char *names[] = {"page-coloring", "bin-hopping"};
    int file = hints_of(0, O_RDWR);
    for (unsigned round = 0; !stop; round++) {
        struct page_hint made = hint(names[round % 2], 1 + round % 64);
        made.kinds = round % 16;
        command(file, PAGE_HINTS_SET_DEFAULT, &made);
    }
    close(file);
    return unused;
}

static void *toucher(void *memory)
{
    while (!stop) {
        touch(memory, 256);
        madvise(memory, 256 * PAGE, MADV_DONTNEED);
    }
    return NULL;
}

/* Threads that fault and one that changes the hints under them. */
static void worker(int seed)
{
    pthread_t threads[3];
    const char *names[] = {"page-coloring", "bin-hopping", "random"};
    volatile char *memory = map(256);
    int file = hints_of(0, O_RDWR);
    time_t end = time(NULL) + 20;
    srandom((unsigned)seed);
    for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, toucher, (void *)memory);
    pthread_create(&threads[2], NULL, changer, NULL);
    while (time(NULL) < end) {
        struct page_hint made = hint(names[random() % 3], 1 + (unsigned)random() % 64);
        struct page_hint_range all = {0, 0};
        size_t from = (size_t)random() % 256;
        if (random() % 8 == 0)
            CHECK(!command(file, PAGE_HINTS_CLEAR, &all));
        else if (random() % 3 == 0) {
            made.kinds = (unsigned)random() % 16;
            command(file, random() % 4 ? PAGE_HINTS_SET_DEFAULT : PAGE_HINTS_SET_FILE, &made);
        } else {
            made = ranged(made, memory + from * PAGE, 1 + (size_t)random() % (256 - from));
            command(file, PAGE_HINTS_SET_RANGE, &made);
        }
        if (random() % 8 == 0) {
            int child = fork(), status;
            if (!child) {
                touch(memory, 256);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", (unsigned)status);
        }
        if (random() % 16 == 0) {
            /* The image takes its hints from an address space whose hints this thread's sibling changes. */
            int child = vfork(), status;
            if (!child) {
                execl("/bin/placement", "/bin/placement", "exec-hinted", NULL);
                _exit(99);
            }
            CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) <= 5, "%x",
                  (unsigned)status);
        }
    }
    stop = 1;
    for (int at = 0; at < 3; at++) pthread_join(threads[at], NULL);
}

/* Nobody has kept a reference: a module that no process uses goes. */
static void check_unused(const char *module)
{
    int error = EWOULDBLOCK;
    for (int round = 0; round < 100 && error; round++) {
        error = unload(module);
        if (error) usleep(50000);
    }
    CHECK(error == 0, "%s: error %d", module, error);
    CHECK(load(module) == 0);
}

void test_stress(void)
{
    int children[4], status, removed = 0;
    time_t end;
    long before;
    shrink_slabs();
    before = free_pages_everywhere();
    write_file("/proc/sys/vm/page_hints_exec", "1");
    for (int at = 0; at < 4; at++) {
        children[at] = fork();
        if (!children[at]) {
            worker(at);
            _exit(0);
        }
    }
    for (end = time(NULL) + 20; time(NULL) < end; usleep(20000))
        if (unload("placement_random") == 0) {
            removed++;
            CHECK(load("placement_random") == 0);
        }
    for (int at = 0; at < 4; at++)
        CHECK(waitpid(children[at], &status, 0) == children[at] && status == 0, "%x", (unsigned)status);
    write_file("/proc/sys/vm/page_hints_exec", "0");
    printf("the module went and came %d times\n", removed);
    check_unused("placement_random");
    check_unused("placement_page_coloring");
    check_free_again(before);
}

/* Free pages by the lists and by the counters, zone by zone, while nothing runs. */
void test_free_pages_add_up(void)
{
    for (int attempt = 0;; attempt++) {
        long listed = 0, counted;
        char line[512];
        FILE *file;
        counted = free_pages();
        file = fopen("/proc/buddyinfo", "re");
        while (fgets(line, sizeof line, file)) {
            char *at = strstr(line, "zone");
            int order = 0;
            strtok(at, " ");
            strtok(NULL, " ");
            for (char *word; (word = strtok(NULL, " \n")) != NULL; order++) listed += atol(word) << order;
        }
        fclose(file);
        if (listed == counted && counted == free_pages()) return;
        /* What is freed under RCU, and what the reading itself takes, makes some attempts vain. */
        CHECK(attempt < 500, "%ld on the lists, %ld counted", listed, counted);
        usleep(20000);
    }
}

/* A kernel without the series, or with nothing asked of it. */
void test_stock(void)
{
    CHECK(hints_of(0, O_RDONLY) < 0 && errno == ENOENT);
    CHECK(access("/proc/page_color", F_OK) < 0);
    test_free_pages_add_up();
}
