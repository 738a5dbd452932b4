/* orthogonal.c: orthonormal columns by modified Gram-Schmidt, each column projected twice ("twice
   is enough": Giraud, Langou, Rozloznik and van den Eshof, Numer. Math. 2005). One pass loses
   orthogonality like the condition number, which for the factors of a gradient is easily beyond
   what a float resolves. Dot products are in double and in one order, so all workers, whatever
   their vectors' width, have the same bits.

   PyTorch's and the authors' code add an epsilon to the norm or divide by it. A column of zeros, or
   one that depends on the others, then becomes noise or NaN, and a dead layer, whose factor is 0,
   stays dead. Here it is replaced by a drawn one. */
#include "codec_internal.h"
#include "kernels/device.h"
#include <assert.h>

enum { ATTEMPTS = 16 };

double tutti_codec_to_unit(tutti_device *d, size_t n, float *p)
{
    double square = tutti_norm2(d, n, p);

    while (isfinite(square) && square > 0 && !(square >= 1 && square < 4)) {
        int e = ilogb(sqrt(square));
        e = e > 100 ? 100 : e < -100 ? -100 : e; /* in steps, since 2^149 is no float */
        tutti_scale(d, n, ldexpf(1, -e), p);
        square = tutti_norm2(d, n, p);
    }
    return square;
}

void tutti_codec_orthonormalise(tutti_device *d, size_t n, size_t from, size_t to,
                                float *const *column, tutti_rng rng)
{
    assert(to <= n);
    for (size_t c = from; c < to; c++) {
        float *p = column[c];
        for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
            const double before = tutti_codec_to_unit(d, n, p);
            double after = before;
            if (before > 0 && isfinite(before)) {
                for (int pass = 0; pass < 2; pass++)
                    for (size_t k = 0; k < c; k++)
                        tutti_axpy(d, n, (float)-tutti_dot(d, n, column[k], p), column[k], p);
                after = tutti_norm2(d, n, p);
            }
            if (!isfinite(after)) {
                for (; c < to; c++)
                    tutti_fill(d, n, NAN, column[c]);
                return;
            }
            /* A remainder of 2^-18 of a column is the rounding error of the projections, no
               direction of its own. */
            if (after > 0x1p-36 * before) {
                tutti_scale(d, n, (float)(1 / sqrt(after)), p);
                break;
            }
            tutti_fill_normal(
                d, n,
                (tutti_rng){ rng.seed, rng.stream,
                             rng.step + ((uint64_t)(c * ATTEMPTS + attempt + 1) << 32) },
                p);
        }
    }
}
