/* matrix N: a product of two N x N matrices of doubles, three arrays in turn. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 400;
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = calloc(n * n, sizeof *c);
    if (!a || !b || !c)
        return 1;
    for (long i = 0; i < n * n; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }
    for (long i = 0; i < n; i++)
        for (long k = 0; k < n; k++)
            for (long j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
    printf("%g\n", c[n]);
    return 0;
}
