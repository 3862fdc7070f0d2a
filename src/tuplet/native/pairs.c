/* Pairs of compressed sparse rows, listed, and numbers in order: called by attention/listing.py and native/order.py. Functions return 1
 * where there is no memory, else 0. */
#include <stdlib.h>

#include "real.h"

/* Head h of token t sees the groups slots[h * width] .. slots[(h + 1) * width - 1], one after another. Of group g token t has the keys
 * base[g][t] + step[g][t] * target[g][first[g][t] + i] for i < count[g][t], counted from first_keys[g]; kinds[g] has the types of
 * the same places, counted from first_types[g], and is 0 where all are the first. */
int list_pairs(
    int64_t threads, int64_t tokens, int64_t heads, int64_t width, const int64_t *slots, const int64_t **first,
    const int64_t **count, const int64_t **base, const int64_t **step, const int64_t **target, const int64_t **kinds,
    const int64_t *first_keys, const int64_t *first_types, int32_t *offsets, int32_t *row, int32_t *column, int32_t *kind
) {
    int64_t pair = 0;
    offsets[0] = 0;
    for (int64_t r = 0; r < tokens * heads; r++) {
        const int64_t t = r / heads, h = r % heads;
        for (int64_t slot = h * width; slot < (h + 1) * width; slot++) {
            const int64_t g = slots[slot], from = first[g][t];
            for (int64_t i = from; i < from + count[g][t]; i++, pair++) {
                row[pair] = r;
                column[pair] = (first_keys[g] + base[g][t] + step[g][t] * target[g][i]) * heads + h;
                kind[pair] = (first_types[g] + (kinds[g] ? kinds[g][i] : 0)) * heads + h;
            }
        }
        offsets[r + 1] = pair;
    }
    return 0;
}

/* Numbers below `count` in order, equal ones as they stand: where each begins, and the old places. */
int count_out(int64_t threads, int64_t many, int64_t count, const int32_t *numbers, int32_t *begin, int32_t *place) {
    int32_t *next = malloc((count + 1) * sizeof(int32_t));
    if (!next) return 1;
    memset(begin, 0, (count + 1) * sizeof(int32_t));
    for (int64_t i = 0; i < many; i++) begin[numbers[i] + 1]++;
    for (int64_t c = 0; c < count; c++) begin[c + 1] += begin[c];
    memcpy(next, begin, count * sizeof(int32_t));
    for (int64_t i = 0; i < many; i++) place[next[numbers[i]]++] = i;
    free(next);
    return 0;
}
