/* What all files share: the type of numbers, REAL = float or REAL = double, and its exponential. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef REAL real;

#define INLINE static inline __attribute__((always_inline))

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
