/* A layer of tokens and of virtual tokens that see each other, in training: projections, attention, and what follows on it. Called by
 * models/layer_cpu.py. Virtual tokens stand after the others; they may be read only, in the last layer. Functions return 1 where there is
 * no memory, else 0. */
#include "functions.h"

/* What a kind of tokens is normalised and fed with. */
typedef struct {
    const real *w1, *b1, *w2, *output, *weight_s, *bias_s, *weight_t, *bias_t, *output_bias, *b2;
    int64_t *tracked_s;
    real *mean_s, *variance_s;
    int64_t *tracked_t;
    real *mean_t, *variance_t;
} after;

/* Tokens that see others, all with one softmax: from `query` on, keys from `key` on, among all tokens. Rows are queries, and `keys` are
 * keys, or heads of these, each with so many `heads` and pairs as in rows.c; `back_..` are the pairs by key. A relation has a say if they
 * are `related`. What they find is added to what others before them have, if these have seen for the same queries, or have been seen as the
 * same keys. */
typedef struct {
    int64_t rows, keys, heads, pairs, query, key, related, more_queries, more_keys;
    const int32_t *offsets, *column, *kind, *back_offsets, *back_column, *back_pair;
} sight;

/* What a layer keeps for its way back: one after another in `room` vectors of all tokens; in `rest` those of each kind, then log-sum-exps
 * and weights of every sight. */
typedef struct {
    real *q, *k, *v, *message, *lse;
    struct {
        real *s, *t, *found;
    } own[2];
} kept;

static kept lay_out(int64_t tokens, int64_t others, int64_t width, real *room, real *rest) {
    kept it;
    real **vectors[] = {&it.q, &it.k, &it.v, &it.message};
    const int64_t all = tokens + others, counts[2] = {tokens, others};
    for (int i = 0; i < 4; i++, room += all * width) *vectors[i] = room;
    for (int i = 0; i < 2; i++) {
        it.own[i].s = rest;
        it.own[i].t = it.own[i].s + counts[i] * width;
        it.own[i].found = it.own[i].t + counts[i] * width;
        rest = it.own[i].found + 4 * width;
    }
    it.lse = rest;
    return it;
}

/* z and, where there are two kinds that leave, other_z. Tokens have `parts` projections, for rows of their own: to queries, to keys, and the
 * rest to values; virtual ones have three. `room` and `rest` are what lay_out divides. */
int layer(
    int64_t threads, int64_t tokens, int64_t width, int64_t others, int64_t inner, int64_t heads, int64_t gelu,
    int64_t leaving, const real *x, const real *other_x, int64_t parts, const int64_t *starts, const int64_t *ends,
    const real **weights, const real **biases, const real **other_weights, const real **other_biases, int64_t sights,
    const sight *seen, const real *table, int64_t kernel, int64_t relation, double scale, const after *next, double eps_s,
    double eps_t, double momentum_s, double momentum_t, const after *other_next, double other_eps_s, double other_eps_t,
    double other_momentum_s, double other_momentum_t, real *room, real *rest, real *z, real *other_z
) {
    const kept it = lay_out(tokens, others, width, room, rest);
    const int64_t none[3] = {0, 0, 0}, whole[3] = {others, others, others};
    real *into[parts], *other_into[3] = {it.q + tokens * width, it.k + tokens * width, it.v + tokens * width};
    for (int64_t i = 0; i < parts; i++) into[i] = i == 0 ? it.q : i == 1 ? it.k : it.v;
    if (linear_parts(threads, tokens, width, width, parts, starts, ends, x, weights, biases, into)) return 1;
    if (linear_parts(threads, others, width, width, 3, none, whole, other_x, other_weights, other_biases, other_into)) return 1;
    const int64_t size = width / heads;
    real *lse = it.lse;
    for (const sight *s = seen; s < seen + sights; s++) {
        real *weight = lse + s->rows * s->heads;
        attend(
            threads, s->rows, s->heads, size, size, s->offsets, s->column, s->kind, it.q + s->query * width, it.k + s->key * width,
            it.v + s->key * width, table, kernel, s->related ? relation : 0, scale, weight, weight, lse, s->more_queries,
            it.message + s->query * width
        );
        lse = weight + s->pairs * s->heads;
    }
#define LEAVE(i, rows, from, eps_s, eps_t, momentum_s, momentum_t, a, x, z) \
    if (post_norm( \
            threads, rows, width, inner, gelu, eps_s, eps_t, x, it.message + (from)*width, a->output, a->weight_s, a->bias_s, a->w1, \
            a->b1, a->w2, a->weight_t, a->bias_t, it.own[i].s, it.own[i].t, z, it.own[i].found, \
            a->output_bias, momentum_s, a->tracked_s, a->mean_s, a->variance_s, a->b2, momentum_t, a->tracked_t, a->mean_t, \
            a->variance_t \
        )) \
        return 1;
    LEAVE(0, tokens, 0, eps_s, eps_t, momentum_s, momentum_t, next, x, z)
    if (leaving > 1) {
        LEAVE(
            1, others, tokens, other_eps_s, other_eps_t, other_momentum_s, other_momentum_t, other_next, other_x, other_z
        )
    }
    return 0;
}

/* Gradients of x and other_x; of the relation's numbers, added to `grad_table`; and in `sums` those of projections, weights before biases,
 * of virtual ones, and for each kind that leaves of what is in `after`, to b2. `spare` has room for four vectors of every token and two numbers
 * of every pair and head of the sight with most of them. */
int layer_backward(
    int64_t threads, int64_t tokens, int64_t width, int64_t others, int64_t inner, int64_t heads, int64_t gelu,
    int64_t leaving, const real *x, const real *other_x, int64_t parts, const int64_t *starts, const int64_t *ends,
    const real **weights, const real **other_weights, int64_t sights, const sight *seen, const real *table, int64_t kernel,
    int64_t relation, double scale, const after *next, double eps_s, double eps_t, const after *other_next, double other_eps_s,
    double other_eps_t, real *room, real *rest, const real *grad, const real *other_grad, real *spare, real *grad_x,
    real *other_grad_x, real *grad_table, real *sums
) {
    const kept it = lay_out(tokens, others, width, room, rest);
    const int64_t all = tokens + others, size = width / heads, none[3] = {0, 0, 0}, whole[3] = {others, others, others};
    const int64_t fed = inner * (2 * width + 1) + width * width;
    real *other_sums = sums + parts * width * (width + 1), *after_sums = other_sums + 3 * width * (width + 1);
    real *above = spare, *grads[3], *grad_dot = spare + 4 * all * width;
    for (int i = 0; i < 3; i++) grads[i] = spare + (i + 1) * all * width;
#define RETURN(i, rows, from, eps_s, eps_t, a, grad, grad_x) \
    if (post_norm_backward( \
            threads, rows, width, inner, gelu, eps_s, eps_t, grad, it.message + (from)*width, it.own[i].s, it.own[i].t, \
            a->output, a->weight_s, a->bias_s, a->w1, a->b1, a->w2, a->weight_t, it.own[i].found, grad_x, \
            above + (from)*width, after_sums, after_sums + fed \
        )) \
        return 1; \
    memset(after_sums + fed + 4 * width, 0, 2 * width * sizeof(real)); /* biases before norms */ \
    after_sums += fed + 6 * width;
    RETURN(0, tokens, 0, eps_s, eps_t, next, grad, grad_x)
    if (leaving > 1) {
        RETURN(1, others, tokens, other_eps_s, other_eps_t, other_next, other_grad, other_grad_x)
    } else memset(above + tokens * width, 0, others * width * sizeof(real));
    for (int i = 0; i < 3; i++) /* of virtual tokens that see nobody */
        memset(grads[i] + tokens * width, 0, others * width * sizeof(real));
    real *lse = it.lse;
    for (const sight *s = seen; s < seen + sights; s++) {
        const real *weight = lse + s->rows * s->heads, *q = it.q + s->query * width, *from_above = above + s->query * width;
        const int64_t own = s->related ? relation : 0, key = s->key * width;
        real *entries = own ? grad_dot + s->pairs * s->heads : 0;
        attend_backward(
            threads, s->rows, s->heads, size, size, s->offsets, s->column, s->kind, from_above, 0, q, it.k + key, it.v + key, table,
            weight, kernel, own, scale, grad_dot, entries, s->more_queries, grads[0] + s->query * width
        );
        if (entries) sum_kinds(threads, s->pairs, s->heads, s->kind, entries, grad_table);
        gather(
            threads, s->keys, s->heads, size, size, s->back_offsets, s->back_column, s->back_pair, grad_dot, q, grads[1] + key,
            weight, from_above, grads[2] + key, s->more_keys
        );
        lse += s->rows * s->heads + s->pairs * s->heads;
    }
    const real *from[parts], *other_from[3];
    for (int64_t i = 0; i < parts; i++) from[i] = grads[i < 2 ? i : 2];
    for (int i = 0; i < 3; i++) other_from[i] = grads[i] + tokens * width;
    return linear_parts_backward(threads, tokens, width, width, parts, starts, ends, x, weights, from, 1, grad_x, sums) ||
           linear_parts_backward(
               threads, others, width, width, 3, none, whole, other_x, other_weights, other_from, leaving > 1, other_grad_x,
               other_sums
           );
}
