/* A feed-forward W2 φ(W1 x + b1) of some tokens, forward and backward. W1 is (inner, width), W2 (outputs, inner). */
#include "portions.h"

/* The share of a standard normal distribution below x, and its density there. A float's share is the density times a polynomial in
 * 1 / (1 + 0.4 |x|), fitted to within 1e-9: what is left is rounding. */
INLINE void normal(real x, real *below, real *density) {
    real bell = power(-x * x / 2);
    *density = bell * (real)0.3989422804014327;
    if (sizeof(real) == 8) {
        *below = erfc(-x * 0.7071067811865476) / 2;
        return;
    }
    float t = 1 / (1 + 0.4f * fabsf((float)x));
    float p = -0.02357978374f;
    p = p * t + 0.1183624789f;
    p = p * t - 0.194693327f;
    p = p * t + 0.03682920709f;
    p = p * t + 0.1397992969f;
    p = p * t + 0.09407308698f;
    p = p * t + 0.1708447784f;
    p = p * t + 0.1583642662f;
    float tail = bell * p * t;
    *below = x > 0 ? 1 - tail : tail;
}

/* GELU or ReLU. */
INLINE void activate(int64_t count, int gelu, const real *restrict x, real *restrict out) {
    if (gelu)
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            real below, density;
            normal(x[i], &below, &density);
            out[i] = x[i] * below;
        }
    else
#pragma omp simd
        for (int64_t i = 0; i < count; i++) out[i] = x[i] <= 0 ? 0 : x[i]; /* NaN stays */
}

/* The same once more, and the gradient of x in place of that of what came out. */
INLINE void activate_backward(int64_t count, int gelu, const real *restrict x, real *restrict grad, real *restrict out) {
    if (gelu)
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            real below, density;
            normal(x[i], &below, &density);
            out[i] = x[i] * below;
            grad[i] *= below + x[i] * density;
        }
    else
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            out[i] = x[i] <= 0 ? 0 : x[i]; /* NaN stays */
            grad[i] = x[i] <= 0 ? grad[i] * 0 : grad[i];
        }
}

/* y += W2 φ(hidden) with hidden = W1 x + b1; `turned` are W1 and W2, each transposed; `after` has room for φ(hidden). */
static inline void feed_some(
    int64_t rows, int64_t width, int64_t inner, int64_t outputs, int gelu, const real *x, const real *turned,
    const real *b1, real *hidden, real *after, real *y
) {
    spread(rows, inner, b1, hidden);
    product(rows, inner, width, x, 0, turned, hidden);
    activate(rows * inner, gelu, hidden, after);
    product(rows, outputs, inner, after, 0, turned + width * inner, y);
}

INLINE void turn_both(
    int64_t width, int64_t inner, int64_t outputs, const real *w1, const real *w2, real *turned
) {
    turn(inner, width, w1, turned);
    turn(outputs, inner, w2, turned + width * inner);
}

/* Adds to the gradients of x, and of W1, b1 and W2, which stand in `sums` in this order; `room` is for twice as many rows as `inner`. */
static inline void feed_some_backward(
    int64_t rows, int64_t width, int64_t inner, int64_t outputs, int gelu, const real *grad, const real *x,
    const real *hidden, const real *w1, const real *w2, real *room, real *grad_x, real *sums
) {
    real *below = room, *after = room + rows * inner;
    memset(below, 0, rows * inner * sizeof(real));
    product(rows, inner, outputs, grad, 0, w2, below);
    activate_backward(rows * inner, gelu, hidden, below, after);
    product(inner, width, rows, below, 1, x, sums);
    add_rows(rows, inner, below, sums + inner * width);
    product(outputs, inner, rows, grad, 1, after, sums + inner * width + inner);
    product(rows, width, inner, below, 0, w1, grad_x);
}
