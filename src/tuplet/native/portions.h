/* Many tokens, some at a time: what is done with some stays in the cache. Sums over tokens are those of portions, or of chunks of
 * portions, added up in order, so that the number of threads changes no bit. */
#include <omp.h>
#include <stdlib.h>

#include "products.h"

enum { PORTION = 96, CHUNKS = 32 }; /* tokens of a portion, a multiple of TALL; chunks, at most */

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define FOR_ALL _Pragma("omp for schedule(dynamic)")
/* Loops that every thread of a parallel region comes to: over portions, over chunks, and over the portions of one. */
#define FOR_PORTIONS FOR_ALL for (int64_t first = 0; first < rows; first += PORTION)
#define FOR_CHUNKS FOR_ALL for (int64_t chunk = 0; chunk < chunks_of(rows); chunk++)
#define FOR_OWN \
    for (int64_t first = chunk * chunk_of(rows); first < SMALLER((chunk + 1) * chunk_of(rows), rows); first += PORTION)
#define SOME SMALLER(PORTION, rows - first)

INLINE int64_t portions_of(int64_t rows) { return (rows + PORTION - 1) / PORTION; }

/* Threads that have something to do. */
INLINE int team(int64_t threads, int64_t rows) { return SMALLER(threads, LARGER(1, portions_of(rows))); }

/* Rows of a chunk, three portions at least since each chunk has sums of its own, and how many chunks there are. */
INLINE int64_t chunk_of(int64_t rows) { return LARGER(3, (portions_of(rows) + CHUNKS - 1) / CHUNKS) * PORTION; }
INLINE int64_t chunks_of(int64_t rows) { return rows ? (rows + chunk_of(rows) - 1) / chunk_of(rows) : 0; }

/* sums[i] of all chunks, by all threads of a parallel region. */
INLINE void add_chunks(int64_t rows, int64_t numbers, const real *restrict shares, real *restrict sums) {
    _Pragma("omp for")
    for (int64_t from = 0; from < numbers; from += 1024) {
        const int64_t to = SMALLER(from + 1024, numbers);
        memset(sums + from, 0, (to - from) * sizeof(real));
        for (int64_t chunk = 0; chunk < chunks_of(rows); chunk++)
#pragma omp simd
            for (int64_t i = from; i < to; i++) sums[i] += shares[chunk * numbers + i];
    }
}

/* The same numbers in every row. */
INLINE void spread(int64_t rows, int64_t width, const real *restrict numbers, real *restrict into) {
    for (int64_t r = 0; r < rows; r++) memcpy(into + r * width, numbers, width * sizeof(real));
}

/* sums += all rows. */
INLINE void add_rows(int64_t rows, int64_t width, const real *restrict x, real *restrict sums) {
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) sums[i] += x[r * width + i];
}
