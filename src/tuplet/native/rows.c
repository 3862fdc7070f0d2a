/* Attention over pairs in compressed sparse rows: called by attention/compiled.py.
 *
 * Row r has the pairs offsets[r] .. offsets[r + 1]; pair p is with key column[p] and, where there is a relation, has the number
 * table[kind[p]]. A vector is `size` numbers, one after another. A row belongs to one thread, so that two runs give the same bits.
 * Functions return 0.
 */
#include "real.h"

enum { SOFTMAX, RELU };               /* kernel */
enum { NONE, BIAS, SCALE, REWEIGHT }; /* relation */
enum { ROWS = 64 };                   /* that a thread works on at once, at most */

typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

/* Run a statement for the rows first .. last of all. Usual sizes are constants in it, so that the compiler keeps vectors in registers. */
#define IN_PORTIONS(statement) \
    const int64_t even = rows / (4 * threads) + 1, portion = even < ROWS ? even : ROWS; \
    _Pragma("omp parallel for schedule(dynamic) num_threads(threads)") \
    for (int64_t first = 0; first < rows; first += portion) { \
        const int64_t last = first + portion < rows ? first + portion : rows; \
        if (size == 8) { \
            enum { size = 8 }; \
            statement; \
        } else if (size == 16) { \
            enum { size = 16 }; \
            statement; \
        } else if (size == 32) { \
            enum { size = 32 }; \
            statement; \
        } else { \
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

INLINE real number(const real *table, const int32_t *kind, int32_t p, int relation) {
    return relation == NONE ? 1 : table[kind[p]];
}

/* Weights of the pairs, before a relation multiplies them, and the log-sum-exp of the scores of every row. */
INLINE void weigh(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *q,
    const real *k, const real *table, int kernel, int relation, real scale, real *weight, real *lse, int size
) {
    for (int64_t r = first; r < last; r++) {
        real most = -INFINITY;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            real score = dot(q + r * size, k + (int64_t)column[p] * size, size) * scale;
            real entry = number(table, kind, p, relation);
            score = relation == BIAS ? score + entry : relation == SCALE ? score * entry : score;
            weight[p] = score;
            most = score > most ? score : most;
        }
        lse[r] = kernel == RELU ? -INFINITY : most;
        if (kernel == SOFTMAX)
            for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) weight[p] -= most;
    }
    const int32_t end = offsets[last];
    if (kernel == RELU) {
        for (int32_t p = offsets[first]; p < end; p++) weight[p] = weight[p] <= 0 ? 0 : weight[p]; /* NaN stays */
        return;
    }
#pragma omp simd
    for (int32_t p = offsets[first]; p < end; p++) weight[p] = power(weight[p]);
    for (int64_t r = first; r < last; r++) {
        real sum = 0;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) sum += weight[p];
        real share = 1 / sum;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) weight[p] *= share;
        lse[r] += log(sum);
    }
}

/* Sums of vectors with the factors of a row's pairs: factor[p], or factor[pair[p]] where there is such a list. */
INLINE void sum_up(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *pair, const real *factor,
    const real *vectors, real *out, int size
) {
    for (int64_t r = first; r < last; r++) {
        real sum[size];
        for (int i = 0; i < size; i++) sum[i] = 0;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            const real *from = vectors + (int64_t)column[p] * size;
            real times = factor[pair ? pair[p] : p];
#pragma omp simd
            for (int i = 0; i < size; i++) sum[i] += times * from[i];
        }
        memcpy(out + r * size, sum, size * sizeof(real));
    }
}

/* Gradients of the dot products, and of the relation's numbers where there is a relation. */
INLINE void grade(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *grad,
    const real *grad_lse, const real *q, const real *k, const real *v, const real *table, const real *weight, int kernel,
    int relation, real scale, real *grad_dot, real *grad_entry, int size, int wide
) {
    for (int64_t r = first; r < last; r++) {
        real shift = grad_lse ? -grad_lse[r] : 0;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            real found = dot(grad + r * wide, v + (int64_t)column[p] * wide, wide);
            if (relation == REWEIGHT) {
                grad_entry[p] = found * weight[p];
                found *= table[kind[p]];
            }
            grad_dot[p] = found;
            shift += weight[p] * found;
        }
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            real found = kernel == RELU ? (weight[p] <= 0 ? grad_dot[p] * 0 : grad_dot[p]) : (grad_dot[p] - shift) * weight[p];
            if (relation == BIAS) grad_entry[p] = found;
            found *= scale;
            if (relation == SCALE) {
                grad_entry[p] = found * dot(q + r * size, k + (int64_t)column[p] * size, size);
                found *= table[kind[p]];
            }
            grad_dot[p] = found;
        }
    }
}

/* Messages (R, wide) and log-sum-exps (R,); weights (P,), and what multiplies values (P,), which differs where a relation reweights. */
int attend(
    int64_t threads, int64_t rows, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column, const int32_t *kind,
    const real *q, const real *k, const real *v, const real *table, int64_t kernel, int64_t relation, double scale, real *weight,
    real *factor, real *lse, real *out
) {
    IN_PORTIONS(
        weigh(first, last, offsets, column, kind, q, k, table, kernel, relation, scale, weight, lse, size);
        if (relation == REWEIGHT)
            for (int32_t p = offsets[first]; p < offsets[last]; p++) factor[p] = weight[p] * table[kind[p]];
        if (wide == size) sum_up(first, last, offsets, column, 0, factor, v, out, size);
        else sum_up(first, last, offsets, column, 0, factor, v, out, wide);
    )
    return 0;
}

/* Gradients of queries (R, size), of dot products (P,) and of the relation's numbers (P,). */
int attend_backward(
    int64_t threads, int64_t rows, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column, const int32_t *kind,
    const real *grad, const real *grad_lse, const real *q, const real *k, const real *v, const real *table,
    const real *weight, int64_t kernel, int64_t relation, double scale, real *grad_dot, real *grad_entry, real *grad_q
) {
#define GRADE(wide) \
    grade( \
        first, last, offsets, column, kind, grad, grad_lse, q, k, v, table, weight, kernel, relation, scale, grad_dot, \
        grad_entry, size, wide \
    )
    IN_PORTIONS(
        if (wide == size) GRADE(size);
        else GRADE(wide);
        sum_up(first, last, offsets, column, 0, grad_dot, k, grad_q, size);
    )
    return 0;
}

/* Sums of the pairs' numbers over each kind, added to what stands there. */
int sum_kinds(int64_t threads, int64_t pairs, const int32_t *kind, const real *numbers, real *sums) {
    (void)threads;
    for (int64_t p = 0; p < pairs; p++) sums[kind[p]] += numbers[p];
    return 0;
}

/* (R, size) and (R, wide) sums of two kinds of vectors, each with its own factors of the pairs that `pair` lists. */
int gather(
    int64_t threads, int64_t rows, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *pair, const real *factor, const real *vectors, real *out, const real *other_factor,
    const real *other_vectors, real *other_out
) {
    IN_PORTIONS(
        sum_up(first, last, offsets, column, pair, factor, vectors, out, size);
        if (wide == size) sum_up(first, last, offsets, column, pair, other_factor, other_vectors, other_out, size);
        else sum_up(first, last, offsets, column, pair, other_factor, other_vectors, other_out, wide);
    )
    return 0;
}
