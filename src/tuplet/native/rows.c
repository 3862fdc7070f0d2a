/* Attention over pairs in compressed sparse rows: called by attention/compiled.py.
 *
 * Row r has the pairs offsets[r] .. offsets[r + 1]; pair p is with key column[p] and, where there is a relation, has the numbers
 * table[kind[p] * heads ..]. Rows and keys have `heads` vectors each, and pairs as many weights, one for each head; a vector is `size`
 * numbers, one after another. A row belongs to one thread, so that two runs give the same bits. Sums over a long row are sums of sums, so
 * that rounding does not grow with its length. Functions return 0.
 */
#include "functions.h"

enum { SOFTMAX, RELU };               /* kernel */
enum { NONE, BIAS, SCALE, REWEIGHT }; /* relation */
enum { ROWS = 64 };                   /* that a thread works on at once, at most, counted for each head */
enum { PAIRS = 512 };                 /* that are added up one after another, at most */

/* The pairs p of row r in portions: `begin` is the first of one, and `end` follows on its last. A row without pairs has one. */
#define OF_ROW(r) \
    int64_t begin = offsets[r], end = begin + PAIRS < offsets[(r) + 1] ? begin + PAIRS : offsets[(r) + 1]; \
    begin == offsets[r] || begin < offsets[(r) + 1]; \
    begin += PAIRS, end = begin + PAIRS < offsets[(r) + 1] ? begin + PAIRS : offsets[(r) + 1]

typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));
typedef real eight __attribute__((vector_size(8 * sizeof(real)), aligned(sizeof(real)), may_alias));

/* Four numbers of two vectors, counted on from the first to the second. */
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define AT(v, w, i) ((i) < 4 ? (v)[(i) % 4] : (w)[(i) % 4])
#define PICK(a, b, i, j, k, l) ((four){AT(a, b, i), AT(a, b, j), AT(a, b, k), AT(a, b, l)})
#endif

/* Run a statement for the rows first .. last of all. Usual sizes are constants in it, so that the compiler keeps vectors in registers. */
#define WITH_SIZE(number, statement) \
    if (size == number && heads == 4) { \
        enum { size = number, heads = 4 }; \
        statement; \
    } else if (size == number && heads == 1) { \
        enum { size = number, heads = 1 }; \
        statement; \
    } else
#define IN_PORTIONS(statement) \
    const int64_t even = rows / (4 * threads) + 1, most = ROWS / heads + 1, portion = even < most ? even : most; \
    _Pragma("omp parallel for schedule(dynamic) num_threads(threads)") \
    for (int64_t first = 0; first < rows; first += portion) { \
        const int64_t last = first + portion < rows ? first + portion : rows; \
        WITH_SIZE(8, statement) WITH_SIZE(16, statement) WITH_SIZE(32, statement) { \
            statement; \
        } \
    }

/* A statement for every head h. */
#define EACH(statement) \
    if (heads == 1) { \
        enum { h = 0 }; \
        statement; \
    } else { \
        _Pragma("omp simd") \
        for (int h = 0; h < heads; h++) { \
            statement; \
        } \
    }

INLINE real dot(const real *a, const real *b, int size) {
    four sum = {0, 0, 0, 0};
    int i = 0;
    for (; i + 4 <= size; i += 4) sum += *(const four *)(a + i) * *(const four *)(b + i);
    real rest = 0;
    for (; i < size; i++) rest += a[i] * b[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]) + rest;
}

/* (heads,) dot products of the vectors of a row and a key; the sums of four heads are put together at once, in the order of `dot`. */
INLINE void dots(const real *a, const real *b, int heads, int size, real *out) {
    int h = 0;
    for (; h + 4 <= heads && size % 4 == 0; h += 4) {
        four sum[4];
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) {
            sum[n] = (four){0, 0, 0, 0};
#pragma GCC unroll 8
            for (int i = (h + n) * size; i < (h + n + 1) * size; i += 4) sum[n] += *(const four *)(a + i) * *(const four *)(b + i);
        }
        four one = PICK(sum[0], sum[1], 0, 4, 1, 5) + PICK(sum[0], sum[1], 2, 6, 3, 7);
        four two = PICK(sum[2], sum[3], 0, 4, 1, 5) + PICK(sum[2], sum[3], 2, 6, 3, 7);
        *(four *)(out + h) = PICK(one, two, 0, 1, 4, 5) + PICK(one, two, 2, 3, 6, 7);
    }
    for (; h < heads; h++) out[h] = dot(a + h * size, b + h * size, size);
}

/* Weights of the pairs, before a relation multiplies them, and the log-sum-exp of the scores of every row. */
INLINE void weigh(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *q,
    const real *k, const real *table, int kernel, int relation, real scale, real *weight, real *lse, int heads, int size
) {
    const int64_t wide = heads * size, begin = (int64_t)offsets[first] * heads, end = (int64_t)offsets[last] * heads;
    for (int64_t r = first; r < last; r++) {
        real most[heads], score[heads];
        EACH(most[h] = -INFINITY)
        for (int64_t p = offsets[r]; p < offsets[r + 1]; p++) {
            const real *entry = relation == NONE ? 0 : table + (int64_t)kind[p] * heads;
            dots(q + r * wide, k + column[p] * wide, heads, size, score);
            EACH(score[h] *= scale)
            if (relation == BIAS) EACH(score[h] += entry[h])
            if (relation == SCALE) EACH(score[h] *= entry[h])
            EACH(most[h] = score[h] > most[h] ? score[h] : most[h])
            EACH(weight[p * heads + h] = score[h])
        }
        EACH(lse[r * heads + h] = kernel == RELU ? -INFINITY : most[h])
        if (kernel == SOFTMAX)
            for (int64_t p = offsets[r]; p < offsets[r + 1]; p++) EACH(weight[p * heads + h] -= most[h])
    }
    if (kernel == RELU) {
        for (int64_t p = begin; p < end; p++) weight[p] = weight[p] <= 0 ? 0 : weight[p]; /* NaN stays */
        return;
    }
#pragma omp simd
    for (int64_t p = begin; p < end; p++) weight[p] = power(weight[p]);
    for (int64_t r = first; r < last; r++) {
        real sum[heads], part[heads];
        EACH(sum[h] = 0)
        for (OF_ROW(r)) {
            EACH(part[h] = 0)
            for (int64_t p = begin; p < end; p++) EACH(part[h] += weight[p * heads + h])
            EACH(sum[h] += part[h])
        }
        for (int h = 0; h < heads; h++) lse[r * heads + h] += sizeof(real) == 4 ? logf(sum[h]) : log(sum[h]);
        EACH(sum[h] = 1 / sum[h])
        for (int64_t p = offsets[r]; p < offsets[r + 1]; p++) EACH(weight[p * heads + h] *= sum[h])
    }
}

/* Sums of vectors with the factors of a row's pairs, those of pair p, or of pair[p] where there is such a list; added to what stands
 * there if there is `more`. */
INLINE void sum_up(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *pair, const real *factor,
    const real *vectors, int more, real *out, int heads, int size
) {
    const int64_t wide = heads * size;
    for (int64_t r = first; r < last; r++) for (OF_ROW(r)) {
        const int add = more || begin > offsets[r];
        if (size % 8 == 0 && wide <= 128) { /* sums stay in registers */
            eight sum[16];
#pragma GCC unroll 16
            for (int i = 0; i < wide / 8; i++) sum[i] = (eight){0};
            for (int64_t p = begin; p < end; p++) {
                const real *from = vectors + column[p] * wide, *times = factor + (pair ? pair[p] : p) * heads;
#pragma GCC unroll 16
                for (int i = 0; i < wide / 8; i++) sum[i] += times[i / (size / 8)] * *(const eight *)(from + 8 * i);
            }
#pragma GCC unroll 16
            for (int i = 0; i < wide / 8; i++) {
                if (add) sum[i] += *(const eight *)(out + r * wide + 8 * i);
                *(eight *)(out + r * wide + 8 * i) = sum[i];
            }
            continue;
        }
        real sum[wide];
        for (int i = 0; i < wide; i++) sum[i] = 0;
        for (int64_t p = begin; p < end; p++) {
            const real *from = vectors + column[p] * wide, *times = factor + (pair ? pair[p] : p) * heads;
            for (int h = 0; h < heads; h++)
#pragma omp simd
                for (int i = 0; i < size; i++) sum[h * size + i] += times[h] * from[h * size + i];
        }
        for (int i = 0; i < wide; i++) out[r * wide + i] = add ? out[r * wide + i] + sum[i] : sum[i];
    }
}

/* Gradients of the dot products, and of the relation's numbers where there is a relation; values have `wide` numbers. */
INLINE void grade(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *grad,
    const real *grad_lse, const real *q, const real *k, const real *v, const real *table, const real *weight, int kernel,
    int relation, real scale, real *grad_dot, real *grad_entry, int heads, int size, int wide
) {
    for (int64_t r = first; r < last; r++) {
        real shift[heads], part[heads], found[heads], product[heads];
        EACH(shift[h] = grad_lse ? -grad_lse[r * heads + h] : 0)
        for (OF_ROW(r)) {
            EACH(part[h] = 0)
            for (int64_t p = begin; p < end; p++) {
                const real *entry = relation == NONE ? 0 : table + (int64_t)kind[p] * heads, *share = weight + p * heads;
                dots(grad + r * heads * wide, v + (int64_t)column[p] * heads * wide, heads, wide, found);
                if (relation == REWEIGHT) EACH(grad_entry[p * heads + h] = found[h] * share[h])
                if (relation == REWEIGHT) EACH(found[h] *= entry[h])
                EACH(part[h] += share[h] * found[h])
                EACH(grad_dot[p * heads + h] = found[h])
            }
            EACH(shift[h] += part[h])
        }
        for (int64_t p = offsets[r]; p < offsets[r + 1]; p++) {
            const real *entry = relation == NONE ? 0 : table + (int64_t)kind[p] * heads, *share = weight + p * heads;
            EACH(found[h] = grad_dot[p * heads + h])
            if (kernel == RELU) EACH(found[h] = share[h] <= 0 ? found[h] * 0 : found[h])
            else EACH(found[h] = (found[h] - shift[h]) * share[h])
            if (relation == BIAS) EACH(grad_entry[p * heads + h] = found[h])
            EACH(found[h] *= scale)
            if (relation == SCALE) {
                dots(q + r * heads * size, k + (int64_t)column[p] * heads * size, heads, size, product);
                EACH(grad_entry[p * heads + h] = found[h] * product[h])
                EACH(found[h] *= entry[h])
            }
            EACH(grad_dot[p * heads + h] = found[h])
        }
    }
}

/* Messages (R, heads, wide), added to what stands there if there is `more`, and log-sum-exps (R, heads); weights (P, heads), and what multiplies values (P, heads), which differs where a
 * relation reweights. */
int attend(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *kind, const real *q, const real *k, const real *v, const real *table, int64_t kernel, int64_t relation,
    double scale, real *weight, real *factor, real *lse, int64_t more, real *out
) {
    IN_PORTIONS(
        weigh(first, last, offsets, column, kind, q, k, table, kernel, relation, scale, weight, lse, heads, size);
        if (relation == REWEIGHT)
            for (int64_t p = offsets[first]; p < offsets[last]; p++)
                for (int h = 0; h < heads; h++) factor[p * heads + h] = weight[p * heads + h] * table[(int64_t)kind[p] * heads + h];
        if (wide == size) sum_up(first, last, offsets, column, 0, factor, v, more, out, heads, size);
        else sum_up(first, last, offsets, column, 0, factor, v, more, out, heads, wide);
    )
    return 0;
}

/* Gradients of queries (R, heads, size), added to what stands there if there is `more`, of dot products (P, heads) and of the relation's numbers (P, heads). */
int attend_backward(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *kind, const real *grad, const real *grad_lse, const real *q, const real *k, const real *v, const real *table,
    const real *weight, int64_t kernel, int64_t relation, double scale, real *grad_dot, real *grad_entry, int64_t more, real *grad_q
) {
#define GRADE(wide) \
    grade( \
        first, last, offsets, column, kind, grad, grad_lse, q, k, v, table, weight, kernel, relation, scale, grad_dot, \
        grad_entry, heads, size, wide \
    )
    IN_PORTIONS(
        if (wide == size) GRADE(size);
        else GRADE(wide);
        sum_up(first, last, offsets, column, 0, grad_dot, k, more, grad_q, heads, size);
    )
    return 0;
}

/* Sums of the pairs' numbers over each kind, added to what stands there. */
int sum_kinds(int64_t threads, int64_t pairs, int64_t heads, const int32_t *kind, const real *numbers, real *sums) {
    (void)threads;
    for (int64_t p = 0; p < pairs; p++)
        for (int64_t h = 0; h < heads; h++) sums[kind[p] * heads + h] += numbers[p * heads + h];
    return 0;
}

/* (R, heads, size) and (R, heads, wide) sums of two kinds of vectors, each with its own factors of the pairs that `pair` lists;
 * added to what stands there if there is `more`. */
int gather(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *pair, const real *factor, const real *vectors, real *out, const real *other_factor,
    const real *other_vectors, real *other_out, int64_t more
) {
    IN_PORTIONS(
        sum_up(first, last, offsets, column, pair, factor, vectors, more, out, heads, size);
        if (wide == size) sum_up(first, last, offsets, column, pair, other_factor, other_vectors, more, other_out, heads, size);
        else sum_up(first, last, offsets, column, pair, other_factor, other_vectors, more, other_out, heads, wide);
    )
    return 0;
}
