/* What lies between the products of a layer: residuals, batch norms and activations of many tokens. Called by tokens.py.
 *
 * Tokens are rows of `width` numbers. Sums over tokens are those of portions, added up in order: threads do not change them.
 */
#include "real.h"

enum { PORTION = 256 }; /* rows; few enough for the cache of a core */

#define FOR_PORTIONS \
    _Pragma("omp parallel for schedule(static) num_threads(threads)") \
    for (int64_t first = 0; first < rows; first += PORTION)
#define LAST (first + PORTION < rows ? first + PORTION : rows)

/* x += y, unless y is null, and the mean and the variance of every column; `shares` has room for two rows a portion. */
void add_and_measure(
    int64_t threads, int64_t rows, int64_t width, real *restrict x, const real *restrict y, real *restrict shares,
    real *restrict mean, real *restrict variance
) {
    FOR_PORTIONS {
        real *restrict middle = shares + first / PORTION * 2 * width, *restrict spread = middle + width;
        memset(middle, 0, 2 * width * sizeof(real));
        for (int64_t r = first; r < LAST; r++) {
            real *restrict own = x + r * width;
            if (y)
#pragma omp simd
                for (int64_t i = 0; i < width; i++) own[i] += y[r * width + i];
#pragma omp simd
            for (int64_t i = 0; i < width; i++) middle[i] += own[i];
        }
        for (int64_t i = 0; i < width; i++) middle[i] /= LAST - first;
        for (int64_t r = first; r < LAST; r++) {
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                real off = x[r * width + i] - middle[i];
                spread[i] += off * off;
            }
        }
    }
    for (int64_t i = 0; i < width; i++) {
        double sum = 0, squares = 0;
        for (int64_t first = 0; first < rows; first += PORTION)
            sum += (double)shares[first / PORTION * 2 * width + i] * (LAST - first);
        for (int64_t first = 0; first < rows; first += PORTION) {
            const real *share = shares + first / PORTION * 2 * width + i;
            double off = share[0] - sum / rows;
            squares += share[width] + off * off * (LAST - first);
        }
        mean[i] = sum / rows;
        variance[i] = squares / rows;
    }
}

/* (x - mean) * factor + shift, column by column. */
void normalise(
    int64_t threads, int64_t rows, int64_t width, const real *restrict x, const real *restrict mean,
    const real *restrict factor, const real *restrict shift, real *restrict out
) {
    FOR_PORTIONS
    for (int64_t r = first; r < LAST; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            out[r * width + i] = (x[r * width + i] - mean[i]) * factor[i] + shift[i];
}

/* Gradients of what was normalised, of weight and of bias, from grad + more (unless more is null); scale is one over the deviation. */
void normalise_backward(
    int64_t threads, int64_t rows, int64_t width, const real *restrict grad, const real *restrict more,
    const real *restrict x, const real *restrict mean, const real *restrict scale, const real *restrict weight,
    real *restrict shares, real *restrict grad_x, real *restrict grad_weight, real *restrict grad_bias
) {
    FOR_PORTIONS {
        real *restrict sum = shares + first / PORTION * 2 * width, *restrict product = sum + width;
        memset(sum, 0, 2 * width * sizeof(real));
        for (int64_t r = first; r < LAST; r++) {
            const int64_t at = r * width;
            if (more)
#pragma omp simd
                for (int64_t i = 0; i < width; i++) grad_x[at + i] = grad[at + i] + more[at + i];
            const real *own = more ? grad_x + at : grad + at;
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                sum[i] += own[i];
                product[i] += own[i] * (x[at + i] - mean[i]);
            }
        }
    }
    real factor[width], middle[width], slope[width];
    for (int64_t i = 0; i < width; i++) {
        double sum = 0, product = 0;
        for (int64_t first = 0; first < rows; first += PORTION) {
            sum += shares[first / PORTION * 2 * width + i];
            product += shares[first / PORTION * 2 * width + width + i];
        }
        grad_bias[i] = sum;
        grad_weight[i] = product * scale[i];
        factor[i] = weight[i] * scale[i];
        middle[i] = sum / rows;
        slope[i] = product / rows * scale[i] * scale[i];
    }
    const real *own = more ? grad_x : grad;
    FOR_PORTIONS
    for (int64_t r = first; r < LAST; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = r * width + i;
            grad_x[at] = factor[i] * (own[at] - middle[i] - (x[at] - mean[i]) * slope[i]);
        }
}

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

/* x += bias, and GELU or ReLU of it. */
void activate(
    int64_t threads, int64_t rows, int64_t width, real *restrict x, const real *restrict bias, int64_t gelu,
    real *restrict out
) {
    FOR_PORTIONS
    for (int64_t r = first; r < LAST; r++) {
        real *restrict own = x + r * width;
        if (gelu)
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                real below, density;
                own[i] += bias[i];
                normal(own[i], &below, &density);
                out[r * width + i] = own[i] * below;
            }
        else
#pragma omp simd
            for (int64_t i = 0; i < width; i++) {
                own[i] += bias[i];
                out[r * width + i] = own[i] <= 0 ? 0 : own[i]; /* NaN stays */
            }
    }
}

/* GELU or ReLU of x once more, and the gradient of x in place of that of what came out. */
void activate_backward(
    int64_t threads, int64_t rows, int64_t width, const real *restrict x, int64_t gelu, real *restrict grad,
    real *restrict out
) {
    FOR_PORTIONS {
        const int64_t end = LAST * width;
        if (gelu)
#pragma omp simd
            for (int64_t i = first * width; i < end; i++) {
                real below, density;
                normal(x[i], &below, &density);
                out[i] = x[i] * below;
                grad[i] *= below + x[i] * density;
            }
        else
#pragma omp simd
            for (int64_t i = first * width; i < end; i++) {
                out[i] = x[i] <= 0 ? 0 : x[i]; /* NaN stays */
                grad[i] = x[i] <= 0 ? grad[i] * 0 : grad[i];
            }
    }
}
