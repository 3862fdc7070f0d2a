/* Functions that a layer is made of: see the files named. */
#include "real.h"

/* rows.c */
int attend(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *kind, const real *q, const real *k, const real *v, const real *table, int64_t kernel, int64_t relation,
    double scale, real *weight, real *factor, real *lse, int64_t more, real *out
);
int attend_backward(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *kind, const real *grad, const real *grad_lse, const real *q, const real *k, const real *v, const real *table,
    const real *weight, int64_t kernel, int64_t relation, double scale, real *grad_dot, real *grad_entry, int64_t more,
    real *grad_q
);
int sum_kinds(int64_t threads, int64_t pairs, int64_t heads, const int32_t *kind, const real *numbers, real *sums);
int gather(
    int64_t threads, int64_t rows, int64_t heads, int64_t size, int64_t wide, const int32_t *offsets, const int32_t *column,
    const int32_t *pair, const real *factor, const real *vectors, real *out, const real *other_factor,
    const real *other_vectors, real *other_out, int64_t more
);

/* dense.c */
int linear_parts(
    int64_t threads, int64_t rows, int64_t width, int64_t size, int64_t count, const int64_t *starts, const int64_t *ends,
    const real *x, const real **weights, const real **biases, real **outs
);
int linear_parts_backward(
    int64_t threads, int64_t rows, int64_t width, int64_t size, int64_t count, const int64_t *starts, const int64_t *ends,
    const real *x, const real **weights, const real **grads, int64_t more, real *grad_x, real *sums
);

/* post_norm.c */
int post_norm(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t gelu, double eps_s, double eps_t, const real *x,
    const real *message, const real *output, const real *weight_s, const real *bias_s, const real *w1, const real *b1,
    const real *w2, const real *weight_t, const real *bias_t, real *s, real *t, real *z, real *found,
    const real *output_bias, double momentum_s, int64_t *tracked_s, real *mean_s, real *variance_s, const real *b2,
    double momentum_t, int64_t *tracked_t, real *mean_t, real *variance_t
);
int post_norm_backward(
    int64_t threads, int64_t rows, int64_t width, int64_t inner, int64_t gelu, double eps_s, double eps_t, const real *grad,
    const real *message, const real *s, const real *t, const real *output, const real *weight_s, const real *bias_s,
    const real *w1, const real *b1, const real *w2, const real *weight_t, const real *found, real *grad_x, real *grad_message,
    real *sums, real *norms
);
