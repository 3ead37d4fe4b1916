#include "table.h"
#include <stdio.h>
#include <stdlib.h>

void table_add(struct table *table, uint64_t key, double value) {
    if (table->used == table->room) {
        table->room = table->room ? 2 * table->room : 16;
        table->rows = realloc(table->rows, table->room * sizeof *table->rows);
        if (!table->rows) abort();
    }
    struct row *row = &table->rows[table->used++];
    row->key = key;
    row->value = value;
    snprintf(row->name, sizeof row->name, "row-%llu", (unsigned long long)key);
}

const struct row *table_find(const struct table *table, uint64_t key) {
    size_t low = 0, high = table->used;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->rows[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->used && table->rows[low].key == key ? &table->rows[low] : NULL;
}

void table_free(struct table *table) {
    free(table->rows);
    *table = (struct table){0};
}
