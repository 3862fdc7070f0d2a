/* Products of matrices that stay in the cache: as many rows and columns at a time as registers have room for sums. */
#include "real.h"

/* Bytes of a vector register, and vectors of a row whose sums stay in registers: there are 32 registers, or 16. */
#if defined(__AVX512F__)
enum { BYTES = 64, VECTORS = 4 };
#elif defined(__AVX2__)
enum { BYTES = 32, VECTORS = 2 };
#elif defined(__aarch64__)
enum { BYTES = 16, VECTORS = 4 };
#else
enum { BYTES = 16, VECTORS = 2 };
#endif
enum { LANES = BYTES / sizeof(real), TALL = 6, DEEP = 128 };

typedef real lanes __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));

/* c += a b for `tall` rows and `vectors` vectors of columns; a number of a is a[row * down + k * along]. */
INLINE void tile(
    const int tall, const int vectors, int64_t columns, int64_t depth, const real *a, int64_t down, int64_t along,
    const real *b, real *c
) {
    lanes sum[TALL][VECTORS];
#pragma GCC unroll 8
    for (int m = 0; m < tall; m++)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; n++) sum[m][n] = *(const lanes *)(c + m * columns + n * LANES);
    for (int64_t k = 0; k < depth; k++) {
        lanes own[VECTORS];
#pragma GCC unroll 8
        for (int n = 0; n < vectors; n++) own[n] = *(const lanes *)(b + k * columns + n * LANES);
#pragma GCC unroll 8
        for (int m = 0; m < tall; m++)
#pragma GCC unroll 8
            for (int n = 0; n < vectors; n++) sum[m][n] += a[m * down + k * along] * own[n];
    }
#pragma GCC unroll 8
    for (int m = 0; m < tall; m++)
#pragma GCC unroll 8
        for (int n = 0; n < vectors; n++) *(lanes *)(c + m * columns + n * LANES) = sum[m][n];
}

/* The same for all rows. */
INLINE void strip(
    const int vectors, int64_t rows, int64_t columns, int64_t depth, const real *a, int64_t down, int64_t along,
    const real *b, real *c
) {
    int64_t m = 0;
    for (; m + TALL <= rows; m += TALL) tile(TALL, vectors, columns, depth, a + m * down, down, along, b, c + m * columns);
    for (; m < rows; m++) tile(1, vectors, columns, depth, a + m * down, down, along, b, c + m * columns);
}

/* c += a b, where a is (rows, depth), or (depth, rows) if it is `turned`, and b is (depth, columns). */
static inline void product(
    int64_t rows, int64_t columns, int64_t depth, const real *restrict a, int turned, const real *restrict b,
    real *restrict c
) {
    const int64_t down = turned ? 1 : depth, along = turned ? rows : 1;
    for (int64_t first = 0; first < depth; first += DEEP) {
        const int64_t deep = depth - first < DEEP ? depth - first : DEEP;
        const real *above = a + first * along, *beside = b + first * columns;
        int64_t n = 0;
        for (; n + VECTORS * LANES <= columns; n += VECTORS * LANES)
            strip(VECTORS, rows, columns, deep, above, down, along, beside + n, c + n);
        for (; n + LANES <= columns; n += LANES) strip(1, rows, columns, deep, above, down, along, beside + n, c + n);
        for (int64_t m = 0; m < rows; m++)
            for (int64_t i = n; i < columns; i++)
                for (int64_t k = 0; k < deep; k++) c[m * columns + i] += above[m * down + k * along] * beside[k * columns + i];
    }
}

/* The (columns, rows) of (rows, columns). */
static inline void turn(int64_t rows, int64_t columns, const real *restrict from, real *restrict into) {
    for (int64_t first = 0; first < rows; first += LANES)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = first; i < rows && i < first + LANES; i++) into[j * rows + i] = from[i * columns + j];
}
