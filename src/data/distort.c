/* distort.c: mnist(distort=k, seed=s): a harder data set out of a plain one, in which methods
   differ more. Each image is moved, turned and covered with clutter when the set is read.
   Afterwards it is like any other image: loader, mean and deviation, and hash are computed as
   without it.

   k goes from 0 to 1 in steps of 2^-16. All draws are uniform, angles and lengths continuous:

     shift     a whole number of pixels from -round(4 k) to round(4 k) in each direction
     turn      by -30 k to 30 k degrees about the middle of the image. The new pixel at p is the old
               image, interpolated bilinearly, at R (p - middle - shift) + middle, where R turns by
               the angle; outside of the old image it is 0
     clutter   0 to round(6 k) strokes, each about a pixel anywhere in the image, in any direction,
               3 to 9 pixels long, with a brightness b from 128 k to 255 k. A pixel whose middle is
               at distance d < 1.5 from the segment becomes max(pixel, b (1 - (d / 1.5)^2))

   At k = 1 a person still reads nearly all digits. Clutter is made of strokes and not of pieces of
   other images because an image then depends on nothing but (k, s, split, index). The first images
   of a larger set are those of a smaller one, and no order of work can matter.

   Draws are those of (s, "dist" + split, index of the image): right, down, angle, number of
   strokes; then six for each stroke: x, y, quarter, angle, half of the length, brightness. A
   stroke's angle is -45 to 45 degrees, and a right angle more if its quarter is 1.

   The bytes are the same on every machine. Random numbers are Philox counters, and everything after
   them is integer arithmetic: sine and cosine are polynomials in 30 binary places, coordinates have
   17, weights 8. libm promises no bits. */
#include "data_internal.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

/* "dist": independent of the draws that shuffle samples and initialise models, whatever the
   seeds */
#define STREAM UINT64_C(0x64697374)

enum {
    ONE = 1 << 16, /* of k, degrees, sines, lengths */
    SHIFT_PIXELS = 4,
    TURN_DEGREES = 30,
    STROKES = 6,
    HALF_SHORTEST = ONE * 3 / 2,
    HALF_LONGEST = ONE * 9 / 2,
    REACH = 6, /* pixels a stroke can be away from its middle: half of 9 and 1.5 */
};
enum { DRAW_X, DRAW_Y, DRAW_TURN, DRAW_STROKES, DRAW_FIRST_STROKE };
enum {
    STROKE_X,
    STROKE_Y,
    STROKE_QUARTER,
    STROKE_ANGLE,
    STROKE_HALF,
    STROKE_BRIGHTNESS,
    STROKE_DRAWS
};

/* Draws a number from 0 to n - 1, n <= 2^32. */
static int64_t draw_below(tutti_rng rng, uint64_t index, int64_t n)
{
    return (int64_t)(((tutti_random(rng, index) >> 32) * (uint64_t)n) >> 32);
}

/* Computes cosine and sine of 0 to 45 degrees (in 65536ths of a degree), in 65536ths: Taylor
   polynomials of degree 8, with errors below 1e-6. */
static void cosine_sine(int64_t degrees, int64_t *cosine, int64_t *sine)
{
    const int64_t one = INT64_C(1) << 30, t = degrees * 18740330 >> 16 /* pi / 180 * 2^30 */,
                  q = t * t >> 30;
    int64_t s = one - q / 42, c = one - q / 56;

    s = one - (q * s >> 30) / 20;
    s = one - (q * s >> 30) / 6;
    s = t * s >> 30;
    c = one - (q * c >> 30) / 30;
    c = one - (q * c >> 30) / 12;
    c = one - (q * c >> 30) / 2;
    *sine = (s + (1 << 13)) >> 14;
    *cosine = (c + (1 << 13)) >> 14;
}

/* How far an image is moved, and the angle that it is turned by. */
typedef struct motion {
    int64_t right, down, cosine, sine;
} motion;

/* Moves and turns an image. framed: the old image with a border of one pixel of 0, so that each
   point that touches the image has four neighbours. */
static void move_and_turn(uint8_t *image, const uint8_t *framed, int height, int width,
                          const motion *by)
{
    const int64_t right = by->right, down = by->down, cosine = by->cosine, sine = by->sine;
    /* of the places: 17 binary places, so that a middle between pixels is whole */
    const int64_t row = (int64_t)width + 2, unit = 2 * ONE;
    const int64_t end_x = width * unit, end_y = height * unit;

    for (int64_t y = 0; y < height; y++) {
        /* from the middle, in half pixels */
        const int64_t from_x = -(width - 1) - 2 * right, from_y = 2 * y - (height - 1) - 2 * down;
        int64_t at_x = cosine * from_x - sine * from_y + (width - 1) * (int64_t)ONE;
        int64_t at_y = sine * from_x + cosine * from_y + (height - 1) * (int64_t)ONE;

        for (int64_t x = 0; x < width; x++, at_x += 2 * cosine, at_y += 2 * sine) {
            uint8_t *to = image + y * width + x;
            *to = 0;
            if (at_x > -unit && at_x < end_x && at_y > -unit && at_y < end_y) {
                /* in the frame */
                const uint64_t u = (uint64_t)(at_x + unit), v = (uint64_t)(at_y + unit);
                const uint8_t *p = framed + (v >> 17) * (uint64_t)row + (u >> 17);
                const uint32_t a = u >> 9 & 255, b = v >> 9 & 255;
                const uint32_t above = p[0] * (256 - a) + p[1] * a,
                               below = p[row] * (256 - a) + p[row + 1] * a;
                *to = (uint8_t)((above * (256 - b) + below * b + (1 << 15)) >> 16);
            }
        }
    }
}

static void stroke(uint8_t *image, int height, int width, tutti_rng rng, uint64_t first,
                   int64_t level)
{
    const int64_t x = draw_below(rng, first + STROKE_X, width),
                  y = draw_below(rng, first + STROKE_Y, height);
    const int64_t half =
        HALF_SHORTEST + draw_below(rng, first + STROKE_HALF, HALF_LONGEST - HALF_SHORTEST + 1);
    const int64_t brightness =
        (level * (128 + draw_below(rng, first + STROKE_BRIGHTNESS, 128)) + ONE / 2) / ONE;
    const int64_t radius2 = (int64_t)ONE * ONE * 9 / 4;
    const int64_t angle = draw_below(rng, first + STROKE_ANGLE, 90 * ONE + 1) - 45 * ONE;
    int64_t c, s;

    cosine_sine(angle < 0 ? -angle : angle, &c, &s);
    s = angle < 0 ? -s : s;
    if (draw_below(rng, first + STROKE_QUARTER, 2) == 1) {
        /* a segment has no front: half a circle is all directions */
        const int64_t was = c;
        c = -s;
        s = was;
    }
    for (int64_t dy = y < REACH ? -y : -REACH; dy <= REACH && y + dy < height; dy++)
        for (int64_t dx = x < REACH ? -x : -REACH; dx <= REACH && x + dx < width; dx++) {
            uint8_t *to = image + (y + dy) * width + x + dx;
            const int64_t along = c * dx + s * dy, across = c * dy - s * dx;
            const int64_t past = along > half ? along - half : along < -half ? -half - along : 0;
            const int64_t distance2 = past * past + across * across;
            if (distance2 < radius2) {
                const int64_t value = (radius2 - distance2) / ONE * brightness / (radius2 / ONE);
                *to = value > *to ? (uint8_t)value : *to;
            }
        }
}

tutti_status tutti_data_distort(const tutti_data_images *of, tutti_split split,
                                const tutti_data_distortion *how, tutti_error *err)
{
    uint8_t *const images = of->at;
    const uint64_t samples = of->count;
    const int height = of->height, width = of->width;
    const int64_t level = (int64_t)(how->distort * ONE + 0.5);
    const int64_t far = (SHIFT_PIXELS * level + ONE / 2) / ONE, widest = TURN_DEGREES * level,
                  most = (STROKES * level + ONE / 2) / ONE;
    const size_t pixels = (size_t)height * (size_t)width, row = (size_t)width + 2;
    uint8_t *framed;

    assert(level >= 0 && level <= ONE);
    if (level == 0 || pixels == 0)
        return TUTTI_OK;
    framed = tutti_alloc((size_t)height + 2, row); /* zeroed: the frame stays so */
    if (framed == NULL)
        return tutti_fail(err, TUTTI_ERR_MEMORY, ENOMEM, "distorting images of %d x %d", height,
                          width);
    for (uint64_t i = 0; i < samples; i++) {
        const tutti_rng rng = { (uint64_t)how->seed, STREAM + (uint64_t)split, i };
        const int64_t right = draw_below(rng, DRAW_X, 2 * far + 1) - far,
                      down = draw_below(rng, DRAW_Y, 2 * far + 1) - far;
        const int64_t angle = draw_below(rng, DRAW_TURN, 2 * widest + 1) - widest,
                      strokes = draw_below(rng, DRAW_STROKES, most + 1);
        uint8_t *image = images + i * pixels;
        int64_t cosine, sine;

        for (size_t y = 0; y < (size_t)height; y++)
            memcpy(framed + (y + 1) * row + 1, image + y * (size_t)width, (size_t)width);
        cosine_sine(angle < 0 ? -angle : angle, &cosine, &sine);
        move_and_turn(image, framed, height, width,
                      &(motion){ right, down, cosine, angle < 0 ? -sine : sine });
        for (int64_t k = 0; k < strokes; k++)
            stroke(image, height, width, rng, DRAW_FIRST_STROKE + (uint64_t)k * STROKE_DRAWS,
                   level);
    }
    tutti_free(framed);
    return TUTTI_OK;
}
