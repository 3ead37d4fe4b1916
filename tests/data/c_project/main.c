#include "table.h"
#include <stdio.h>

int main(void) {
    struct table table = {0};
    uint64_t x = 1;
    for (int i = 0; i < 300000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        table_add(&table, x >> 20, (double)i / 7);
    }
    table_sort(&table);
    double sum = 0;
    for (size_t i = 0; i < table.used; i += 1000) {
        const struct row *row = table_find(&table, table.rows[i].key);
        if (!row) return 1;
        sum += row->value;
    }
    printf("%zu rows, first %s, sum %.6f\n", table.used, table.rows[0].name, sum);
    table_free(&table);
    return 0;
}
