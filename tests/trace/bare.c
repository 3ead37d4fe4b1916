/* No libc, no loader: every reference of the program is written here. Compiled static, at fixed addresses. */
#define WORDS 65536
static volatile unsigned long array[WORDS] __attribute__((aligned(4096)));
static volatile unsigned char bytes[8192] __attribute__((aligned(4096)));

static void work(void)
{
    unsigned long sum = 0;
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < WORDS; at += 7)
            sum += array[at];
    for (int at = 0; at < WORDS; at += 64)
        array[at] = sum;
    for (int at = 0; at < 8192; at += 3)
        bytes[at]++;
    /* Across the end of a page. */
    *(volatile unsigned long *)((unsigned long)bytes + 4092) = sum;
    *(volatile unsigned short *)((unsigned long)bytes + 4095) = 1;
}

void _start(void)
{
    work();
    __asm__ volatile("syscall" ::"a"(231), "D"(7) : "rcx", "r11", "memory");
    __builtin_unreachable();
}
