/* Attention over pairs in compressed sparse rows on a CPU: compiled, called and explained by native.py, for REAL = float and REAL = double.
 *
 * Row r has the pairs offsets[r] .. offsets[r + 1], and pair p is with the vector column[p]. A vector is `size` numbers, one after another.
 * A row belongs to one thread, so that two runs give the same bits.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SOFTMAX, RELU };     /* kernel */
enum { NONE, BIAS, SCALE }; /* relation */
enum { ROWS = 64 };         /* that a thread works on at once */

typedef REAL real;
typedef real four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Call for the rows first .. last of all. Usual sizes are constants, so that the compiler keeps vectors in registers. */
#define IN_PORTIONS(call) \
    _Pragma("omp parallel for schedule(dynamic) num_threads(threads)") \
    for (int64_t first = 0; first < rows; first += ROWS) { \
        int64_t last = first + ROWS < rows ? first + ROWS : rows; \
        switch (size) { \
            case 4: call(4); break; \
            case 8: call(8); break; \
            case 16: call(16); break; \
            case 32: call(32); break; \
            default: call(size); \
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

/* exp(x) for x <= 0: of a float in a form that compilers make vectors of, to about a unit in the last place and 0 where it would be
 * subnormal; 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. */
INLINE real power(real x) {
    if (sizeof(real) == 8) return exp(x);
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    int32_t bits = ((int32_t)(x < -87 ? 0 : n) + 127) << 23;
    float factor;
    memcpy(&factor, &bits, 4);
    return x < -87 ? 0 : p * factor;
}

INLINE real score(real product, int relation, real entry, real scale) {
    real raw = product * scale;
    return relation == BIAS ? raw + entry : relation == SCALE ? raw * entry : raw;
}

INLINE void weigh_rows(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *q,
    const real *k, const real *table, int kernel, int relation, real scale, real *weight, real *lse, int size
) {
    for (int64_t r = first; r < last; r++) {
        real most = -INFINITY;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            real product = dot(q + r * size, k + (int64_t)column[p] * size, size);
            real found = score(product, relation, relation == NONE ? 0 : table[kind[p]], scale);
            weight[p] = found;
            most = found > most ? found : most;
        }
        lse[r] = kernel == RELU ? -INFINITY : most;
        if (kernel == SOFTMAX)
            for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) weight[p] -= most;
    }
    if (kernel == RELU) {
        for (int32_t p = offsets[first]; p < offsets[last]; p++) weight[p] = weight[p] > 0 ? weight[p] : 0;
        return;
    }
    int32_t end = offsets[last];
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

/* Weights (P,) of the pairs and log-sum-exps (R,) of the scores of every row. */
void weigh(
    int threads, int64_t rows, const int32_t *offsets, const int32_t *column, const int32_t *kind, const real *q,
    const real *k, const real *table, int kernel, int relation, double scale, real *weight, real *lse, int size
) {
#define CALL(n) \
    weigh_rows(first, last, offsets, column, kind, q, k, table, kernel, relation, scale, weight, lse, n)
    IN_PORTIONS(CALL)
#undef CALL
}

INLINE void gather_rows(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const int32_t *pair, const real *weight,
    const real *vectors, real *out, int size
) {
    for (int64_t r = first; r < last; r++) {
        real sum[size];
        for (int i = 0; i < size; i++) sum[i] = 0;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            const real *from = vectors + (int64_t)column[p] * size;
            real factor = weight[pair ? pair[p] : p];
#pragma omp simd
            for (int i = 0; i < size; i++) sum[i] += factor * from[i];
        }
        memcpy(out + r * size, sum, size * sizeof(real));
    }
}

/* (R, size) sums of vectors with the weights of a row's pairs, which are those of pair[p] where there is such a list. */
void gather(
    int threads, int64_t rows, const int32_t *offsets, const int32_t *column, const int32_t *pair, const real *weight,
    const real *vectors, real *out, int size
) {
#define CALL(n) gather_rows(first, last, offsets, column, pair, weight, vectors, out, n)
    IN_PORTIONS(CALL)
#undef CALL
}

INLINE void grade_rows(
    int64_t first, int64_t last, const int32_t *offsets, const int32_t *column, const real *grad, const real *v,
    const real *weight, const real *factor, const real *grad_lse, int kernel, real *grad_weight, real *grad_score,
    int size
) {
    for (int64_t r = first; r < last; r++) {
        real shift = grad_lse ? -grad_lse[r] : 0;
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++) {
            real found = dot(grad + r * size, v + (int64_t)column[p] * size, size);
            if (grad_weight) grad_weight[p] = found;
            grad_score[p] = factor ? found * factor[p] : found;
            shift += weight[p] * grad_score[p];
        }
        for (int32_t p = offsets[r]; p < offsets[r + 1]; p++)
            grad_score[p] = kernel == RELU ? (weight[p] > 0 ? grad_score[p] : 0) : (grad_score[p] - shift) * weight[p];
    }
}

/* (P,) gradients of the scores and, where asked for, of the weights; `factor` is what multiplies weights after the softmax. */
void grade(
    int threads, int64_t rows, const int32_t *offsets, const int32_t *column, const real *grad, const real *v,
    const real *weight, const real *factor, const real *grad_lse, int kernel, real *grad_weight, real *grad_score,
    int size
) {
#define CALL(n) \
    grade_rows(first, last, offsets, column, grad, v, weight, factor, grad_lse, kernel, grad_weight, grad_score, n)
    IN_PORTIONS(CALL)
#undef CALL
}
