/* What follows on attention in a post-norm layer in training: s = x + Wo m, y = BN(s), t = y + W2 φ(W1 y + b1), z = BN(t). Called by
 * models/post_norm_cpu.py. Functions return 1 where there is no memory, else 0. */
#include "feed.h"
#include "functions.h"

/* The mean of every column of some rows, and the sum of squares around it. */
INLINE void measure(int64_t rows, int64_t width, const real *restrict x, real *restrict middle, real *restrict squares) {
    memset(middle, 0, width * sizeof(real));
    memset(squares, 0, width * sizeof(real));
    add_rows(rows, width, x, middle);
    for (int64_t i = 0; i < width; i++) middle[i] /= rows;
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            real off = x[r * width + i] - middle[i];
            squares[i] += off * off;
        }
}

/* Mean and variance of all rows, from those of portions. */
INLINE void put_together(int64_t rows, int64_t width, const real *shares, real *restrict mean, real *restrict variance) {
    for (int64_t i = 0; i < width; i++) {
        double sum = 0, squares = 0;
        for (int64_t first = 0; first < rows; first += PORTION) sum += (double)shares[first / PORTION * 2 * width + i] * SOME;
        for (int64_t first = 0; first < rows; first += PORTION) {
            const real *share = shares + first / PORTION * 2 * width + i;
            double off = share[0] - sum / rows;
            squares += share[width] + off * off * SOME;
        }
        mean[i] = sum / rows;
        variance[i] = squares / rows;
    }
}

/* A batch norm with mean and variance, which stand one after the other. */
INLINE void normalise(
    int64_t rows, int64_t width, const real *restrict x, const real *restrict found, const real *restrict weight,
    const real *restrict bias, double eps, real *restrict out
) {
    real factor[width];
    for (int64_t i = 0; i < width; i++) factor[i] = weight[i] / (real)sqrt(found[width + i] + eps);
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            out[r * width + i] = (x[r * width + i] - found[i]) * factor[i] + bias[i];
}

/* Over some rows, the sum of gradients and that of their products with what was normalised, less its mean. */
INLINE void compare(
    int64_t rows, int64_t width, const real *restrict grad, const real *restrict x, const real *restrict mean,
    real *restrict sum, real *restrict products
) {
    memset(sum, 0, width * sizeof(real));
    memset(products, 0, width * sizeof(real));
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            sum[i] += grad[r * width + i];
            products[i] += grad[r * width + i] * (x[r * width + i] - mean[i]);
        }
}

/* From those of portions: gradients of weight and bias, one after the other, and the three numbers of each column with which the gradient
 * of a row is factor (grad - middle - (x - mean) slope). */
INLINE void put_gradients_together(
    int64_t rows, int64_t width, const real *shares, const real *found, const real *weight, double eps,
    real *restrict grads, real *restrict numbers
) {
    for (int64_t i = 0; i < width; i++) {
        double sum = 0, products = 0, scale = 1 / sqrt(found[width + i] + eps);
        for (int64_t first = 0; first < rows; first += PORTION) {
            sum += shares[first / PORTION * 2 * width + i];
            products += shares[first / PORTION * 2 * width + width + i];
        }
        grads[i] = products * scale;
        grads[width + i] = sum;
        numbers[i] = weight[i] * scale;
        numbers[width + i] = sum / rows;
        numbers[2 * width + i] = products / rows * scale * scale;
    }
}

INLINE void normalise_backward(
    int64_t rows, int64_t width, const real *grad, const real *restrict x, const real *restrict mean,
    const real *restrict numbers, real *out
) {
    const real *factor = numbers, *middle = numbers + width, *slope = numbers + 2 * width;
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = r * width + i;
            out[at] = factor[i] * (grad[at] - middle[i] - (x[at] - mean[i]) * slope[i]);
        }
}

/* Moves running statistics, if there are any, towards those found, to whose mean the bias `ahead` of the norm belongs: by `momentum`, or
 * where that is negative so that they are means of all that were `tracked`. */
INLINE void follow(
    int64_t rows, int64_t width, const real *restrict found, const real *restrict ahead, double momentum, int64_t *tracked,
    real *restrict mean, real *restrict variance
) {
    if (!mean) return;
    ++*tracked;
    const real share = momentum < 0 ? 1.0 / *tracked : momentum, unbiased = (double)rows / (rows - 1);
    for (int64_t i = 0; i < width; i++) {
        mean[i] += share * (found[i] + ahead[i] - mean[i]);
        variance[i] += share * (found[width + i] * unbiased - variance[i]);
    }
}

/* Leaves s, t and z, and in `found` the means and variances of s and of t, which the running ones follow. Biases of Wo and W2
 * are left out but for that: the norms take them away again. */
int post_norm(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t gelu, double eps_s, double eps_t,
    const real *restrict x, const real *restrict message, const real *output, const real *weight_s, const real *bias_s,
    const real *w1, const real *b1, const real *w2, const real *weight_t, const real *bias_t, real *restrict s,
    real *restrict t, real *restrict z, real *restrict found, const real *output_bias, double momentum_s, int64_t *tracked_s,
    real *mean_s, real *variance_s, const real *b2, double momentum_t, int64_t *tracked_t, real *mean_t, real *variance_t
) {
    const int64_t weights = width * width + 2 * width * inner, own = PORTION * (width + 2 * inner);
    real *turned = malloc((weights + threads * own + portions_of(rows) * 2 * width) * sizeof(real));
    if (!turned) return 1;
    real *turned_feed = turned + width * width, *rooms = turned + weights, *shares = rooms + threads * own;
    turn(width, width, output, turned);
    turn_both(width, inner, width, w1, w2, turned_feed);
#pragma omp parallel num_threads(team(threads, rows))
    {
        real *y = rooms + omp_get_thread_num() * own, *hidden = y + PORTION * width, *after = hidden + PORTION * inner;
        FOR_PORTIONS {
            real *into = s + first * width, *share = shares + first / PORTION * 2 * width;
            memcpy(into, x + first * width, SOME * width * sizeof(real));
            product(SOME, width, width, message + first * width, 0, turned, into);
            measure(SOME, width, into, share, share + width);
        }
#pragma omp single
        put_together(rows, width, shares, found, found + width);
        FOR_PORTIONS {
            real *into = t + first * width, *share = shares + first / PORTION * 2 * width;
            normalise(SOME, width, s + first * width, found, weight_s, bias_s, eps_s, y);
            memcpy(into, y, SOME * width * sizeof(real));
            feed_some(SOME, width, inner, width, gelu, y, turned_feed, b1, hidden, after, into);
            measure(SOME, width, into, share, share + width);
        }
#pragma omp single
        put_together(rows, width, shares, found + 2 * width, found + 3 * width);
        FOR_PORTIONS
        normalise(SOME, width, t + first * width, found + 2 * width, weight_t, bias_t, eps_t, z + first * width);
    }
    follow(rows, width, found, output_bias, momentum_s, tracked_s, mean_s, variance_s);
    follow(rows, width, found + 2 * width, b2, momentum_t, tracked_t, mean_t, variance_t);
    free(turned);
    return 0;
}

/* Gradients of x and of the message; in `sums` those of W1, b1, W2 and Wo, in `norms` those of weight and bias of both norms. What is
 * cheap to find again was not kept: y, and W1 y + b1. */
int post_norm_backward(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t gelu, double eps_s, double eps_t,
    const real *restrict grad, const real *restrict message, const real *restrict s, const real *restrict t,
    const real *output, const real *weight_s, const real *bias_s, const real *w1, const real *b1, const real *w2,
    const real *weight_t, const real *found, real *restrict grad_x, real *restrict grad_message, real *restrict sums,
    real *restrict norms
) {
    const int64_t last = inner * (2 * width + 1), weights = last + width * width, own = PORTION * (2 * width + 3 * inner);
    const int64_t few = width * (portions_of(rows) * 2 + 3 + inner);
    real *shares = calloc(chunks_of(rows) * weights + threads * own + few, sizeof(real));
    if (!shares) return 1;
    real *rooms = shares + chunks_of(rows) * weights, *numbers = rooms + threads * own, *turned = numbers + 3 * width;
    real *compared = turned + inner * width;
    const real *mean_s = found, *mean_t = found + 2 * width;
    turn(inner, width, w1, turned);
#pragma omp parallel num_threads(team(threads, rows))
    {
        real *y = rooms + omp_get_thread_num() * own, *above = y + PORTION * width, *hidden = above + PORTION * width;
        real *room = hidden + PORTION * inner;
        FOR_PORTIONS {
            real *share = compared + first / PORTION * 2 * width;
            compare(SOME, width, grad + first * width, t + first * width, mean_t, share, share + width);
        }
#pragma omp single
        put_gradients_together(rows, width, compared, mean_t, weight_t, eps_t, norms + 2 * width, numbers);
        FOR_CHUNKS
        FOR_OWN {
            const int64_t at = first * width;
            real *share = compared + first / PORTION * 2 * width;
            normalise_backward(SOME, width, grad + at, t + at, mean_t, numbers, above);
            normalise(SOME, width, s + at, found, weight_s, bias_s, eps_s, y);
            spread(SOME, inner, b1, hidden);
            product(SOME, inner, width, y, 0, turned, hidden);
            memcpy(grad_x + at, above, SOME * width * sizeof(real));
            feed_some_backward(
                SOME, width, inner, width, gelu, above, y, hidden, w1, w2, room, grad_x + at, shares + chunk * weights
            );
            compare(SOME, width, grad_x + at, s + at, mean_s, share, share + width);
        }
#pragma omp single
        put_gradients_together(rows, width, compared, mean_s, weight_s, eps_s, norms, numbers);
        FOR_CHUNKS
        FOR_OWN {
            const int64_t at = first * width;
            normalise_backward(SOME, width, grad_x + at, s + at, mean_s, numbers, grad_x + at);
            memset(grad_message + at, 0, SOME * width * sizeof(real));
            product(SOME, width, width, grad_x + at, 0, output, grad_message + at);
            product(width, width, SOME, grad_x + at, 1, message + at, shares + chunk * weights + last);
        }
        add_chunks(rows, weights, shares, sums);
    }
    free(shares);
    return 0;
}
