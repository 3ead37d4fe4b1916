#include "table.h"
#include <stdlib.h>

static int by_key(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

void table_sort(struct table *table) { qsort(table->rows, table->used, sizeof *table->rows, by_key); }
