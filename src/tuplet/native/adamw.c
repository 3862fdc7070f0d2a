/* A step of AdamW for many small tensors: called by training/adamw_cpu.py. */
#include "portions.h"

/* The gradients' norm, over all tensors together; every tensor has a sum of its own, so that the number of threads changes no bit. */
static double norm_of(int64_t threads, int64_t count, const int64_t *sizes, const real **grads, double *squares) {
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        const real *grad = grads[i];
#pragma omp simd reduction(+ : sum)
        for (int64_t at = 0; at < sizes[i]; at++) sum += (double)grad[at] * grad[at];
        squares[i] = sum;
    }
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += squares[i];
    return sqrt(sum);
}

/* Gradients are made shorter where their norm is beyond `limit`, unless that is 0; `steps`, one number for each tensor, goes on by one. */
int adamw(
    int64_t threads, int64_t count, const int64_t *sizes, real **weights, const real **grads, real **means, real **squares,
    float **steps, double limit, double rate, double decay, double beta1, double beta2, double eps
) {
    double *sums = malloc((count + 1) * sizeof(double));
    if (!sums) return 1;
    const double scale = limit ? limit / (norm_of(threads, count, sizes, grads, sums) + 1e-6) : 1;
    const real factor = scale > 1 ? 1 : scale, fade = rate * decay, follow1 = 1 - beta1, follow2 = 1 - beta2, tiny = eps;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < count; i++) {
        const double step = ++*steps[i];
        const real pace = rate / (1 - pow(beta1, step)), root = 1 / sqrt(1 - pow(beta2, step)), beta = beta2;
        real *restrict weight = weights[i], *restrict mean = means[i], *restrict square = squares[i];
        const real *restrict grad = grads[i];
#pragma omp simd
        for (int64_t at = 0; at < sizes[i]; at++) {
            const real own = grad[at] * factor;
            mean[at] += follow1 * (own - mean[at]);
            square[at] = beta * square[at] + follow2 * own * own;
            weight[at] -= fade * weight[at] + pace * mean[at] / (root * (real)sqrt(square[at]) + tiny);
        }
    }
    free(sums);
    return 0;
}
