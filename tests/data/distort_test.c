/* Distortions. Goal: the integer arithmetic is the formula of distort.c, and an image depends on
   nothing but itself, its index and the options. Method: a reference in double precision on
   random shapes, equalities between runs, one fixed hash that every machine must reach. */
#include <math.h>
#include "make.h"
#include "data/data_internal.h"

enum { HIGH = 28, WIDE = 28, PIXELS = HIGH * WIDE, SAMPLES = 200 };

/* Pictures with something to move: a bright band at a place of its own in each, on 0. */
static uint8_t *pictures(uint64_t samples, int height, int width)
{
    uint8_t *images = calloc(samples, (size_t)height * (size_t)width);

    assert_non_null(images);
    for (uint64_t i = 0; i < samples; i++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                if ((y + 2 * x + (int)(i * 5)) % 19 < 5)
                    images[(i * (uint64_t)height + (uint64_t)y) * (uint64_t)width + (uint64_t)x] =
                        (uint8_t)(255 - (x * 7 + y * 3) % 100);
    return images;
}

static void distort(uint8_t *images, uint64_t samples, tutti_split split, double k, int64_t seed)
{
    assert_int_equal(tutti_data_distort(&(tutti_data_images){ images, samples, HIGH, WIDE }, split,
                                        &(tutti_data_distortion){ k, seed }, NULL),
                     TUTTI_OK);
}

static uint8_t *distorted(uint64_t samples, tutti_split split, double k, int64_t seed)
{
    uint8_t *images = pictures(samples, HIGH, WIDE);
    distort(images, samples, split, k, seed);
    return images;
}

static int images_that_differ(const uint8_t *a, const uint8_t *b)
{
    int n = 0;
    for (int i = 0; i < SAMPLES; i++)
        n += memcmp(a + i * PIXELS, b + i * PIXELS, PIXELS) != 0;
    return n;
}

/* ---- the formula in double precision ---- */

static double part(tutti_rng rng, uint64_t index) /* [0, 1) in steps of 2^-32, as drawn */
{
    return (double)(tutti_random(rng, index) >> 32) / 4294967296.0;
}

static double old_pixel(const uint8_t *image, int height, int width, double x, double y)
{
    const double x0 = floor(x), y0 = floor(y);
    double sum = 0;
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++) {
            const double px = x0 + i, py = y0 + j;
            const double weight = (1 - fabs(x - px)) * (1 - fabs(y - py));
            if (px >= 0 && px < width && py >= 0 && py < height)
                sum += weight * image[(size_t)py * (size_t)width + (size_t)px];
        }
    return sum;
}

static void reference(const uint8_t *old, double *new, int height, int width, tutti_split split, uint64_t index,
                      double k, int64_t seed)
{
    const tutti_rng rng = { (uint64_t)seed, 0x64697374 + (uint64_t)split, index };
    const double degree = acos(-1) / 180, far = floor(4 * k + 0.5);
    const double right = floor(part(rng, 0) * (2 * far + 1)) - far, down = floor(part(rng, 1) * (2 * far + 1)) - far;
    const double angle = (part(rng, 2) * 2 - 1) * 30 * k * degree;
    const int strokes = (int)(part(rng, 3) * (floor(6 * k + 0.5) + 1));

    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const double from_x = x - right - (width - 1) / 2.0, from_y = y - down - (height - 1) / 2.0;
            new[y * width + x] =
                old_pixel(old, height, width, cos(angle) * from_x - sin(angle) * from_y + (width - 1) / 2.0,
                          sin(angle) * from_x + cos(angle) * from_y + (height - 1) / 2.0);
        }
    for (int n = 0; n < strokes; n++) {
        const uint64_t first = 4 + 6 * (uint64_t)n;
        const double x = floor(part(rng, first) * width), y = floor(part(rng, first + 1) * height);
        const double turn = ((part(rng, first + 3) * 2 - 1) * 45 + floor(part(rng, first + 2) * 2) * 90) * degree;
        const double half = 1.5 + 3 * part(rng, first + 4),
                     bright = floor(k * (128 + floor(part(rng, first + 5) * 128)) + 0.5);
        for (int py = 0; py < height; py++)
            for (int px = 0; px < width; px++) {
                const double along = fmin(half, fmax(-half, (px - x) * cos(turn) + (py - y) * sin(turn)));
                const double d = hypot(px - x - along * cos(turn), py - y - along * sin(turn));
                if (d < 1.5)
                    new[py * width + px] = fmax(new[py * width + px], bright * (1 - d * d / 2.25));
            }
    }
}

static void distorted_pixels_match_the_formula_within_three_levels(void **state)
{
    static const int shapes[][2] = { { 28, 28 }, { 1, 1 }, { 1, 60 }, { 60, 1 }, { 2, 3 }, { 9, 31 }, { 40, 17 } };
    static const double strengths[] = { 0.01, 0.08, 0.3, 0.5, 1 };
    double new[60 * 60];

    (void)state;
    for (size_t s = 0; s < TUTTI_LENGTH(shapes); s++)
        for (size_t j = 0; j < TUTTI_LENGTH(strengths); j++) {
            const int height = shapes[s][0], width = shapes[s][1], n = height * width;
            const tutti_split split = (tutti_split)(j % 2);
            const double k = floor(strengths[j] * 65536 + 0.5) / 65536;
            uint8_t *old = pictures(40, height, width), *made = pictures(40, height, width);
            assert_int_equal(tutti_data_distort(&(tutti_data_images){ made, 40, height, width },
                                                split, &(tutti_data_distortion){ k, (int64_t)s },
                                                NULL),
                             TUTTI_OK);
            for (uint64_t i = 0; i < 40; i++) {
                reference(old + i * (uint64_t)n, new, height, width, split, i, k, (int64_t)s);
                for (int p = 0; p < n; p++)
                    if (fabs(new[p] - made[i * (uint64_t)n + (uint64_t)p]) > 3)
                        fail_msg("%d x %d, k %g, image %d, pixel %d: %d, but the formula says %g", height, width, k,
                                 (int)i, p, made[i * (uint64_t)n + (uint64_t)p], new[p]);
            }
            free(old);
            free(made);
        }
}

/* ---- equalities ---- */

static void strength_zero_touches_nothing(void **state)
{
    uint8_t *plain = pictures(SAMPLES, HIGH, WIDE), *a = distorted(SAMPLES, TUTTI_TRAIN, 0, 5);

    (void)state;
    assert_memory_equal(plain, a, SAMPLES * PIXELS);
    free(plain);
    free(a);
}

static void the_same_options_give_the_same_bytes_and_others_do_not(void **state)
{
    uint8_t *plain = pictures(SAMPLES, HIGH, WIDE), *a = distorted(SAMPLES, TUTTI_TRAIN, 0.5, 5),
            *again = distorted(SAMPLES, TUTTI_TRAIN, 0.5, 5);
    uint8_t *others[] = { distorted(SAMPLES, TUTTI_TRAIN, 0.5, 6), distorted(SAMPLES, TUTTI_TRAIN, 0.6, 5),
                          distorted(SAMPLES, TUTTI_TEST, 0.5, 5),
                          distorted(SAMPLES, TUTTI_TRAIN, 0.5, INT64_C(5) + (INT64_C(1) << 40)) };

    (void)state;
    assert_memory_equal(a, again, SAMPLES * PIXELS);
    assert_true(images_that_differ(a, plain) >= SAMPLES - 2);
    for (size_t j = 0; j < TUTTI_LENGTH(others); j++) {
        assert_true(images_that_differ(a, others[j]) >= SAMPLES - 2);
        free(others[j]);
    }
    free(plain);
    free(a);
    free(again);
}

static void an_image_depends_on_its_own_pixels_and_index_only(void **state)
{
    uint8_t *all = distorted(SAMPLES, TUTTI_TEST, 1, 9), *first = distorted(17, TUTTI_TEST, 1, 9),
            *changed = pictures(SAMPLES, HIGH, WIDE);

    (void)state;
    assert_memory_equal(all, first, 17 * PIXELS);
    memset(changed + 30 * PIXELS, 77, PIXELS);
    distort(changed, SAMPLES, TUTTI_TEST, 1, 9);
    assert_memory_not_equal(all + 30 * PIXELS, changed + 30 * PIXELS, PIXELS);
    assert_int_equal(images_that_differ(all, changed), 1);
    free(all);
    free(first);
    free(changed);
}

/* Equal pictures at different indexes: if two were turned equally, a method could learn the
   turns. */
static void equal_images_are_all_distorted_differently(void **state)
{
    uint8_t *images = malloc(SAMPLES * PIXELS), *one = pictures(1, HIGH, WIDE);

    (void)state;
    for (int i = 0; i < SAMPLES; i++)
        memcpy(images + i * PIXELS, one, PIXELS);
    distort(images, SAMPLES, TUTTI_TRAIN, 0.3, 1);
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(images + i * PIXELS, images + j * PIXELS, PIXELS);
    free(images);
    free(one);
}

/* The mean distance from the plain pixels grows with k. On wedges that shade off slowly: with
   finer patterns the distance is at its maximum after two pixels. */
static void a_greater_strength_changes_more(void **state)
{
    uint8_t *plain = malloc(SAMPLES * PIXELS), *a = malloc(SAMPLES * PIXELS);
    double before = 0;

    (void)state;
    for (int p = 0; p < SAMPLES * PIXELS; p++) {
        const int x = p % WIDE - 14, y = p / WIDE % HIGH - 14, shade = 240 - 8 * abs(x) - 24 * abs(y);
        plain[p] = (uint8_t)(shade > 0 ? shade : 0);
    }
    for (int tenth = 1; tenth <= 10; tenth += 3) {
        double distance = 0;
        memcpy(a, plain, SAMPLES * PIXELS);
        distort(a, SAMPLES, TUTTI_TRAIN, tenth / 10.0, 2);
        for (size_t p = 0; p < SAMPLES * PIXELS; p++)
            distance += abs(a[p] - plain[p]);
        assert_true(distance > 1.1 * before);
        before = distance;
    }
    free(plain);
    free(a);
}

/* Blank images show the clutter alone. */
static void clutter_amount_and_brightness_follow_the_strength(void **state)
{
    static const double strengths[] = { 0.05, 0.25, 0.5, 1 };

    (void)state;
    for (size_t j = 0; j < TUTTI_LENGTH(strengths); j++) {
        const double k = strengths[j];
        uint8_t *images = calloc(SAMPLES, PIXELS);
        int brightest = 0, blank = 0;
        distort(images, SAMPLES, TUTTI_TRAIN, k, 3);
        for (int i = 0; i < SAMPLES; i++) {
            int most = 0;
            for (int p = 0; p < PIXELS; p++)
                most = images[i * PIXELS + p] > most ? images[i * PIXELS + p] : most;
            blank += most == 0;
            brightest = most > brightest ? most : brightest;
            assert_true(most == 0 || most >= 0.8 * 128 * k);
        }
        assert_true(brightest <= ceil(255 * k));
        if (k < 0.08) { /* round(6 k) is 0 */
            assert_int_equal(blank, SAMPLES);
        } else { /* one in round(6 k) + 1 has no stroke */
            const double expected = SAMPLES / (floor(6 * k + 0.5) + 1);
            assert_true(brightest >= 0.8 * 255 * k);
            assert_true(blank > expected - 4 * sqrt(expected) && blank < expected + 4 * sqrt(expected));
        }
        free(images);
    }
}

/* Reached on every machine, by every compiler: the bytes are part of what a published result
   means. */
static void distorted_bytes_match_the_pinned_hash(void **state)
{
    uint8_t *a = distorted(SAMPLES, TUTTI_TRAIN, 1, 7);

    (void)state;
    assert_true(tutti_hash(a, SAMPLES * PIXELS) == UINT64_C(0xe15d73e64ad654ca));
    free(a);
}

static void empty_image_sets_are_accepted_unchanged(void **state)
{
    uint8_t one = 9;

    (void)state;
    assert_int_equal(tutti_data_distort(&(tutti_data_images){ &one, 0, 28, 28 }, TUTTI_TRAIN,
                                        &(tutti_data_distortion){ 1, 0 }, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_data_distort(&(tutti_data_images){ &one, 5, 0, 28 }, TUTTI_TRAIN,
                                        &(tutti_data_distortion){ 1, 0 }, NULL),
                     TUTTI_OK);
    assert_int_equal(tutti_data_distort(&(tutti_data_images){ &one, 5, 28, 0 }, TUTTI_TRAIN,
                                        &(tutti_data_distortion){ 1, 0 }, NULL),
                     TUTTI_OK);
    assert_int_equal(one, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distorted_pixels_match_the_formula_within_three_levels),
        cmocka_unit_test(strength_zero_touches_nothing),
        cmocka_unit_test(the_same_options_give_the_same_bytes_and_others_do_not),
        cmocka_unit_test(an_image_depends_on_its_own_pixels_and_index_only),
        cmocka_unit_test(equal_images_are_all_distorted_differently),
        cmocka_unit_test(a_greater_strength_changes_more),
        cmocka_unit_test(clutter_amount_and_brightness_follow_the_strength),
        cmocka_unit_test(distorted_bytes_match_the_pinned_hash),
        cmocka_unit_test(empty_image_sets_are_accepted_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
