/* Linear maps and feed-forwards of many tokens: called by models/dense_cpu.py. Functions return 1 where there is no memory, else 0. */
#include "feed.h"
#include "functions.h"

/* y_i = W_i x + b_i for the rows starts[i] .. ends[i] of x, each W_i (size, width); several may have one y, and rows of their own. */
int linear_parts(
    int64_t threads, int64_t rows, int64_t width, int64_t size, int64_t count, const int64_t *starts,
    const int64_t *ends, const real *restrict x, const real **weights, const real **biases, real **outs
) {
    real *turned = malloc((count * size * width + 1) * sizeof(real));
    if (!turned) return 1;
    for (int64_t i = 0; i < count; i++) turn(size, width, weights[i], turned + i * size * width);
#pragma omp parallel num_threads(team(threads, rows))
    FOR_PORTIONS
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = LARGER(first, starts[i]), some = SMALLER(first + PORTION, ends[i]) - from;
        if (some <= 0) continue;
        spread(some, size, biases[i], outs[i] + from * size);
        product(some, size, width, x + from * width, 0, turned + i * size * width, outs[i] + from * size);
    }
    free(turned);
    return 0;
}

/* Gradients of x, added to what stands there if there is `more`; and in `sums` those of all W_i, then of all b_i. */
int linear_parts_backward(
    int64_t threads, int64_t rows, int64_t width, int64_t size, int64_t count, const int64_t *starts,
    const int64_t *ends, const real *restrict x, const real **weights, const real **grads, int64_t more,
    real *restrict grad_x, real *restrict sums
) {
    const int64_t numbers = count * size * (width + 1);
    real *shares = calloc(chunks_of(rows) * numbers + 1, sizeof(real));
    if (!shares) return 1;
#pragma omp parallel num_threads(team(threads, rows))
    {
        FOR_CHUNKS
        FOR_OWN {
            real *share = shares + chunk * numbers;
            if (!more) memset(grad_x + first * width, 0, SOME * width * sizeof(real));
            for (int64_t i = 0; i < count; i++) {
                const int64_t from = LARGER(first, starts[i]), some = SMALLER(first + PORTION, ends[i]) - from;
                if (some <= 0) continue;
                const real *grad = grads[i] + from * size;
                product(some, width, size, grad, 0, weights[i], grad_x + from * width);
                product(size, width, some, grad, 1, x + from * width, share + i * size * width);
                add_rows(some, size, grad, share + (count * width + i) * size);
            }
        }
        add_chunks(rows, numbers, shares, sums);
    }
    free(shares);
    return 0;
}

/* W2 φ(hidden) + b2, and hidden = W1 x + b1. */
int feed(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t outputs, int64_t gelu, const real *restrict x,
    const real *w1, const real *b1, const real *w2, const real *b2, real *restrict hidden, real *restrict y
) {
    real *turned = malloc(((width + outputs) * inner + threads * PORTION * inner) * sizeof(real));
    if (!turned) return 1;
    turn_both(width, inner, outputs, w1, w2, turned);
#pragma omp parallel num_threads(team(threads, rows))
    {
        real *after = turned + (width + outputs) * inner + omp_get_thread_num() * PORTION * inner;
        FOR_PORTIONS {
            spread(SOME, outputs, b2, y + first * outputs);
            feed_some(
                SOME, width, inner, outputs, gelu, x + first * width, turned, b1, hidden + first * inner, after,
                y + first * outputs
            );
        }
    }
    free(turned);
    return 0;
}

/* Gradients of x, and in `sums` those of W1, b1, W2 and b2. */
int feed_backward(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t outputs, int64_t gelu,
    const real *restrict grad, const real *restrict x, const real *restrict hidden, const real *w1, const real *w2,
    real *restrict grad_x, real *restrict sums
) {
    const int64_t last = inner * (width + 1 + outputs), numbers = last + outputs, own = 2 * PORTION * inner;
    real *shares = calloc(chunks_of(rows) * numbers + threads * own, sizeof(real));
    if (!shares) return 1;
#pragma omp parallel num_threads(team(threads, rows))
    {
        real *room = shares + chunks_of(rows) * numbers + omp_get_thread_num() * own;
        FOR_CHUNKS {
            real *share = shares + chunk * numbers;
            FOR_OWN {
                memset(grad_x + first * width, 0, SOME * width * sizeof(real));
                feed_some_backward(
                    SOME, width, inner, outputs, gelu, grad + first * outputs, x + first * width, hidden + first * inner,
                    w1, w2, room, grad_x + first * width, share
                );
                add_rows(SOME, outputs, grad + first * outputs, share + last);
            }
        }
        add_chunks(rows, numbers, shares, sums);
    }
    free(shares);
    return 0;
}
