/* The interface of Tutti 0.4.0: its public headers without comments, then a pointer to each
   function, table and type. tools/release makes it; tools/abi compares others with it. */
#ifndef TUTTI_BASE_H
#define TUTTI_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 4
#define TUTTI_VERSION_PATCH 0
const char *tutti_version(void);
typedef enum tutti_status {
    TUTTI_OK = 0,
    TUTTI_CLOSED,
    TUTTI_TIMEOUT,
    TUTTI_ERR_USAGE,
    TUTTI_ERR_MEMORY,
    TUTTI_ERR_IO,
    TUTTI_ERR_CORRUPT,
    TUTTI_ERR_PEER,
    TUTTI_ERR_STATE,
    TUTTI_ERR_NUMBER
} tutti_status;
const char *tutti_status_name(tutti_status status);
typedef struct tutti_error {
    tutti_status status;
    int rank, cause;
    char text[480];
} tutti_error;
tutti_status tutti_fail(tutti_error *err, tutti_status status, int cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
tutti_status tutti_fail_rank(tutti_error *err, tutti_status status, int rank, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));
tutti_status tutti_fail_within(tutti_error *err, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define TUTTI_TRY(call) \
    do { tutti_status try_ = (call); if (try_ != TUTTI_OK) return try_; } while (0)
#define TUTTI_LENGTH(a) (sizeof(a) / sizeof *(a))
void *tutti_alloc(size_t count, size_t size);
void tutti_free(void *memory);
char *tutti_copy_text(const char *text);
const char *tutti_variable(char *const *environment, const char *name);
bool tutti_size_mul(size_t a, size_t b, size_t *out);
bool tutti_size_add(size_t a, size_t b, size_t *out);
typedef struct { uint64_t seed, stream, step; } tutti_rng;
#define TUTTI_NORMAL_STREAM UINT64_C(0x4E6F726D00000000)
uint64_t tutti_random(tutti_rng rng, uint64_t index);
double tutti_uniform(tutti_rng rng, uint64_t index);
double tutti_normal(tutti_rng rng, uint64_t index);
uint64_t tutti_permuted(tutti_rng rng, uint64_t n, uint64_t position);
uint64_t tutti_hash(const void *data, size_t bytes);
typedef enum {
    TUTTI_CPU_SCALAR,
    TUTTI_CPU_AVX2,
    TUTTI_CPU_NEON = TUTTI_CPU_AVX2,
    TUTTI_CPU_AVX512
} tutti_cpu;
typedef enum {
    TUTTI_INT,
    TUTTI_REAL,
    TUTTI_BOOL,
    TUTTI_CHOICE,
    TUTTI_TEXT,
    TUTTI_SPEC
} tutti_option_type;
typedef struct tutti_option {
    const char *name;
    tutti_option_type type;
    size_t offset;
    double initial, min, max;
    const char *text;
    const char *help;
    const char *when, *reach;
} tutti_option;
#define TUTTI_AT(type, member) offsetof(type, member)
void tutti_options_default(const tutti_option *options, void *self);
tutti_status tutti_options_check(const tutti_option *options, const char *what, size_t self_bytes,
                                 tutti_error *err);
int tutti_option_positives(const char *text, double *values, int room);
const tutti_option *tutti_option_find(const tutti_option *options, const char *name);
void tutti_suggest(const char *name, const char *const *names, size_t n, char *out, size_t bytes);
typedef struct tutti_spec tutti_spec;
tutti_status tutti_spec_open(tutti_spec **out, const char *text, tutti_error *err);
void tutti_spec_close(tutti_spec *spec);
const char *tutti_spec_name(const tutti_spec *spec);
tutti_status tutti_spec_apply(const tutti_spec *spec, const char *what,
                              const tutti_option *options, void *self, tutti_error *err);
typedef struct tutti_knob {
    const char *name;
    double low, high;
    bool log;
    double multiple;
    const char *const *choices;
    double first;
} tutti_knob;
enum { TUTTI_KNOBS_MOST = 6, TUTTI_POINTS_MOST = 200, TUTTI_KNOB_TEXT_BYTES = 64 };
typedef struct tutti_tuner_options {
    const tutti_knob *knobs;
    int n_knobs;
    int points, drawn;
    double xi;
    uint64_t seed;
} tutti_tuner_options;
typedef struct tutti_parts {
    const uint64_t *first;
    const uint32_t *sample;
} tutti_parts;
typedef struct tutti_share {
    uint64_t samples;
    int workers;
    int64_t batch;
    int64_t accumulate;
    uint64_t seed;
    const int64_t *batch_of;
    const int64_t *passes_of;
    const tutti_parts *parts;
    int logical;
} tutti_share;
int64_t tutti_share_passes(const tutti_share *s, int worker);
void tutti_share_apportion(int64_t total, int workers, const double *weight, int64_t least,
                           int64_t *part);
uint64_t tutti_share_steps(const tutti_share *s);
int64_t tutti_share_pass(const tutti_share *s, uint64_t step, int worker, int64_t pass,
                         uint64_t *epoch, uint64_t *position);
int64_t tutti_share_step(const tutti_share *s, uint64_t step, int worker);
uint64_t tutti_share_sample(const tutti_share *s, uint64_t epoch, uint64_t position);
uint64_t tutti_share_sample_of(const tutti_share *s, int worker, uint64_t epoch, uint64_t position);
typedef struct tutti_runtime tutti_runtime;
typedef struct tutti_thread tutti_thread;
typedef struct tutti_monitor tutti_monitor;
#define TUTTI_FOREVER INT64_MAX
tutti_status tutti_runtime_open_posix(tutti_runtime **out, tutti_error *err);
void tutti_runtime_close(tutti_runtime *rt);
int64_t tutti_now_ns(tutti_runtime *rt);
void tutti_sleep_until(tutti_runtime *rt, int64_t time_ns);
void tutti_charge(tutti_runtime *rt, double flops, double bytes);
tutti_status tutti_thread_open(tutti_thread **out, tutti_runtime *rt, const char *name,
                               tutti_status (*run)(void *arg, tutti_error *err), void *arg,
                               tutti_error *err);
tutti_status tutti_thread_join(tutti_thread *thread, tutti_error *err);
tutti_status tutti_monitor_open(tutti_monitor **out, tutti_runtime *rt, tutti_error *err);
void tutti_monitor_close(tutti_monitor *m);
void tutti_lock(tutti_monitor *m);
void tutti_unlock(tutti_monitor *m);
tutti_status tutti_wait(tutti_monitor *m, int64_t deadline_ns, tutti_error *err);
void tutti_wake(tutti_monitor *m);
void tutti_entropy(tutti_runtime *rt, void *to, size_t bytes);
typedef enum {
    TUTTI_FILE_READ,
    TUTTI_FILE_CREATE,
    TUTTI_FILE_APPEND
} tutti_file_mode;
typedef struct tutti_queue_entry {
    uint64_t tag, offset;
    int fd, fixed;
    bool write;
    void *memory;
    size_t bytes;
} tutti_queue_entry;
typedef struct tutti_queue_result {
    uint64_t tag;
    int cause;
    size_t done;
} tutti_queue_result;
typedef struct tutti_runtime_ops {
    uint32_t abi, bytes;
    const char *name;
    bool common_clock;
    void (*close)(void *self);
    int64_t (*now)(void *self);
    void (*sleep_until)(void *self, int64_t time_ns);
    void (*charge)(void *self, double flops, double bytes);
    int (*thread_open)(void *self, void **thread, const char *name, void (*run)(void *arg),
                       void *arg);
    void (*thread_join)(void *self, void *thread);
    int (*monitor_open)(void *self, void **monitor);
    void (*monitor_close)(void *self, void *monitor);
    void (*lock)(void *self, void *monitor);
    void (*unlock)(void *self, void *monitor);
    bool (*wait)(void *self, void *monitor, int64_t deadline_ns);
    void (*wake)(void *self, void *monitor);
    int (*file_open)(void *self, const char *path, tutti_file_mode mode, int *fd);
    int (*file_size)(void *self, int fd, uint64_t *bytes);
    int (*file_read)(void *self, int fd, uint64_t offset, void *to, size_t bytes, size_t *done);
    int (*file_write)(void *self, int fd, const void *from, size_t bytes, size_t *done);
    int (*file_sync)(void *self, int fd);
    int (*file_close)(void *self, int fd);
    int (*file_rename)(void *self, const char *from, const char *to);
    int (*file_remove)(void *self, const char *path);
    int (*directory_make)(void *self, const char *path);
    int (*directory_sync)(void *self, const char *path);
    int (*directory_list)(void *self, const char *path, void (*each)(void *user, const char *name),
                          void *user);
    int (*exists)(void *self, const char *path);
    int (*space_left)(void *self, const char *path, uint64_t *bytes);
    void (*entropy)(void *self, void *to, size_t bytes);
    int (*file_reserve)(void *self, int fd, uint64_t bytes);
    int (*file_direct)(void *self, int fd, bool on);
    int (*file_write_at)(void *self, int fd, uint64_t offset, const void *from, size_t bytes,
                         size_t *done);
    int (*file_map)(void *self, int fd, uint64_t bytes, const void **at);
    void (*file_unmap)(void *self, const void *at, uint64_t bytes);
    int (*file_scratch)(void *self, const char *directory, uint64_t bytes, bool direct, int *fd);
    int (*queue_open)(void *self, int depth, void **queue);
    void (*queue_close)(void *self, void *queue);
    int (*queue_fix)(void *self, void *queue, int index, void *memory, size_t bytes);
    void (*queue_add)(void *self, void *queue, const tutti_queue_entry *entry);
    int (*queue_reap)(void *self, void *queue, bool block, tutti_queue_result *results, int room,
                      int *n);
    void (*queue_kick)(void *self, void *queue);
} tutti_runtime_ops;
#define TUTTI_RUNTIME_ABI 4
struct tutti_runtime {
    const tutti_runtime_ops *ops;
    void *self;
};
typedef struct tutti_device tutti_device;
void tutti_device_charge(tutti_device *d, double flops, double bytes);
typedef enum {
    TUTTI_F32,
    TUTTI_BF16,
    TUTTI_F16,
    TUTTI_I32,
    TUTTI_I64,
    TUTTI_U8,
    TUTTI_F64,
    TUTTI_I8
} tutti_dtype;
size_t tutti_dtype_bytes(tutti_dtype dtype);
const char *tutti_dtype_name(tutti_dtype dtype);
typedef struct tutti_buffer {
    tutti_device *device;
    void *data;
    size_t count;
    tutti_dtype dtype;
} tutti_buffer;
static inline tutti_buffer tutti_f32(tutti_device *d, float *x, size_t n)
{
    tutti_buffer b = { d, x, n, TUTTI_F32 };
    return b;
}
static inline tutti_buffer tutti_host(void *x, size_t n, tutti_dtype t)
{
    tutti_buffer b = { NULL, x, n, t };
    return b;
}
static inline tutti_buffer tutti_nothing(void)
{
    tutti_buffer b = { NULL, NULL, 0, TUTTI_U8 };
    return b;
}
void tutti_copy(tutti_device *d, size_t n, const float *x, float *y);
void tutti_fill(tutti_device *d, size_t n, float a, float *y);
void tutti_add(tutti_device *d, size_t n, const float *x, float *y);
void tutti_scale(tutti_device *d, size_t n, float a, float *y);
void tutti_axpy(tutti_device *d, size_t n, float a, const float *x, float *y);
void tutti_blend(tutti_device *d, size_t n, float a, const float *x, float b, float *y);
void tutti_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);
void tutti_add_diff(tutti_device *d, size_t n, float a, const float *x, const float *y, float *z);
void tutti_lerp(tutti_device *d, size_t n, float a, const float *x, float *y);
void tutti_tree_sum(tutti_device *d, size_t n, int p, const float *const *x, const float *a,
                    float *y);
double tutti_norm2(tutti_device *d, size_t n, const float *x);
double tutti_dot(tutti_device *d, size_t n, const float *x, const float *y);
double tutti_norm1(tutti_device *d, size_t n, const float *x);
bool tutti_finite(tutti_device *d, size_t n, const float *x);
void tutti_cast(tutti_device *d, tutti_buffer from, tutti_buffer to);
typedef enum tutti_keep {
    TUTTI_SAME,
    TUTTI_SLICE,
    TUTTI_OWN_MEAN,
    TUTTI_OWN_SUM,
    TUTTI_OWN_ZERO,
    TUTTI_SCRATCH
} tutti_keep;
const char *tutti_keep_name(tutti_keep keep);
typedef struct tutti_range { size_t first, count; } tutti_range;
typedef struct tutti_state {
    const char *name;
    tutti_keep keep;
    tutti_dtype dtype;
    size_t first, count;
    const tutti_range *ranges; size_t n_ranges;
    size_t of;
    bool of_workers;
    bool copy;
    bool placed;
    bool late;
    bool shared;
    const char *tier;
} tutti_state;
struct tutti_tier;
typedef struct tutti_place { struct tutti_tier *tier; uint64_t at; void *memory; } tutti_place;
typedef struct tutti_plan tutti_plan;
void tutti_declare(tutti_plan *plan, const tutti_state *state, void *slot);
void tutti_declare_vector(tutti_plan *plan, const char *name, tutti_keep keep, float **slot);
void tutti_declare_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                         size_t bytes);
void tutti_declare_late_value(tutti_plan *plan, const char *name, tutti_keep keep, void *value,
                              size_t bytes);
#ifdef __cplusplus
}
#endif
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
#ifndef TUTTI_CODEC_H
#define TUTTI_CODEC_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_view {
    int tensor;
    size_t first, count;
    size_t rows, cols;
    int stage;
    uint64_t step;
} tutti_view;
struct tutti_codec_ops;
typedef struct tutti_codec_space {
    size_t n;
    const tutti_view *tensor;
    const char *const *name;
    int n_tensors;
    int rank, workers;
    uint64_t seed;
    tutti_device *device;
    const struct tutti_codec_ops *const *more;
} tutti_codec_space;
typedef struct tutti_codec_moment {
    uint64_t step, epoch;
    uint64_t steps, epochs;
    double lr;
    tutti_status (*sum)(void *with, size_t n, float *numbers, tutti_error *err);
    void (*say)(void *with, const char *kind, const char *text);
    void *with;
} tutti_codec_moment;
enum {
    TUTTI_CODEC_UNBIASED = 1,
    TUTTI_CODEC_CONTRACTIVE = 2,
    TUTTI_CODEC_WHOLE_TENSOR = 4,
    TUTTI_CODEC_MERGES = 16,
    TUTTI_CODEC_MOMENTUM = 64,
    TUTTI_CODEC_VOTES = 128,
    TUTTI_CODEC_JOINT = 32,
    TUTTI_CODEC_FIXED = 8
};
typedef struct tutti_codec tutti_codec;
typedef struct tutti_codec_message { const uint8_t *at; size_t bytes; } tutti_codec_message;
typedef struct tutti_codec_messages {
    const tutti_codec_message *first;
    size_t stride;
    int n, *bad;
} tutti_codec_messages;
typedef struct tutti_codec_listener {
    void (*receive)(void *user, const char *name, size_t n, const double *numbers);
    void *user;
} tutti_codec_listener;
typedef struct tutti_codec_ops {
    const char *name, *paper, *help;
    const tutti_option *options;
    size_t self_bytes;
    int rounds;
    tutti_dtype dtype;
    tutti_dtype (*number)(const tutti_codec *c, const tutti_view *v);
    unsigned (*traits)(const tutti_codec *c);
    tutti_status (*check)(const tutti_codec *c, tutti_error *err);
    void (*declare)(tutti_codec *c, tutti_plan *plan);
    void (*open)(tutti_codec *c);
    tutti_status (*verify)(const tutti_codec *c, tutti_error *err);
    size_t (*begin)(tutti_codec *c, const tutti_codec_moment *m, int round, float **numbers);
    void (*left_out)(tutti_codec *c, uint64_t step);
    size_t (*scratch)(const tutti_codec *c, const tutti_view *v);
    size_t (*width)(const tutti_codec *c, const tutti_view *v, int round);
    void (*fold)(tutti_codec *c, const tutti_view *v, int round, const float *x, void *scratch,
                 void *const *wire);
    void (*fold_part)(tutti_codec *c, const tutti_view *v, size_t from, size_t count,
                      const float *x, void *scratch, void *const *wire);
    void (*mine)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                 void *const *wire, float a, float *y);
    void (*unfold)(tutti_codec *c, const tutti_view *v, void *scratch, void *const *wire, float *y);
    size_t (*bound)(const tutti_codec *c, const tutti_view *v);
    size_t (*encode)(tutti_codec *c, const tutti_view *v, const float *x, void *scratch,
                     uint8_t *out);
    tutti_status (*decode_add)(tutti_codec *c, const tutti_view *v, const uint8_t *in,
                               size_t bytes, float a, float *y, tutti_error *err);
    tutti_status (*mean)(tutti_codec *c, const tutti_view *v, const tutti_codec_messages *all,
                         float *y, tutti_error *err);
    void (*places)(tutti_codec *c, const tutti_view *v, const uint8_t *in, size_t bytes,
                   uint8_t *mark);
    void (*report)(const tutti_codec *c, const tutti_view *v, const float *x, const float *decoded,
                   const tutti_codec_listener *listener);
    tutti_codec *(*choose)(tutti_codec *c, const tutti_view *v);
    void (*watch)(tutti_codec *c, const tutti_view *v, const float *x);
    const float *(*before)(tutti_codec *c, const tutti_view *v, const float *x);
    bool by_element;
    float (*account)(tutti_codec *c, const tutti_view *v, float **into);
    uint8_t *(*marks)(tutti_codec *c, const tutti_view *v);
    void (*after)(tutti_codec *c, const tutti_view *v, float *y);
    void (*follow)(tutti_codec *c, const tutti_codec *from, int t);
} tutti_codec_ops;
struct tutti_codec {
    const tutti_codec_ops *ops;
    void *self;
    tutti_spec *spec;
    tutti_codec *inner[3];
    const tutti_codec_space *space;
    char prefix[128];
};
const tutti_codec_ops *tutti_codec_find(const char *name);
static inline unsigned tutti_codec_traits(const tutti_codec *c)
{
    return c->ops->traits(c);
}
static inline tutti_dtype tutti_codec_number(const tutti_codec *c, const tutti_view *v)
{
    return c->ops->number != NULL ? c->ops->number(c, v) : c->ops->dtype;
}
typedef struct tutti_codec_about {
    const char *name, *paper, *help, *form;
    const tutti_option *options;
} tutti_codec_about;
bool tutti_codec_listed(int i, tutti_codec_about *about);
typedef struct tutti_relay_tensor {
    const char *name;
    size_t rows, cols;
} tutti_relay_tensor;
typedef struct tutti_relay tutti_relay;
tutti_status tutti_relay_open(tutti_relay **out, const char *spec,
                              const tutti_relay_tensor *tensors, int n, int rank, int workers,
                              uint64_t seed, tutti_error *err);
void tutti_relay_close(tutti_relay *r);
unsigned tutti_relay_traits(const tutti_relay *r);
const tutti_state *tutti_relay_state(const tutti_relay *r, size_t i, void **memory);
uint64_t tutti_relay_steps(const tutti_relay *r);
void tutti_relay_resume(tutti_relay *r, uint64_t steps);
tutti_status tutti_relay_begin(tutti_relay *r, uint64_t epoch, double lr,
                               tutti_status (*sum)(void *with, size_t n, float *numbers,
                                                   tutti_error *err),
                               void *with, tutti_error *err);
typedef struct tutti_parcel tutti_parcel;
tutti_status tutti_parcel_open(tutti_parcel **out, tutti_relay *r, tutti_error *err);
void tutti_parcel_close(tutti_parcel *p);
typedef enum {
    TUTTI_FREIGHT_MEAN,
    TUTTI_FREIGHT_GATHER
} tutti_freight_kind;
typedef struct tutti_freight {
    tutti_freight_kind kind;
    void *data;
    size_t count;
    tutti_dtype dtype;
    size_t most;
    bool fixed;
    const uint8_t *all;
    size_t stride;
    const size_t *counts;
    bool everyone;
} tutti_freight;
tutti_status tutti_parcel_send(tutti_parcel *p, const int *tensor, float *const *gradient, int n,
                               tutti_freight *f, tutti_error *err);
tutti_status tutti_parcel_next(tutti_parcel *p, tutti_freight *f, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H
#ifndef TUTTI_TRANSPORT_H
#define TUTTI_TRANSPORT_H
#include <stdatomic.h>
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
typedef _Atomic bool tutti_flag;
typedef _Atomic uint32_t tutti_word;
#else
typedef struct tutti_flag { bool opaque; } tutti_flag;
typedef struct tutti_word { uint32_t opaque; } tutti_word;
#endif
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_ANY (-1)
#define TUTTI_TRANSPORT_ABI 5
typedef struct tutti_header {
    int32_t from;
    uint32_t kind;
    int64_t a, b;
    uint64_t ticket;
    uint64_t bytes;
} tutti_header;
typedef struct tutti_request {
    tutti_header note;
    tutti_status status;
    int rank;
    tutti_flag done;
    bool posted;
    void *internal[8];
} tutti_request;
static inline bool tutti_request_done(const tutti_request *r)
{
    return __atomic_load_n((const bool *)(const void *)&r->done, __ATOMIC_ACQUIRE);
}
typedef struct tutti_launch {
    int rank, size;
    const char *spec;
    char *const *environment;
    void *within;
    tutti_runtime *rt;
    void (*waits)(void *user, const char *line);
    void *user;
} tutti_launch;
typedef enum tutti_peer_change {
    TUTTI_PEER_LOST = 1,
    TUTTI_PEER_SILENT,
    TUTTI_PEER_BACK
} tutti_peer_change;
typedef struct tutti_peer_event {
    uint32_t epoch;
    int32_t rank;
    tutti_peer_change change;
    int64_t at_ns;
    char why[200];
} tutti_peer_event;
struct tutti_world;
typedef struct tutti_transport_ops {
    uint32_t abi, bytes;
    uint32_t runtime_abi, runtime_bytes;
    const char *name, *help;
    const tutti_option *options;
    size_t options_bytes;
    tutti_status (*open)(void **t, tutti_runtime *rt, const tutti_launch *launch, tutti_error *err);
    void (*close)(void *t);
    tutti_status (*send)(void *t, tutti_request *r, int to, uint64_t tag, const tutti_header *note,
                         tutti_buffer payload, tutti_error *err);
    tutti_status (*recv)(void *t, tutti_request *r, int from, uint64_t tag, tutti_buffer room,
                         tutti_error *err);
    tutti_status (*wait_some)(void *t, tutti_request *const *r, size_t n, size_t need,
                              int64_t deadline_ns, size_t *n_done, tutti_error *err);
    void (*cancel)(void *t, tutti_request *r);
    int (*dead_peer)(void *t, char *why, size_t bytes);
    void (*failure_report)(void *t, const tutti_error *err);
    tutti_status (*window)(void *t, const char *name, size_t bytes, void **of_rank,
                           tutti_error *err);
    void (*publish)(void *t, tutti_word *word, uint32_t value);
    tutti_status (*await)(void *t, int peer, tutti_word *word, uint32_t value, int64_t deadline_ns,
                          tutti_error *err);
    tutti_status (*run)(tutti_runtime *rt, const tutti_launch *launch,
                        tutti_status (*rank_main)(const tutti_launch *launch, void *arg,
                                                  tutti_error *err),
                        void *arg, tutti_error *err);
    bool simulated;
    int (*host)(void *t, int rank);
    int (*events)(void *t, int first, tutti_peer_event *out, int room);
    void (*expel)(void *t, int rank, const char *why);
    int (*node)(void *t, int rank);
} tutti_transport_ops;
tutti_status tutti_transport_load(const char *name, const tutti_transport_ops **out, char *tried,
                                  size_t bytes, tutti_error *err);
tutti_status tutti_transport_check(const tutti_transport_ops *ops, const char *whose,
                                   tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_world tutti_world;
tutti_status tutti_world_open(tutti_world **out, const char *transport_spec, tutti_error *err);
tutti_status tutti_world_open_telling(tutti_world **out, const char *transport_spec,
                                      void (*waits)(void *user, const char *line), void *user,
                                      tutti_error *err);
tutti_status tutti_world_run(const char *transport_spec, int n,
                             tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                       tutti_error *err),
                             void *arg, tutti_error *err);
tutti_status tutti_world_run_on(const tutti_transport_ops *ops, const char *spec, int n,
                                tutti_status (*rank_main)(tutti_world *world, void *arg,
                                                          tutti_error *err),
                                void *arg, tutti_error *err);
void tutti_world_close(tutti_world *world);
tutti_runtime *tutti_world_runtime(tutti_world *world);
tutti_device *tutti_world_device(tutti_world *world);
int tutti_world_rank(const tutti_world *world);
int tutti_world_size(const tutti_world *world);
const char *tutti_world_transport(const tutti_world *world);
int tutti_world_host(const tutti_world *world, int rank);
bool tutti_world_survives(const tutti_world *world);
int tutti_world_events(tutti_world *world, int first, tutti_peer_event *out, int room);
bool tutti_world_lost(tutti_world *world, int rank, char *why, size_t bytes);
void tutti_world_failure_report(tutti_world *world, const tutti_error *err);
void tutti_world_folder(tutti_world *world, const char *directory);
tutti_status tutti_world_flight(tutti_world *world, const char *directory, tutti_error *err);
void tutti_world_sent(const tutti_world *world, int to, uint64_t *bytes, uint64_t *messages);
bool tutti_world_take(tutti_world *world);
void tutti_world_give_back(tutti_world *world);
tutti_status tutti_world_common(tutti_world *world, const char *name, size_t bytes, void **memory,
                                bool *fill, tutti_error *err);
bool tutti_world_shares(const tutti_world *world);
typedef uint64_t tutti_port;
tutti_port tutti_port_of(const char *name, uint64_t a, uint64_t b);
tutti_status tutti_send(tutti_world *world, int to, tutti_port port, const tutti_header *note,
                        tutti_buffer payload, tutti_error *err);
tutti_status tutti_recv(tutti_world *world, int from, tutti_port port, tutti_header *note,
                        tutti_buffer room, int64_t deadline_ns, tutti_error *err);
tutti_status tutti_post_send(tutti_world *world, tutti_request *r, int to, tutti_port port,
                             const tutti_header *note, tutti_buffer payload, tutti_error *err);
tutti_status tutti_post_recv(tutti_world *world, tutti_request *r, int from, tutti_port port,
                             tutti_buffer room, tutti_error *err);
tutti_status tutti_wait_some(tutti_world *world, tutti_request *const *requests, size_t n,
                             size_t need, int64_t deadline_ns, size_t *done, tutti_error *err);
void tutti_cancel(tutti_world *world, tutti_request *r);
typedef struct tutti_group {
    tutti_world *world;
    const int *ranks;
    int size, index;
    uint64_t context;
    uint32_t sequence;
    const char *algorithm;
    bool uncounted;
    bool apart;
    int64_t timeout_ns;
} tutti_group;
tutti_group tutti_group_of(tutti_world *world, const int *ranks, int n, uint64_t context);
tutti_group tutti_group_workers(tutti_world *world, uint64_t context);
int tutti_group_rank(const tutti_group *g, int index);
tutti_group tutti_group_keyed(const tutti_group *group, uint64_t key, uint32_t turn);
tutti_status tutti_group_compare(const tutti_group *g, uint32_t what, tutti_error *err);
void tutti_group_give_up(tutti_group *g, int rank);
typedef enum { TUTTI_SUM, TUTTI_MEAN, TUTTI_MAX, TUTTI_MIN } tutti_reduction;
tutti_status tutti_allreduce(tutti_group *g, tutti_reduction op, tutti_buffer x, tutti_error *err);
tutti_status tutti_allreduce_from(tutti_group *g, tutti_reduction op, tutti_buffer in,
                                  tutti_buffer x, tutti_error *err);
tutti_status tutti_allreduce_weighted(tutti_group *g, float weight, tutti_buffer x,
                                      tutti_error *err);
tutti_status tutti_reduce(tutti_group *g, tutti_reduction op, int root_index, tutti_buffer x,
                          tutti_error *err);
tutti_status tutti_reduce_from(tutti_group *g, tutti_reduction op, int root_index,
                               tutti_buffer in, tutti_buffer x, tutti_error *err);
tutti_status tutti_reduce_scatter(tutti_group *g, tutti_reduction op, tutti_buffer x,
                                  tutti_buffer mine, tutti_error *err);
tutti_status tutti_reduce_scatter_v(tutti_group *g, tutti_reduction op, const size_t *counts,
                                    tutti_buffer x, tutti_buffer mine, tutti_error *err);
tutti_status tutti_allgather(tutti_group *g, tutti_buffer mine, tutti_buffer all, tutti_error *err);
tutti_status tutti_allgather_v(tutti_group *g, const size_t *counts, tutti_buffer mine,
                               tutti_buffer all, tutti_error *err);
tutti_status tutti_gather_parts(tutti_group *g, int root_index, tutti_buffer mine,
                                tutti_buffer all, tutti_error *err);
tutti_status tutti_gather_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                  tutti_buffer mine, tutti_buffer all, tutti_error *err);
tutti_status tutti_scatter_parts(tutti_group *g, int root_index, tutti_buffer all,
                                 tutti_buffer mine, tutti_error *err);
tutti_status tutti_scatter_parts_v(tutti_group *g, int root_index, const size_t *counts,
                                   tutti_buffer all, tutti_buffer mine, tutti_error *err);
tutti_status tutti_alltoall(tutti_group *g, tutti_buffer in, tutti_buffer out, tutti_error *err);
tutti_status tutti_alltoall_v(tutti_group *g, const size_t *counts, tutti_buffer in,
                              tutti_buffer out, tutti_error *err);
tutti_status tutti_broadcast(tutti_group *g, int root_index, tutti_buffer x, tutti_error *err);
tutti_status tutti_barrier(tutti_group *g, tutti_error *err);
tutti_status tutti_reduce_double(tutti_group *g, tutti_reduction op, double *x, size_t n,
                                 tutti_error *err);
typedef struct tutti_elastic tutti_elastic;
typedef struct tutti_elastic_epoch {
    tutti_world *world;
    uint64_t number, step;
    const void *state;
    size_t bytes;
} tutti_elastic_epoch;
tutti_status tutti_elastic_open(tutti_elastic **out, uint64_t most, const char *facts,
                                tutti_error *err);
tutti_status tutti_elastic_next(tutti_elastic *m, tutti_elastic_epoch *epoch, tutti_error *err);
bool tutti_elastic_commit(tutti_elastic *m, uint64_t step);
tutti_status tutti_elastic_over(tutti_elastic *m, uint64_t step, const void *state, size_t bytes,
                                tutti_error *err);
void tutti_elastic_leave(tutti_elastic *m);
int tutti_elastic_sockets(tutti_elastic *m, int *fds, int most);
void tutti_elastic_fail(tutti_elastic *m);
void tutti_elastic_close(tutti_elastic *m, bool ended);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_FILES_H
#define TUTTI_FILES_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_SAFETENSORS_DIMS 8
typedef struct tutti_tensor_file tutti_tensor_file;
typedef struct tutti_tensor_entry {
    const char *name;
    tutti_dtype dtype;
    int dims;
    uint64_t dim[TUTTI_SAFETENSORS_DIMS];
    uint64_t begin, bytes;
    const void *data;
    struct tutti_tier *tier; uint64_t at;
    tutti_status (*bring)(void *with, const struct tutti_tensor_entry *e, const void **data,
                          tutti_error *err);
    tutti_status (*copy)(void *with, const struct tutti_tensor_entry *e, uint64_t offset, void *to,
                         size_t bytes, tutti_error *err);
    void *with;
    uint64_t hash;
} tutti_tensor_entry;
tutti_status tutti_safetensors_write(tutti_runtime *rt, const char *path,
                                     tutti_tensor_entry *entries, size_t n,
                                     const char *const *metadata, uint64_t *hash,
                                     tutti_error *err);
tutti_status tutti_safetensors_open(tutti_tensor_file **out, tutti_runtime *rt, const char *path,
                                    tutti_error *err);
void tutti_safetensors_close(tutti_tensor_file *f);
size_t tutti_safetensors_count(const tutti_tensor_file *f);
const tutti_tensor_entry *tutti_safetensors_entry(const tutti_tensor_file *f, size_t i);
const tutti_tensor_entry *tutti_safetensors_find(const tutti_tensor_file *f, const char *name);
const char *tutti_safetensors_metadata(const tutti_tensor_file *f, const char *key);
tutti_status tutti_safetensors_read(tutti_tensor_file *f, const tutti_tensor_entry *e,
                                    uint64_t offset, void *to, size_t bytes, tutti_error *err);
typedef struct tutti_saved {
    const char *state, *tensor;
    tutti_keep keep;
    tutti_dtype dtype;
    int owner;
    uint64_t count, begin, end;
    void *data;
    struct tutti_tier *tier; uint64_t at;
} tutti_saved;
tutti_status tutti_checkpoint_save(tutti_world *world, const char *dir, uint64_t step,
                                   const tutti_saved *items, size_t n, const char *facts, int keep,
                                   tutti_error *err);
tutti_status tutti_checkpoint_find(tutti_runtime *rt, const char *path, char *found, size_t bytes,
                                   char *skipped, size_t skipped_bytes, tutti_error *err);
typedef struct tutti_checkpoint tutti_checkpoint;
tutti_status tutti_checkpoint_open(tutti_checkpoint **out, tutti_runtime *rt,
                                   const char *directory, tutti_error *err);
void tutti_checkpoint_close(tutti_checkpoint *c);
uint64_t tutti_checkpoint_step(const tutti_checkpoint *c);
int tutti_checkpoint_world(const tutti_checkpoint *c);
bool tutti_checkpoint_has(const tutti_checkpoint *c, const char *state);
const char *tutti_checkpoint_facts(const tutti_checkpoint *c);
bool tutti_checkpoint_piece(const tutti_checkpoint *c, size_t i, tutti_saved *piece);
tutti_status tutti_checkpoint_read(tutti_checkpoint *c, const tutti_saved *targets, size_t n,
                                   tutti_error *err);
tutti_status tutti_checkpoint_verify(tutti_checkpoint *c, tutti_error *err);
struct tutti_engine;
typedef struct tutti_record tutti_record;
enum { TUTTI_RECORD_EVENTS = 200000 };
typedef struct tutti_record_options {
    const char *folder;
    bool overwrite;
    bool samples;
    uint64_t report_every;
    const char *facts;
    const char *log_to;
    const char *metrics_port;
} tutti_record_options;
tutti_status tutti_record_open(tutti_record **out, struct tutti_engine *engine,
                               const tutti_record_options *options, tutti_error *err);
tutti_status tutti_record_span(tutti_record *r, const char *what, int64_t begin_ns, int64_t end_ns,
                               tutti_error *err);
void tutti_record_loss(tutti_record *r, double loss);
tutti_status tutti_record_log(tutti_record *r, const char *figures, tutti_error *err);
tutti_status tutti_record_step(tutti_record *r, tutti_error *err);
tutti_status tutti_record_close(tutti_record *r, bool ended, tutti_error *err);
typedef struct tutti_call_record tutti_call_record;
typedef struct tutti_call {
    const char *group;
    const char *name, *codec;
    uint64_t bytes;
    int64_t asked_ns, begin_ns, end_ns;
} tutti_call;
tutti_status tutti_call_record_open(tutti_call_record **out, tutti_world *world,
                                    const tutti_record_options *options, tutti_error *err);
tutti_status tutti_call_record_call(tutti_call_record *r, const tutti_call *call, tutti_error *err);
int64_t tutti_call_record_wait(tutti_call_record *r);
tutti_status tutti_call_record_waited(tutti_call_record *r, const tutti_call *call,
                                      const char *thread, tutti_error *err);
void tutti_call_record_loss(tutti_call_record *r, double loss);
tutti_status tutti_call_record_log(tutti_call_record *r, const char *figures, tutti_error *err);
tutti_status tutti_call_record_step(tutti_call_record *r, tutti_error *err);
tutti_status tutti_call_record_clock(tutti_call_record *r, tutti_error *err);
tutti_status tutti_call_record_close(tutti_call_record *r, bool ended, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_launch_options {
    int workers;
    int threads;
    const char *const *argv;
    char *const *environment;
    bool pin;
    int64_t grace_ns;
    bool meet;
    int first, size;
    int local_first, local_size;
    void (*on_worker)(void *user, int rank, long pid, bool ended, int code, int signal);
    void *user;
    bool continue_on_loss;
    int servers;
    int least;
    void (*lost)(void *user, const char *line);
    int64_t stop_ns;
    int64_t silence_ns;
    bool torch;
    void (*output)(void *user, int rank, int stream, const char *line, size_t bytes);
    bool ends_all;
} tutti_launch_options;
#define TUTTI_LAUNCH_ECHO_NS INT64_C(500000000)
typedef struct tutti_launch_result {
    int exit_code;
    int rank;
    long pid;
    int signal;
    int64_t noticed_ns;
    char text[640];
} tutti_launch_result;
tutti_status tutti_launch_run(const tutti_launch_options *options, tutti_launch_result *result,
                              tutti_error *err);
typedef enum tutti_launch_by {
    TUTTI_BY_NOBODY,
    TUTTI_BY_TUTTI,
    TUTTI_BY_OPENMPI,
    TUTTI_BY_PMI,
    TUTTI_BY_MVAPICH,
    TUTTI_BY_SLURM,
    TUTTI_BY_TORCHRUN
} tutti_launch_by;
typedef struct tutti_launch_place {
    int rank, size;
    int local_rank;
    tutti_launch_by by;
    const char *name;
    char found[160];
    char host[128];
    char meet[300];
    bool meet_at_rank_0;
    char run[256];
    bool one_host;
} tutti_launch_place;
tutti_status tutti_launch_find_place(char *const *environment, tutti_launch_place *out,
                                     tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_METHOD_H
#define TUTTI_METHOD_H
#ifndef TUTTI_H
#define TUTTI_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_method tutti_method;
struct tutti_method_ops;
struct tutti_codec_ops;
struct tutti_model;
typedef struct tutti_tensor {
    const char *name;
    size_t first, count, rows, cols;
    int unit;
    bool row_sparse;
    bool asked;
} tutti_tensor;
typedef struct tutti_rows {
    bool all;
    size_t n;
    const uint32_t *ids;
} tutti_rows;
typedef struct tutti_piece {
    int index;
    size_t first, count;
    int first_tensor, tensors;
    float *g, *x;
    const tutti_rows *rows;
    tutti_group group;
    uint64_t step;
    double weight;
} tutti_piece;
typedef struct tutti_layout {
    size_t used;
    size_t n;
    const tutti_tensor *tensor; int n_tensors;
    int n_units;
    const tutti_piece *piece; int n_pieces;
} tutti_layout;
typedef struct tutti_pass {
    int64_t index;
    int64_t samples;
    int64_t divisor;
    double scale;
    uint64_t epoch, position;
    bool again;
    bool same_values;
    bool keep;
    bool exchange;
    bool more;
    bool merge;
    bool stays;
    int64_t received;
    const void *given;
    const uint64_t *ids;
    float *losses;
} tutti_pass;
typedef struct tutti_engine tutti_engine;
typedef struct tutti_param {
    const char *name;
    int dims;
    uint64_t dim[4];
    int unit;
    bool row_sparse;
    bool asks_rows;
    tutti_dtype dtype;
    void *values, *gradient;
} tutti_param;
typedef enum { TUTTI_NONFINITE_STOP, TUTTI_NONFINITE_SKIP, TUTTI_NONFINITE_KEEP } tutti_nonfinite;
typedef enum {
    TUTTI_CODEC_COST_OFF,
    TUTTI_CODEC_COST_EXPLAIN,
    TUTTI_CODEC_COST_AUTO_OFF
} tutti_codec_cost;
typedef struct tutti_engine_options {
    const char *method;
    const char *optimizer;
    const char *lr_schedule;
    double clip_norm;
    tutti_nonfinite nonfinite;
    const char *loss_scale;
    tutti_status (*update)(void *user, double factor, tutti_error *err);
    tutti_status (*values)(void *user, tutti_error *err);
    bool keeps_gradients;
    const char *collective;
    const char *codec;
    const struct tutti_codec_ops *const *codecs;
    tutti_codec_cost codec_cost;
    uint64_t codec_report;
    bool codec_checksum;
    const char *codec_hierarchy;
    int lane;
    int64_t batch;
    int64_t accumulate;
    int elastic_shares;
    const int64_t *batch_of;
    const tutti_parts *parts;
    uint64_t data_samples;
    uint64_t steps;
    uint64_t seed;
    void *user;
    void (*initial)(void *user, int tensor, float *values);
    tutti_status (*evaluate)(void *user, double *loss, tutti_error *err);
    size_t sample_bytes;
    tutti_status (*give)(void *user, const uint64_t *ids, size_t n, void *out, tutti_error *err);
    int (*label)(void *user, uint64_t id);
    size_t own_values;
    const struct tutti_model *model;
    bool once;
    bool whole_batches;
    bool names;
    bool streams;
    bool needs;
    bool same_order;
    const char *fingerprint;
    int servers;
    bool stop_on_loss;
    uint64_t device_memory;
    uint64_t snapshot_every;
    int snapshot_most;
    size_t trace_events;
    uint64_t trace_first, trace_steps;
    bool (*commit)(void *user, uint64_t step);
    bool only_declared;
} tutti_engine_options;
tutti_status tutti_engine_open(tutti_engine **out, tutti_world *world, const tutti_param *params,
                               int n_params, const tutti_engine_options *options,
                               tutti_error *err);
tutti_status tutti_engine_open_from(tutti_engine **out, tutti_world *world,
                                    const tutti_param *params, int n_params,
                                    const tutti_engine_options *options,
                                    const struct tutti_method_ops *const *methods,
                                    tutti_error *err);
tutti_status tutti_engine_use_device(tutti_engine *e, uint64_t bytes, tutti_error *err);
void tutti_engine_close(tutti_engine *e);
const tutti_method *tutti_engine_method(const tutti_engine *e);
float *tutti_engine_values(tutti_engine *e, int tensor);
float *tutti_engine_gradient(tutti_engine *e, int tensor);
uint64_t tutti_engine_handed(const tutti_engine *e);
float *tutti_engine_client_state(tutti_engine *e);
tutti_status tutti_engine_more(tutti_engine *e, uint64_t until, bool *more, tutti_error *err);
tutti_status tutti_engine_more_epochs(tutti_engine *e, uint64_t epochs, bool *more,
                                      tutti_error *err);
tutti_status tutti_engine_more_samples(tutti_engine *e, uint64_t samples, bool *more,
                                       tutti_error *err);
int tutti_engine_takes(const tutti_engine *e);
bool tutti_engine_ended(const tutti_engine *e);
typedef struct tutti_received {
    uint64_t gradients;
    double samples, loss_sum;
} tutti_received;
void tutti_engine_received(tutti_engine *e, tutti_received *received);
tutti_status tutti_engine_pass_begin(tutti_engine *e, tutti_pass *pass, tutti_error *err);
tutti_status tutti_engine_unit_acquire(tutti_engine *e, int unit, bool backward, tutti_error *err);
tutti_status tutti_engine_rows_acquire(tutti_engine *e, int tensor, const uint32_t *ids, size_t n,
                                       tutti_error *err);
tutti_status tutti_engine_unit_release(tutti_engine *e, int unit, bool backward, tutti_error *err);
tutti_status tutti_engine_grad_ready(tutti_engine *e, int tensor, tutti_error *err);
tutti_status tutti_engine_grad_ready_from(tutti_engine *e, int tensor, const void *gradient,
                                          tutti_dtype dtype, tutti_error *err);
tutti_status tutti_engine_grad_ready_rows(tutti_engine *e, int tensor, const uint32_t *ids,
                                          size_t n, tutti_error *err);
tutti_status tutti_engine_grad_ready_rows_from(tutti_engine *e, int tensor, const uint32_t *ids,
                                               size_t n, const void *rows, tutti_dtype dtype,
                                               tutti_error *err);
tutti_status tutti_engine_pass_end(tutti_engine *e, double loss_sum, tutti_error *err);
tutti_status tutti_engine_step(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_lr(tutti_engine *e, double lr, tutti_error *err);
tutti_status tutti_engine_drive(tutti_engine *e, uint64_t until, tutti_error *err);
int64_t tutti_engine_received_most(const tutti_engine *e);
tutti_status tutti_engine_reshare(tutti_engine *e, const int64_t *batch_of, tutti_error *err);
const tutti_share *tutti_engine_share(const tutti_engine *e);
tutti_status tutti_engine_finish(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_eval_begin(tutti_engine *e, tutti_error *err);
tutti_status tutti_engine_eval_end(tutti_engine *e, tutti_error *err);
double tutti_engine_apart(tutti_engine *e);
bool tutti_engine_swap(tutti_engine *e);
tutti_status tutti_engine_save(tutti_engine *e, const char *directory, const char *facts, int keep,
                               tutti_error *err);
tutti_status tutti_engine_save_begin(tutti_engine *e, const char *directory, const char *facts,
                                     int keep, tutti_error *err);
tutti_status tutti_engine_save_end(tutti_engine *e, tutti_error *err);
typedef struct tutti_saves {
    uint64_t begun, written;
    uint64_t waited;
    uint64_t blocked;
    uint64_t bytes;
    int64_t copy_ns, wait_ns;
    int64_t write_ns;
    bool under_way;
} tutti_saves;
void tutti_engine_saves(const tutti_engine *e, tutti_saves *saves);
tutti_status tutti_engine_load(tutti_engine *e, tutti_checkpoint *checkpoint, tutti_error *err);
bool tutti_engine_whole(const tutti_engine *e, uint64_t *step);
tutti_status tutti_engine_state(tutti_engine *e, const tutti_saved **pieces, size_t *n,
                                tutti_error *err);
tutti_status tutti_engine_state_written(tutti_engine *e, tutti_error *err);
typedef struct tutti_snapshot {
    uint64_t gradients;
    int64_t wall_ns;
    uint64_t bytes_sent, samples_since;
} tutti_snapshot;
tutti_status tutti_engine_snapshots(tutti_engine *e, int *n, tutti_error *err);
void tutti_engine_snapshot(const tutti_engine *e, int k, tutti_snapshot *snapshot);
tutti_status tutti_engine_eval_snapshot(tutti_engine *e, int k, tutti_error *err);
void tutti_engine_drop_snapshots(tutti_engine *e);
bool tutti_engine_fault_tolerant(const tutti_engine *e);
bool tutti_engine_has(const tutti_engine *e, int worker);
bool tutti_engine_regroup(const tutti_engine *e, tutti_group *group, uint64_t key);
tutti_status tutti_engine_settle(tutti_engine *e, tutti_status mine, bool *again, tutti_error *err);
tutti_status tutti_engine_part(tutti_engine *e, tutti_error *err);
typedef enum tutti_memory {
    TUTTI_MEMORY_VALUES,
    TUTTI_MEMORY_GRADIENTS,
    TUTTI_MEMORY_STATES,
    TUTTI_MEMORY_ACTIVATIONS,
    TUTTI_MEMORY_BUFFERS,
    TUTTI_MEMORY_KINDS
} tutti_memory;
const char *tutti_memory_name(tutti_memory kind);
typedef struct tutti_memory_record {
    const char *name;
    tutti_memory kind;
    uint64_t bytes;
} tutti_memory_record;
size_t tutti_engine_memory(const tutti_engine *e, tutti_memory_record *records, size_t room);
const uint64_t *tutti_engine_payload(const tutti_engine *e);
typedef struct tutti_codec_figure {
    const char *name;
    size_t n;
    const double *value;
} tutti_codec_figure;
typedef struct tutti_codec_record {
    uint64_t step;
    const char *codec;
    uint64_t bytes;
    double bits;
    double norm;
    double rho;
    double lost;
    double density, union_density;
    double residual;
    int n_figures;
    const tutti_codec_figure *figure;
} tutti_codec_record;
const tutti_codec_record *tutti_engine_codec_records(const tutti_engine *e);
enum { TUTTI_HISTOGRAM_EXACT = 1024, TUTTI_HISTOGRAM_BINS = 1081 };
typedef struct tutti_histogram { uint64_t count[TUTTI_HISTOGRAM_BINS]; } tutti_histogram;
void tutti_histogram_add(tutti_histogram *h, uint64_t value);
int tutti_histogram_bin(uint64_t value);
uint64_t tutti_histogram_least(int bin);
typedef enum {
    TUTTI_DOING_COMPUTE,
    TUTTI_DOING_EXPOSED,
    TUTTI_DOING_DATA,
    TUTTI_DOING_OTHER,
    TUTTI_DOING_REPORT,
    TUTTI_DOING_OUTSIDE
} tutti_doing;
tutti_doing tutti_engine_doing(tutti_engine *e, tutti_doing what);
typedef struct tutti_figures {
    int64_t wall_ns, compute_ns;
    int64_t comm_ns;
    int64_t exposed_ns, other_ns;
    int64_t data_ns;
    uint64_t bytes_sent, messages_sent;
    uint64_t gradients;
    uint64_t steps;
    uint64_t samples;
    uint64_t skipped;
    double loss_scale;
    uint64_t own_steps;
    uint64_t restarts;
    uint64_t staleness_max;
    uint64_t staleness_gradients;
    double staleness_mean;
    const tutti_histogram *staleness;
} tutti_figures;
void tutti_engine_figures(tutti_engine *e, tutti_figures *figures);
typedef struct tutti_event_record {
    uint64_t step;
    const char *kind, *text;
    int worker;
    uint32_t epoch;
    bool own;
} tutti_event_record;
int tutti_engine_events(const tutti_engine *e, const tutti_event_record **events);
typedef struct tutti_metric_record {
    const char *name;
    int worker;
    double value;
    int64_t at;
} tutti_metric_record;
int tutti_engine_metrics(const tutti_engine *e, const tutti_metric_record **metrics);
typedef struct tutti_trace_event {
    const char *what;
    int32_t index;
    uint8_t thread;
    uint64_t step;
    int64_t begin_ns, end_ns;
} tutti_trace_event;
size_t tutti_engine_trace(const tutti_engine *e, const tutti_trace_event **events);
uint64_t tutti_engine_trace_lost(const tutti_engine *e);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
#define TUTTI_SLOTS_MAX 3
typedef struct tutti_rate {
    double lr, scale;
    uint64_t t;
} tutti_rate;
typedef struct tutti_optim tutti_optim;
typedef struct tutti_optim_ops {
    const char *name, *paper;
    const tutti_option *options;
    size_t self_bytes;
    const char *const *slot_names;
    int (*slots)(const void *self);
    tutti_status (*check)(const void *self, tutti_error *err);
    void (*apply)(const tutti_optim *o, size_t count, float *w, const float *g, float *const *slot,
                  const tutti_rate *rate);
    double (*lr)(const void *self);
    bool (*by_rows)(const void *self);
    bool (*lazy)(const void *self);
} tutti_optim_ops;
struct tutti_optim {
    const tutti_optim_ops *ops;
    void *self;
    tutti_spec *spec;
    tutti_device *device;
    tutti_range *ranges;
    size_t n_ranges, count, *at;
    float *slot[TUTTI_SLOTS_MAX];
    tutti_place place[TUTTI_SLOTS_MAX];
};
const tutti_optim_ops *tutti_optim_find(const char *name);
tutti_status tutti_optim_declare(tutti_optim **out, tutti_plan *plan, const char *spec,
                                 const char *prefix, size_t first, size_t count, tutti_keep keep,
                                 tutti_device *device, tutti_error *err);
void tutti_optim_close(tutti_optim *o);
double tutti_optim_lr(const tutti_optim *o);
void tutti_update(tutti_optim *o, size_t first, size_t count, float *w, const float *g,
                  const tutti_rate *rate);
tutti_status tutti_exchange(tutti_method *m, tutti_piece *p, double weight, tutti_error *err);
tutti_status tutti_exchange_all(tutti_method *m, float *x, tutti_error *err);
tutti_status tutti_exchange_check_all(const tutti_method *m, tutti_error *err);
tutti_status tutti_base_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
tutti_status tutti_exchange_declare(tutti_method *m, tutti_plan *plan, const char *spec,
                                    tutti_error *err);
tutti_status tutti_team_parse(const tutti_method *m, const char *option, const char *value,
                              int *team, tutti_error *err);
const char *tutti_exchange_codec(const tutti_method *m);
tutti_rate tutti_rate_at(const tutti_method *m, uint64_t updates);
tutti_status tutti_base_step(tutti_method *m, tutti_error *err);
tutti_status tutti_base_step_on(tutti_method *m, float *x, tutti_monitor *lock, double factor,
                                tutti_error *err);
tutti_status tutti_base_step_counted(tutti_method *m, int64_t *updates, tutti_error *err);
tutti_status tutti_base_check(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
tutti_status tutti_base_gradient(tutti_method *m, tutti_rate *rate, bool *skip, tutti_error *err);
tutti_status tutti_values_get(tutti_method *m, tutti_error *err);
void tutti_values_set(tutti_method *m);
tutti_status tutti_optimizer_declare(tutti_method *m, tutti_plan *plan, size_t first, size_t count,
                                     tutti_keep keep, tutti_error *err);
tutti_status tutti_buffers_declare(tutti_method *m, tutti_plan *plan, bool average,
                                   tutti_error *err);
void tutti_buffers_reset(tutti_method *m);
tutti_status tutti_buffers_average(tutti_method *m, tutti_error *err);
void tutti_end(tutti_method *m);
void tutti_stale(tutti_method *m, uint64_t staleness);
tutti_status tutti_average(tutti_method *m, float *x, tutti_error *err);
tutti_status tutti_sum(tutti_method *m, float *x, size_t n, tutti_error *err);
tutti_status tutti_gather(tutti_method *m, const float *mine, size_t n, float *all,
                          tutti_error *err);
tutti_status tutti_gather_v(tutti_method *m, const size_t *counts, tutti_buffer mine,
                            tutti_buffer all, tutti_error *err);
tutti_status tutti_round_next(tutti_method *m, int service, bool free, tutti_error *err);
void tutti_round_post(tutti_method *m, int service, int64_t rounds);
tutti_status tutti_round_await(tutti_method *m, int service, int64_t most, tutti_error *err);
tutti_status tutti_rpc_call(tutti_method *m, int service, int member, tutti_header *note,
                            tutti_buffer request, tutti_buffer reply, tutti_error *err);
tutti_status tutti_rpc_receive(tutti_method *m, int service, tutti_header *note, tutti_buffer room,
                               int64_t deadline_ns, tutti_error *err);
tutti_status tutti_rpc_reply(tutti_method *m, const tutti_header *request,
                             const tutti_header *answer, tutti_error *err);
bool tutti_is_left_out(const tutti_method *m, tutti_status status, const tutti_error *err);
void tutti_metric(tutti_method *m, const char *name, int worker, double value);
void tutti_metric_at(tutti_method *m, const char *name, int worker, int64_t at, double value);
void tutti_metric_histogram(tutti_method *m, const char *name, int worker,
                            const tutti_histogram *h);
void tutti_event(tutti_method *m, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum {
    TUTTI_REPLICAS_EQUAL = 1,
    TUTTI_OWNS_UPDATE = 2,
    TUTTI_FAULT_TOLERANT = 4,
    TUTTI_ASYNC = 8,
    TUTTI_TAKES_CODEC = 16,
    TUTTI_NON_GRADIENT_UPDATE = 32,
    TUTTI_SPARSE_ROWS = 64,
    TUTTI_SHARDED_OPTIMIZER = 128,
    TUTTI_THROUGH_SERVERS = 256,
    TUTTI_PARAMETER_SERVERS = 512,
    TUTTI_RECOMPUTES = 1024,
    TUTTI_DDP_EQUIVALENT = 2048,
    TUTTI_FAIL_STOP = 4096,
    TUTTI_DDP_EQUIVALENT_ALONE = 8192,
    TUTTI_SHARDED_PARAMETERS = 16384,
    TUTTI_PIPELINE_SCHEDULE = 32768,
    TUTTI_PROFILES_UNITS = 65536,
    TUTTI_UNSYNCHRONIZED_STEPS = 131072,
    TUTTI_NEVER_SKIPS = 262144,
    TUTTI_ASKS_FOR_VALUES = 524288,
    TUTTI_LOGICAL_SHARES = 1048576,
    TUTTI_WHOLE_STEPS = 2097152
};
typedef struct tutti_axes {
    const char *topology, *synchrony, *codec, *schedule, *placement, *update;
} tutti_axes;
typedef enum tutti_held { TUTTI_HELD_WHOLE, TUTTI_HELD_BY_PIECE, TUTTI_HELD_BY_UNIT } tutti_held;
typedef enum tutti_order { TUTTI_ORDER_READY, TUTTI_ORDER_LED } tutti_order;
typedef struct tutti_service {
    const char *name;
    tutti_status (*run)(tutti_method *m, tutti_error *err);
    bool receives_losses;
} tutti_service;
enum { TUTTI_SERVICES_MOST = 4 };
typedef struct tutti_method_default {
    const char *option;
    const char *value;
    const char *when;
} tutti_method_default;
#define TUTTI_SETTLES_UNKNOWN UINT64_MAX
typedef struct tutti_method_ops {
    const char *name, *title, *authors, *family;
    int year;
    tutti_axes axes;
    const char *const *constraints;
    const tutti_option *options;
    const tutti_method_default *defaults;
    size_t self_bytes;
    void (*ignore_on_resume)(void *self);
    unsigned traits;
    unsigned (*traits_of)(const void *self);
    const tutti_service *services;
    bool (*serves)(const void *self);
    uint64_t (*settles)(const void *self, uint64_t steps, uint64_t epoch);
    uint64_t (*repeats)(const void *self);
    tutti_status (*declare)(tutti_method *m, tutti_plan *plan, tutti_error *err);
    tutti_status (*open)(tutti_method *m, tutti_error *err);
    void (*close)(tutti_method *m);
    tutti_status (*pass)(tutti_method *m, tutti_pass *p, tutti_error *err);
    tutti_status (*unit_acquire)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*unit_release)(tutti_method *m, int unit, bool backward, tutti_error *err);
    tutti_status (*exchange)(tutti_method *m, tutti_piece *p, tutti_error *err);
    tutti_status (*drive)(tutti_method *m, uint64_t until, tutti_error *err);
    tutti_status (*step)(tutti_method *m, tutti_error *err);
    tutti_status (*final_model)(tutti_method *m, tutti_error *err);
    tutti_status (*retire)(tutti_method *m, tutti_error *err);
    tutti_status (*quiesce)(tutti_method *m, tutti_error *err);
    tutti_status (*resume)(tutti_method *m, tutti_error *err);
    tutti_status (*rows_acquire)(tutti_method *m, int tensor, const uint32_t *ids, size_t n,
                                 tutti_error *err);
    tutti_status (*resized)(tutti_method *m, int began, int left, tutti_error *err);
} tutti_method_ops;
struct tutti_method {
    const tutti_method_ops *ops;
    unsigned traits;
    void *self;
    tutti_world *world; tutti_runtime *rt; tutti_device *device;
    const struct tutti_codec_ops *const *codecs;
    const tutti_layout *layout;
    size_t n;
    float *x, *g;
    tutti_group all;
    tutti_group everyone;
    int rank, workers;
    int servers;
    tutti_range own;
    float *own_x, *own_g;
    int member, stage;
    int replica, replicas;
    tutti_optim *optim;
    int team;
    int lane_width;
    bool all_on_lane;
    bool whole;
    size_t piece_bytes, first_piece_bytes;
    bool cut_bytes;
    size_t close_bytes, piece_bytes_least;
    bool by_piece, no_step;
    tutti_order order;
    bool forward_first;
    size_t credit;
    tutti_held held;
    size_t keep_values;
    bool overlaps_steps;
    tutti_rng rng;
    uint64_t step, epoch;
    uint64_t steps, epochs;
    int64_t samples;
    double weight;
    const tutti_share *share;
    bool names;
    double loss;
    double lr;
    void *engine;
};
extern const tutti_method_ops *const tutti_methods[];
const tutti_method_ops *tutti_method_find(const char *name);
enum {
    TUTTI_METHOD_DEFAULT_LONGEST = 128,
    TUTTI_METHOD_DEFAULT_BYTES = 4096 + 2 * TUTTI_METHOD_DEFAULT_LONGEST
};
bool tutti_method_default_of(const tutti_method_ops *ops, const char *spec, const char *option,
                             const char *given, int workers,
                             char value[TUTTI_METHOD_DEFAULT_BYTES]);
bool tutti_method_traits(const char *spec, unsigned *traits);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_METHOD_GOSSIP_H
#define TUTTI_METHOD_GOSSIP_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
enum { TUTTI_GRAPH_SIZE_MAX = 1 << 16, TUTTI_GRAPH_GAP_MAX = 2048 };
typedef struct tutti_graph tutti_graph;
tutti_status tutti_graph_open(tutti_graph **out, const char *spec, int n, tutti_error *err);
tutti_status tutti_graph_open_push(tutti_graph **out, const char *spec, int n, tutti_error *err);
void tutti_graph_close(tutti_graph *graph);
int tutti_graph_size(const tutti_graph *graph);
uint64_t tutti_graph_period(const tutti_graph *graph);
int tutti_graph_degree(const tutti_graph *graph);
void tutti_graph_round(const tutti_graph *graph, uint64_t k, int i, int *in, double *w_in,
                       int *n_in, int *out, double *w_out, int *n_out, double *self);
double tutti_graph_messages(const tutti_graph *graph);
tutti_status tutti_graph_require(const tutti_graph *graph, const char *property, tutti_error *err);
bool tutti_graph_is(const tutti_graph *graph, const char *property);
tutti_status tutti_graph_gap(const tutti_graph *graph, double *gap, tutti_error *err);
bool tutti_graph_family(int i, const char **name, const char **help, const tutti_option **options);
typedef int64_t tutti_mass;
#define TUTTI_MASS_ONE ((tutti_mass)1 << 44)
static inline double tutti_mass_real(tutti_mass mass)
{
    return (double)mass / (double)TUTTI_MASS_ONE;
}
typedef struct tutti_mixer tutti_mixer;
typedef struct tutti_mixer_options {
    const char *graph;
    bool push;
    bool encode;
    bool ahead;
    double gamma;
    bool cross;
    int team;
    bool by_tensor;
} tutti_mixer_options;
#define TUTTI_MIXER_GRAPH(at) \
    { "graph", TUTTI_SPEC, at, 0, 0, 0, "ring", \
      "which workers average with each other; `tutti topology` lists the graphs" }
#define TUTTI_MIXER_GAMMA(at, when) \
    { "gamma", TUTTI_REAL, at, 0, 0, 1, NULL, \
      "with codec: how far a round goes towards the neighbours' public copies; 0: by what the " \
      "codec keeps", when }
tutti_status tutti_mixer_declare(tutti_mixer **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_mixer_options *options, tutti_error *err);
tutti_status tutti_mix(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass,
                       tutti_error *err);
void tutti_mix_start(tutti_mixer *mixer, uint64_t k, const float *u, float *x, tutti_mass *mass);
tutti_status tutti_mix_wait(tutti_mixer *mixer, tutti_error *err);
typedef struct tutti_averager tutti_averager;
tutti_status tutti_averager_declare(tutti_averager **out, tutti_method *m, tutti_plan *plan,
                                    const char *graph, int64_t rounds, int64_t ahead,
                                    const int services[4], tutti_error *err);
void tutti_averager_read(tutti_averager *a);
tutti_status tutti_averager_update(tutti_averager *a, int64_t outstanding, tutti_error *err);
tutti_status tutti_averager_average(tutti_averager *a, tutti_error *err);
void tutti_averager_post(tutti_averager *a);
tutti_status tutti_averager_tell(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_beat(tutti_averager *a, tutti_error *err);
tutti_status tutti_averager_mix(tutti_averager *a, tutti_error *err);
typedef struct tutti_pairs_options {
    const char *graph;
    int peer;
    int roles;
    int64_t exchanges, outstanding;
    bool lr_staleness;
} tutti_pairs_options;
#define TUTTI_PAIRS_OPTIONS(self, options, whose) \
    { "graph", TUTTI_SPEC, TUTTI_AT(self, options.graph), 0, 0, 0, "", \
      "which workers may average with each other; `tutti topology` lists the graphs; none: " \
      "bipartite-exp, complete for an odd number of " whose }, \
    { "peer", TUTTI_CHOICE, TUTTI_AT(self, options.peer), 0, 0, 1, "random|cyclic", \
      "which neighbour is asked next" }, \
    { "roles", TUTTI_CHOICE, TUTTI_AT(self, options.roles), 0, 0, 1, "any|bipartite", \
      "any: all ask and answer; bipartite: the paper's, one group asks the other; no odd " \
      "cycles" }, \
    { "exchanges", TUTTI_INT, TUTTI_AT(self, options.exchanges), 1, 0, 1e6, NULL, \
      "averagings a step of a worker that asks; 0: as often as the network allows" }, \
    { "outstanding", TUTTI_INT, TUTTI_AT(self, options.outstanding), 1, -1, 1e6, NULL, \
      "averagings that may be pending when the next gradient begins, not counting those " \
      "whose answer is late; 0: no overlap; -1: any number" }, \
    { "lr_staleness", TUTTI_BOOL, TUTTI_AT(self, options.lr_staleness), 0, 0, 1, NULL, \
      "divide the learning rate by 1 + staleness" }
typedef struct tutti_pairs tutti_pairs;
tutti_status tutti_pairs_declare(tutti_pairs **out, tutti_method *m, tutti_plan *plan,
                                 const tutti_pairs_options *options, const int services[2],
                                 tutti_error *err);
tutti_status tutti_pairs_read(tutti_pairs *p, tutti_error *err);
tutti_status tutti_pairs_update(tutti_pairs *p, tutti_error *err);
tutti_status tutti_pairs_ask(tutti_pairs *p, tutti_error *err);
tutti_status tutti_pairs_answer(tutti_pairs *p, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_METHOD_PIPELINE_H
#define TUTTI_METHOD_PIPELINE_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
enum { TUTTI_PIPELINE_STAGES_MOST = 8, TUTTI_PIPELINE_UNITS_MOST = 200 };
typedef struct tutti_pipeline_plan {
    int stages, in_flight;
    int first[TUTTI_PIPELINE_STAGES_MOST + 1];
    int worker[TUTTI_PIPELINE_STAGES_MOST];
    double seconds[TUTTI_PIPELINE_STAGES_MOST], bytes[TUTTI_PIPELINE_STAGES_MOST];
    double slowest;
    double rate;
} tutti_pipeline_plan;
typedef struct tutti_model_unit {
    bool cut;
    double forward, backward;
    size_t enters;
    size_t kept;
    size_t given;
} tutti_model_unit;
typedef struct tutti_model {
    void *self;
    const char *spec;
    const char *whole;
    int units;
    const tutti_model_unit *unit;
    int64_t samples;
    tutti_status (*open)(void *self, int first, int end, int slots, int64_t samples, bool apart,
                         tutti_error *err);
    tutti_status (*forward)(void *self, int slot, const tutti_pass *pass, const float *values,
                            const float *in, float *out, bool *over, tutti_error *err);
    tutti_status (*backward)(void *self, int slot, const tutti_pass *pass, const float *values,
                             const float *slope, float *gradient, float *back, bool *over,
                             double *loss, tutti_error *err);
    tutti_status (*go_on)(void *self, int slot, bool *over, double *loss, tutti_error *err);
    size_t (*held)(void *self);
    const double *seconds;
} tutti_model;
enum { TUTTI_DRIVE_STAGES_MOST = 64 };
tutti_status tutti_drive_model(const tutti_method *m, const tutti_model **model, tutti_error *err);
typedef struct tutti_drive_options {
    int pipelines, stages;
    const int *first;
    const int *worker;
    const int *width;
    int64_t samples, passes;
    int slots;
    bool apart;
    bool alike;
    bool own_cuts;
} tutti_drive_options;
tutti_status tutti_drive_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_drive_options *options, tutti_error *err);
void tutti_drive_pass(const tutti_method *m, uint64_t step, int64_t index, tutti_pass *pass);
tutti_status tutti_drive_forward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                 const float *values, const float *in, float *out,
                                 tutti_error *err);
tutti_status tutti_drive_backward(tutti_method *m, uint64_t step, int slot, const tutti_pass *pass,
                                  const float *values, const float *slope, float *gradient,
                                  float *back, tutti_error *err);
void tutti_drive_waits(tutti_method *m, bool waits);
tutti_rate tutti_drive_rate(const tutti_method *m, uint64_t step, uint64_t t);
tutti_status tutti_drive_update(tutti_method *m, tutti_optim *optim, float *values,
                                const float *gradient, const tutti_rate *rate, tutti_error *err);
typedef struct tutti_pipe tutti_pipe;
typedef struct tutti_pipe_options {
    int stages, stage, in_flight;
    const int *ranks;
    uint64_t key;
    size_t enters, leaves;
    const int *width;
    int member;
    int64_t period;
} tutti_pipe_options;
typedef struct tutti_pipe_work {
    void *self;
    tutti_status (*forward)(void *self, int64_t p, int slot, const float *in, size_t entered,
                            float *out, size_t *left, tutti_error *err);
    tutti_status (*backward)(void *self, int64_t p, int slot, const float *slope, float *back,
                             tutti_error *err);
    int64_t (*admitted)(void *self);
    tutti_status (*await)(void *self, int64_t p, tutti_error *err);
    tutti_request *(*admits)(void *self);
    void (*waits)(void *self, bool waits);
} tutti_pipe_work;
tutti_status tutti_pipe_open(tutti_pipe **out, tutti_world *world,
                             const tutti_pipe_options *options, tutti_error *err);
void tutti_pipe_close(tutti_pipe *pipe);
tutti_status tutti_pipe_run(tutti_pipe *pipe, int64_t last, const tutti_pipe_work *work,
                            tutti_error *err);
typedef struct tutti_cut_options {
    int stages, in_flight;
    int64_t samples;
    const double *speed;
    const double *memory;
    double gflops;
    const double *seconds;
    double bandwidth;
    double more;
} tutti_cut_options;
tutti_status tutti_cut_stages(const tutti_method *m, const tutti_model *model,
                              const tutti_cut_options *options, tutti_pipeline_plan *plan,
                              tutti_error *err);
int tutti_cut_most(const tutti_model *model);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_METHOD_SERVER_H
#define TUTTI_METHOD_SERVER_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct tutti_server tutti_server;
typedef struct tutti_server_request {
    tutti_header note;
    int worker;
    uint32_t kind;
    int64_t b;
    uint64_t delay;
    float *in;
    size_t words;
    bool stays;
    size_t first, count;
} tutti_server_request;
typedef tutti_status (*tutti_server_rule)(tutti_method *m, const tutti_server_request *r,
                                          tutti_error *err);
typedef tutti_status (*tutti_server_loss)(tutti_method *m, int worker, tutti_error *err);
typedef enum { TUTTI_FEEDBACK_AUTO, TUTTI_FEEDBACK_ON, TUTTI_FEEDBACK_OFF } tutti_feedback;
typedef struct tutti_server_setup {
    tutti_server_rule rule;
    int service;
    int servers;
    bool whole;
    bool collects;
    bool reads;
    bool times;
    bool pieces, tables;
    tutti_status (*due)(tutti_method *m, tutti_error *err);
    tutti_dtype wire;
    bool even;
    int node, rails;
    bool turns, undivided, mixed;
    const uint32_t *parts;
    bool codec;
    tutti_feedback feedback;
    bool anew;
    bool tells;
    tutti_server_loss lost;
} tutti_server_setup;
static inline unsigned tutti_server_traits(unsigned traits, bool all_serve)
{
    return all_serve ? traits & ~(unsigned)TUTTI_FAULT_TOLERANT : traits;
}
tutti_status tutti_server_declare(tutti_server **out, tutti_method *m, tutti_plan *plan,
                                  const tutti_server_setup *setup, tutti_error *err);
tutti_status tutti_server_table_fits(const tutti_server *s, tutti_dtype dtype, double limit_mb,
                                     const char *mend, tutti_error *err);
tutti_status tutti_server_run(tutti_server *s, tutti_error *err);
tutti_status tutti_server_final_model(tutti_server *s, tutti_error *err);
int tutti_server_index(const tutti_server *s);
size_t tutti_server_part(const tutti_server *s, int k, size_t first, size_t count,
                         size_t *part_first);
typedef struct tutti_server_answers {
    uint32_t kind;
    uint64_t delay;
    bool values;
} tutti_server_answers;
tutti_status tutti_server_push(tutti_server *s, uint32_t kind, int64_t b, float *values,
                               float *into, tutti_server_answers *answers, tutti_error *err);
tutti_status tutti_server_ask(tutti_server *s, int k, uint32_t kind, int64_t b,
                              tutti_server_answers *answers, tutti_error *err);
tutti_status tutti_server_need_rows(tutti_server *s, int tensor, const uint32_t *ids, size_t n,
                                    tutti_error *err);
typedef struct tutti_server_sums tutti_server_sums;
typedef struct tutti_server_sums_options {
    int service;
    int servers;
    bool even;
    int node, rails;
    bool undivided, mixed;
    const uint32_t *parts;
    tutti_dtype wire;
    bool codec;
    tutti_feedback feedback;
    int slots;
    const char *slots_name;
    bool reports;
} tutti_server_sums_options;
tutti_status tutti_server_node(const tutti_method *m, const char *value, int *node, char *why,
                               size_t bytes, tutti_error *err);
tutti_status tutti_server_sums_declare(tutti_server_sums **out, tutti_method *m, tutti_plan *plan,
                                       const tutti_server_sums_options *options, tutti_error *err);
tutti_status tutti_server_sums_run(tutti_server_sums *s, tutti_error *err);
tutti_status tutti_server_sums_exchange(tutti_server_sums *s, tutti_piece *p, tutti_error *err);
void tutti_server_sums_watch(tutti_server_sums *s, bool step);
tutti_status tutti_server_sums_final_model(tutti_server_sums *s, tutti_error *err);
float *tutti_server_values(tutti_server *s);
bool tutti_server_has(const tutti_server *s, int worker);
uint64_t tutti_server_version(const tutti_server *s);
double tutti_server_seconds(const tutti_server *s, int worker);
int64_t tutti_server_given_ns(const tutti_server *s, int worker);
void tutti_server_update(tutti_server *s, const float *g, const tutti_rate *rate);
void tutti_server_collect(tutti_server *s, float a, const float *in, float *sum);
void tutti_server_update_collected(tutti_server *s, float *sum, const tutti_rate *rate);
void tutti_server_add(tutti_server *s, float a, const float *d);
void tutti_server_wake_at(tutti_server *s, int64_t at_ns);
tutti_status tutti_server_give(tutti_server *s, const tutti_header *requests, int n, uint32_t kind,
                               tutti_error *err);
tutti_status tutti_server_give_each(tutti_server *s, const tutti_header *requests, int n,
                                    const uint32_t *kinds, tutti_error *err);
tutti_status tutti_server_answer(tutti_server *s, const tutti_header *requests, int n,
                                 uint32_t kind, float *payload, size_t count, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
#ifndef TUTTI_METHOD_STEPS_H
#define TUTTI_METHOD_STEPS_H
#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
tutti_status tutti_names_declare(tutti_method *m, tutti_error *err);
int64_t tutti_computed_ns(const tutti_method *m);
tutti_status tutti_passes_assign_declare(tutti_method *m, tutti_plan *plan, int64_t samples,
                                         tutti_error *err);
tutti_status tutti_passes_assign(tutti_method *m, const int64_t *passes_of, tutti_error *err);
tutti_status tutti_passes_divide(tutti_method *m, tutti_pass *p, tutti_error *err);
typedef struct tutti_batch_options {
    int64_t pass, most;
    bool leased, even;
    const char *record, *replay;
} tutti_batch_options;
#define TUTTI_BATCH_RECORD(at) \
    { "record", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file in which to record how many samples each worker took in each step", NULL, \
      "writes that file" }
#define TUTTI_BATCH_REPLAY(at) \
    { "replay", TUTTI_TEXT, at, 0, 0, 0, "", \
      "file of record: the same counts again, and so the same bits; on every host" }
tutti_status tutti_batch_declare(tutti_method *m, tutti_plan *plan,
                                 const tutti_batch_options *options, tutti_error *err);
tutti_status tutti_batch_exchange(tutti_method *m, tutti_pass *p, int64_t mine, int64_t *of,
                                  tutti_error *err);
tutti_status tutti_batch_set(tutti_method *m, tutti_pass *p, const int64_t *wanted, int64_t *of,
                             tutti_error *err);
bool tutti_batch_next_pass(tutti_method *m, bool wanted);
tutti_status tutti_batch_close(tutti_method *m, int64_t *of, tutti_error *err);
void tutti_batch_divide_by(tutti_method *m, double samples);
tutti_status tutti_by_piece_declare(tutti_method *m, tutti_error *err);
tutti_status tutti_recut(tutti_method *m, size_t piece_bytes, size_t first_piece_bytes,
                         tutti_error *err);
tutti_status tutti_shards_group(tutti_method *m, const char *option, const char *value,
                                tutti_error *err);
tutti_status tutti_shards_declare(tutti_method *m, tutti_plan *plan, tutti_error *err);
tutti_status tutti_shards_exchange(tutti_method *m, tutti_piece *p, tutti_error *err);
tutti_status tutti_shards_step(tutti_method *m, tutti_error *err);
size_t tutti_shards_count(const tutti_method *m, int worker);
size_t tutti_held_bytes(const tutti_method *m);
size_t tutti_units_bytes(const tutti_method *m);
typedef struct tutti_tune_options {
    tutti_tuner_options tuner;
    int64_t drop, steps;
    tutti_status (*apply)(tutti_method *m, const double *value, tutti_error *err);
} tutti_tune_options;
tutti_status tutti_tune_declare(tutti_method *m, tutti_plan *plan,
                                const tutti_tune_options *options, tutti_error *err);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
__typeof__(&tutti_version) interface_tutti_version;
__typeof__(&tutti_status_name) interface_tutti_status_name;
__typeof__(&tutti_fail) interface_tutti_fail;
__typeof__(&tutti_fail_rank) interface_tutti_fail_rank;
__typeof__(&tutti_fail_within) interface_tutti_fail_within;
__typeof__(&tutti_alloc) interface_tutti_alloc;
__typeof__(&tutti_free) interface_tutti_free;
__typeof__(&tutti_copy_text) interface_tutti_copy_text;
__typeof__(&tutti_variable) interface_tutti_variable;
__typeof__(&tutti_size_mul) interface_tutti_size_mul;
__typeof__(&tutti_size_add) interface_tutti_size_add;
__typeof__(&tutti_random) interface_tutti_random;
__typeof__(&tutti_uniform) interface_tutti_uniform;
__typeof__(&tutti_normal) interface_tutti_normal;
__typeof__(&tutti_permuted) interface_tutti_permuted;
__typeof__(&tutti_hash) interface_tutti_hash;
__typeof__(&tutti_options_default) interface_tutti_options_default;
__typeof__(&tutti_options_check) interface_tutti_options_check;
__typeof__(&tutti_option_positives) interface_tutti_option_positives;
__typeof__(&tutti_option_find) interface_tutti_option_find;
__typeof__(&tutti_suggest) interface_tutti_suggest;
__typeof__(&tutti_spec_open) interface_tutti_spec_open;
__typeof__(&tutti_spec_close) interface_tutti_spec_close;
__typeof__(&tutti_spec_name) interface_tutti_spec_name;
__typeof__(&tutti_spec_apply) interface_tutti_spec_apply;
__typeof__(&tutti_share_passes) interface_tutti_share_passes;
__typeof__(&tutti_share_apportion) interface_tutti_share_apportion;
__typeof__(&tutti_share_steps) interface_tutti_share_steps;
__typeof__(&tutti_share_pass) interface_tutti_share_pass;
__typeof__(&tutti_share_step) interface_tutti_share_step;
__typeof__(&tutti_share_sample) interface_tutti_share_sample;
__typeof__(&tutti_share_sample_of) interface_tutti_share_sample_of;
__typeof__(&tutti_runtime_open_posix) interface_tutti_runtime_open_posix;
__typeof__(&tutti_runtime_close) interface_tutti_runtime_close;
__typeof__(&tutti_now_ns) interface_tutti_now_ns;
__typeof__(&tutti_sleep_until) interface_tutti_sleep_until;
__typeof__(&tutti_charge) interface_tutti_charge;
__typeof__(&tutti_thread_open) interface_tutti_thread_open;
__typeof__(&tutti_thread_join) interface_tutti_thread_join;
__typeof__(&tutti_monitor_open) interface_tutti_monitor_open;
__typeof__(&tutti_monitor_close) interface_tutti_monitor_close;
__typeof__(&tutti_lock) interface_tutti_lock;
__typeof__(&tutti_unlock) interface_tutti_unlock;
__typeof__(&tutti_wait) interface_tutti_wait;
__typeof__(&tutti_wake) interface_tutti_wake;
__typeof__(&tutti_entropy) interface_tutti_entropy;
__typeof__(&tutti_device_charge) interface_tutti_device_charge;
__typeof__(&tutti_dtype_bytes) interface_tutti_dtype_bytes;
__typeof__(&tutti_dtype_name) interface_tutti_dtype_name;
__typeof__(&tutti_copy) interface_tutti_copy;
__typeof__(&tutti_fill) interface_tutti_fill;
__typeof__(&tutti_add) interface_tutti_add;
__typeof__(&tutti_scale) interface_tutti_scale;
__typeof__(&tutti_axpy) interface_tutti_axpy;
__typeof__(&tutti_blend) interface_tutti_blend;
__typeof__(&tutti_diff) interface_tutti_diff;
__typeof__(&tutti_add_diff) interface_tutti_add_diff;
__typeof__(&tutti_lerp) interface_tutti_lerp;
__typeof__(&tutti_tree_sum) interface_tutti_tree_sum;
__typeof__(&tutti_norm2) interface_tutti_norm2;
__typeof__(&tutti_dot) interface_tutti_dot;
__typeof__(&tutti_norm1) interface_tutti_norm1;
__typeof__(&tutti_finite) interface_tutti_finite;
__typeof__(&tutti_cast) interface_tutti_cast;
__typeof__(&tutti_keep_name) interface_tutti_keep_name;
__typeof__(&tutti_declare) interface_tutti_declare;
__typeof__(&tutti_declare_vector) interface_tutti_declare_vector;
__typeof__(&tutti_declare_value) interface_tutti_declare_value;
__typeof__(&tutti_declare_late_value) interface_tutti_declare_late_value;
__typeof__(&tutti_codec_find) interface_tutti_codec_find;
__typeof__(&tutti_codec_listed) interface_tutti_codec_listed;
__typeof__(&tutti_relay_open) interface_tutti_relay_open;
__typeof__(&tutti_relay_close) interface_tutti_relay_close;
__typeof__(&tutti_relay_traits) interface_tutti_relay_traits;
__typeof__(&tutti_relay_state) interface_tutti_relay_state;
__typeof__(&tutti_relay_steps) interface_tutti_relay_steps;
__typeof__(&tutti_relay_resume) interface_tutti_relay_resume;
__typeof__(&tutti_relay_begin) interface_tutti_relay_begin;
__typeof__(&tutti_parcel_open) interface_tutti_parcel_open;
__typeof__(&tutti_parcel_close) interface_tutti_parcel_close;
__typeof__(&tutti_parcel_send) interface_tutti_parcel_send;
__typeof__(&tutti_parcel_next) interface_tutti_parcel_next;
__typeof__(&tutti_transport_load) interface_tutti_transport_load;
__typeof__(&tutti_transport_check) interface_tutti_transport_check;
__typeof__(&tutti_world_open) interface_tutti_world_open;
__typeof__(&tutti_world_open_telling) interface_tutti_world_open_telling;
__typeof__(&tutti_world_run) interface_tutti_world_run;
__typeof__(&tutti_world_run_on) interface_tutti_world_run_on;
__typeof__(&tutti_world_close) interface_tutti_world_close;
__typeof__(&tutti_world_runtime) interface_tutti_world_runtime;
__typeof__(&tutti_world_device) interface_tutti_world_device;
__typeof__(&tutti_world_rank) interface_tutti_world_rank;
__typeof__(&tutti_world_size) interface_tutti_world_size;
__typeof__(&tutti_world_transport) interface_tutti_world_transport;
__typeof__(&tutti_world_host) interface_tutti_world_host;
__typeof__(&tutti_world_survives) interface_tutti_world_survives;
__typeof__(&tutti_world_events) interface_tutti_world_events;
__typeof__(&tutti_world_lost) interface_tutti_world_lost;
__typeof__(&tutti_world_failure_report) interface_tutti_world_failure_report;
__typeof__(&tutti_world_folder) interface_tutti_world_folder;
__typeof__(&tutti_world_flight) interface_tutti_world_flight;
__typeof__(&tutti_world_sent) interface_tutti_world_sent;
__typeof__(&tutti_world_take) interface_tutti_world_take;
__typeof__(&tutti_world_give_back) interface_tutti_world_give_back;
__typeof__(&tutti_world_common) interface_tutti_world_common;
__typeof__(&tutti_world_shares) interface_tutti_world_shares;
__typeof__(&tutti_port_of) interface_tutti_port_of;
__typeof__(&tutti_send) interface_tutti_send;
__typeof__(&tutti_recv) interface_tutti_recv;
__typeof__(&tutti_post_send) interface_tutti_post_send;
__typeof__(&tutti_post_recv) interface_tutti_post_recv;
__typeof__(&tutti_wait_some) interface_tutti_wait_some;
__typeof__(&tutti_cancel) interface_tutti_cancel;
__typeof__(&tutti_group_of) interface_tutti_group_of;
__typeof__(&tutti_group_workers) interface_tutti_group_workers;
__typeof__(&tutti_group_rank) interface_tutti_group_rank;
__typeof__(&tutti_group_keyed) interface_tutti_group_keyed;
__typeof__(&tutti_group_compare) interface_tutti_group_compare;
__typeof__(&tutti_group_give_up) interface_tutti_group_give_up;
__typeof__(&tutti_allreduce) interface_tutti_allreduce;
__typeof__(&tutti_allreduce_from) interface_tutti_allreduce_from;
__typeof__(&tutti_allreduce_weighted) interface_tutti_allreduce_weighted;
__typeof__(&tutti_reduce) interface_tutti_reduce;
__typeof__(&tutti_reduce_from) interface_tutti_reduce_from;
__typeof__(&tutti_reduce_scatter) interface_tutti_reduce_scatter;
__typeof__(&tutti_reduce_scatter_v) interface_tutti_reduce_scatter_v;
__typeof__(&tutti_allgather) interface_tutti_allgather;
__typeof__(&tutti_allgather_v) interface_tutti_allgather_v;
__typeof__(&tutti_gather_parts) interface_tutti_gather_parts;
__typeof__(&tutti_gather_parts_v) interface_tutti_gather_parts_v;
__typeof__(&tutti_scatter_parts) interface_tutti_scatter_parts;
__typeof__(&tutti_scatter_parts_v) interface_tutti_scatter_parts_v;
__typeof__(&tutti_alltoall) interface_tutti_alltoall;
__typeof__(&tutti_alltoall_v) interface_tutti_alltoall_v;
__typeof__(&tutti_broadcast) interface_tutti_broadcast;
__typeof__(&tutti_barrier) interface_tutti_barrier;
__typeof__(&tutti_reduce_double) interface_tutti_reduce_double;
__typeof__(&tutti_elastic_open) interface_tutti_elastic_open;
__typeof__(&tutti_elastic_next) interface_tutti_elastic_next;
__typeof__(&tutti_elastic_commit) interface_tutti_elastic_commit;
__typeof__(&tutti_elastic_over) interface_tutti_elastic_over;
__typeof__(&tutti_elastic_leave) interface_tutti_elastic_leave;
__typeof__(&tutti_elastic_sockets) interface_tutti_elastic_sockets;
__typeof__(&tutti_elastic_fail) interface_tutti_elastic_fail;
__typeof__(&tutti_elastic_close) interface_tutti_elastic_close;
__typeof__(&tutti_safetensors_write) interface_tutti_safetensors_write;
__typeof__(&tutti_safetensors_open) interface_tutti_safetensors_open;
__typeof__(&tutti_safetensors_close) interface_tutti_safetensors_close;
__typeof__(&tutti_safetensors_count) interface_tutti_safetensors_count;
__typeof__(&tutti_safetensors_entry) interface_tutti_safetensors_entry;
__typeof__(&tutti_safetensors_find) interface_tutti_safetensors_find;
__typeof__(&tutti_safetensors_metadata) interface_tutti_safetensors_metadata;
__typeof__(&tutti_safetensors_read) interface_tutti_safetensors_read;
__typeof__(&tutti_checkpoint_save) interface_tutti_checkpoint_save;
__typeof__(&tutti_checkpoint_find) interface_tutti_checkpoint_find;
__typeof__(&tutti_checkpoint_open) interface_tutti_checkpoint_open;
__typeof__(&tutti_checkpoint_close) interface_tutti_checkpoint_close;
__typeof__(&tutti_checkpoint_step) interface_tutti_checkpoint_step;
__typeof__(&tutti_checkpoint_world) interface_tutti_checkpoint_world;
__typeof__(&tutti_checkpoint_has) interface_tutti_checkpoint_has;
__typeof__(&tutti_checkpoint_facts) interface_tutti_checkpoint_facts;
__typeof__(&tutti_checkpoint_piece) interface_tutti_checkpoint_piece;
__typeof__(&tutti_checkpoint_read) interface_tutti_checkpoint_read;
__typeof__(&tutti_checkpoint_verify) interface_tutti_checkpoint_verify;
__typeof__(&tutti_record_open) interface_tutti_record_open;
__typeof__(&tutti_record_span) interface_tutti_record_span;
__typeof__(&tutti_record_loss) interface_tutti_record_loss;
__typeof__(&tutti_record_log) interface_tutti_record_log;
__typeof__(&tutti_record_step) interface_tutti_record_step;
__typeof__(&tutti_record_close) interface_tutti_record_close;
__typeof__(&tutti_call_record_open) interface_tutti_call_record_open;
__typeof__(&tutti_call_record_call) interface_tutti_call_record_call;
__typeof__(&tutti_call_record_wait) interface_tutti_call_record_wait;
__typeof__(&tutti_call_record_waited) interface_tutti_call_record_waited;
__typeof__(&tutti_call_record_loss) interface_tutti_call_record_loss;
__typeof__(&tutti_call_record_log) interface_tutti_call_record_log;
__typeof__(&tutti_call_record_step) interface_tutti_call_record_step;
__typeof__(&tutti_call_record_clock) interface_tutti_call_record_clock;
__typeof__(&tutti_call_record_close) interface_tutti_call_record_close;
__typeof__(&tutti_launch_run) interface_tutti_launch_run;
__typeof__(&tutti_launch_find_place) interface_tutti_launch_find_place;
__typeof__(&tutti_engine_open) interface_tutti_engine_open;
__typeof__(&tutti_engine_open_from) interface_tutti_engine_open_from;
__typeof__(&tutti_engine_use_device) interface_tutti_engine_use_device;
__typeof__(&tutti_engine_close) interface_tutti_engine_close;
__typeof__(&tutti_engine_method) interface_tutti_engine_method;
__typeof__(&tutti_engine_values) interface_tutti_engine_values;
__typeof__(&tutti_engine_gradient) interface_tutti_engine_gradient;
__typeof__(&tutti_engine_handed) interface_tutti_engine_handed;
__typeof__(&tutti_engine_client_state) interface_tutti_engine_client_state;
__typeof__(&tutti_engine_more) interface_tutti_engine_more;
__typeof__(&tutti_engine_more_epochs) interface_tutti_engine_more_epochs;
__typeof__(&tutti_engine_more_samples) interface_tutti_engine_more_samples;
__typeof__(&tutti_engine_takes) interface_tutti_engine_takes;
__typeof__(&tutti_engine_ended) interface_tutti_engine_ended;
__typeof__(&tutti_engine_received) interface_tutti_engine_received;
__typeof__(&tutti_engine_pass_begin) interface_tutti_engine_pass_begin;
__typeof__(&tutti_engine_unit_acquire) interface_tutti_engine_unit_acquire;
__typeof__(&tutti_engine_rows_acquire) interface_tutti_engine_rows_acquire;
__typeof__(&tutti_engine_unit_release) interface_tutti_engine_unit_release;
__typeof__(&tutti_engine_grad_ready) interface_tutti_engine_grad_ready;
__typeof__(&tutti_engine_grad_ready_from) interface_tutti_engine_grad_ready_from;
__typeof__(&tutti_engine_grad_ready_rows) interface_tutti_engine_grad_ready_rows;
__typeof__(&tutti_engine_grad_ready_rows_from) interface_tutti_engine_grad_ready_rows_from;
__typeof__(&tutti_engine_pass_end) interface_tutti_engine_pass_end;
__typeof__(&tutti_engine_step) interface_tutti_engine_step;
__typeof__(&tutti_engine_lr) interface_tutti_engine_lr;
__typeof__(&tutti_engine_drive) interface_tutti_engine_drive;
__typeof__(&tutti_engine_received_most) interface_tutti_engine_received_most;
__typeof__(&tutti_engine_reshare) interface_tutti_engine_reshare;
__typeof__(&tutti_engine_share) interface_tutti_engine_share;
__typeof__(&tutti_engine_finish) interface_tutti_engine_finish;
__typeof__(&tutti_engine_eval_begin) interface_tutti_engine_eval_begin;
__typeof__(&tutti_engine_eval_end) interface_tutti_engine_eval_end;
__typeof__(&tutti_engine_apart) interface_tutti_engine_apart;
__typeof__(&tutti_engine_swap) interface_tutti_engine_swap;
__typeof__(&tutti_engine_save) interface_tutti_engine_save;
__typeof__(&tutti_engine_save_begin) interface_tutti_engine_save_begin;
__typeof__(&tutti_engine_save_end) interface_tutti_engine_save_end;
__typeof__(&tutti_engine_saves) interface_tutti_engine_saves;
__typeof__(&tutti_engine_load) interface_tutti_engine_load;
__typeof__(&tutti_engine_whole) interface_tutti_engine_whole;
__typeof__(&tutti_engine_state) interface_tutti_engine_state;
__typeof__(&tutti_engine_state_written) interface_tutti_engine_state_written;
__typeof__(&tutti_engine_snapshots) interface_tutti_engine_snapshots;
__typeof__(&tutti_engine_snapshot) interface_tutti_engine_snapshot;
__typeof__(&tutti_engine_eval_snapshot) interface_tutti_engine_eval_snapshot;
__typeof__(&tutti_engine_drop_snapshots) interface_tutti_engine_drop_snapshots;
__typeof__(&tutti_engine_fault_tolerant) interface_tutti_engine_fault_tolerant;
__typeof__(&tutti_engine_has) interface_tutti_engine_has;
__typeof__(&tutti_engine_regroup) interface_tutti_engine_regroup;
__typeof__(&tutti_engine_settle) interface_tutti_engine_settle;
__typeof__(&tutti_engine_part) interface_tutti_engine_part;
__typeof__(&tutti_memory_name) interface_tutti_memory_name;
__typeof__(&tutti_engine_memory) interface_tutti_engine_memory;
__typeof__(&tutti_engine_payload) interface_tutti_engine_payload;
__typeof__(&tutti_engine_codec_records) interface_tutti_engine_codec_records;
__typeof__(&tutti_histogram_add) interface_tutti_histogram_add;
__typeof__(&tutti_histogram_bin) interface_tutti_histogram_bin;
__typeof__(&tutti_histogram_least) interface_tutti_histogram_least;
__typeof__(&tutti_engine_doing) interface_tutti_engine_doing;
__typeof__(&tutti_engine_figures) interface_tutti_engine_figures;
__typeof__(&tutti_engine_events) interface_tutti_engine_events;
__typeof__(&tutti_engine_metrics) interface_tutti_engine_metrics;
__typeof__(&tutti_engine_trace) interface_tutti_engine_trace;
__typeof__(&tutti_engine_trace_lost) interface_tutti_engine_trace_lost;
__typeof__(&tutti_optim_find) interface_tutti_optim_find;
__typeof__(&tutti_optim_declare) interface_tutti_optim_declare;
__typeof__(&tutti_optim_close) interface_tutti_optim_close;
__typeof__(&tutti_optim_lr) interface_tutti_optim_lr;
__typeof__(&tutti_update) interface_tutti_update;
__typeof__(&tutti_exchange) interface_tutti_exchange;
__typeof__(&tutti_exchange_all) interface_tutti_exchange_all;
__typeof__(&tutti_exchange_check_all) interface_tutti_exchange_check_all;
__typeof__(&tutti_base_exchange) interface_tutti_base_exchange;
__typeof__(&tutti_exchange_declare) interface_tutti_exchange_declare;
__typeof__(&tutti_team_parse) interface_tutti_team_parse;
__typeof__(&tutti_exchange_codec) interface_tutti_exchange_codec;
__typeof__(&tutti_rate_at) interface_tutti_rate_at;
__typeof__(&tutti_base_step) interface_tutti_base_step;
__typeof__(&tutti_base_step_on) interface_tutti_base_step_on;
__typeof__(&tutti_base_step_counted) interface_tutti_base_step_counted;
__typeof__(&tutti_base_check) interface_tutti_base_check;
__typeof__(&tutti_base_gradient) interface_tutti_base_gradient;
__typeof__(&tutti_values_get) interface_tutti_values_get;
__typeof__(&tutti_values_set) interface_tutti_values_set;
__typeof__(&tutti_optimizer_declare) interface_tutti_optimizer_declare;
__typeof__(&tutti_buffers_declare) interface_tutti_buffers_declare;
__typeof__(&tutti_buffers_reset) interface_tutti_buffers_reset;
__typeof__(&tutti_buffers_average) interface_tutti_buffers_average;
__typeof__(&tutti_end) interface_tutti_end;
__typeof__(&tutti_stale) interface_tutti_stale;
__typeof__(&tutti_average) interface_tutti_average;
__typeof__(&tutti_sum) interface_tutti_sum;
__typeof__(&tutti_gather) interface_tutti_gather;
__typeof__(&tutti_gather_v) interface_tutti_gather_v;
__typeof__(&tutti_round_next) interface_tutti_round_next;
__typeof__(&tutti_round_post) interface_tutti_round_post;
__typeof__(&tutti_round_await) interface_tutti_round_await;
__typeof__(&tutti_rpc_call) interface_tutti_rpc_call;
__typeof__(&tutti_rpc_receive) interface_tutti_rpc_receive;
__typeof__(&tutti_rpc_reply) interface_tutti_rpc_reply;
__typeof__(&tutti_is_left_out) interface_tutti_is_left_out;
__typeof__(&tutti_metric) interface_tutti_metric;
__typeof__(&tutti_metric_at) interface_tutti_metric_at;
__typeof__(&tutti_metric_histogram) interface_tutti_metric_histogram;
__typeof__(&tutti_event) interface_tutti_event;
__typeof__(&tutti_method_find) interface_tutti_method_find;
__typeof__(&tutti_method_default_of) interface_tutti_method_default_of;
__typeof__(&tutti_method_traits) interface_tutti_method_traits;
__typeof__(&tutti_graph_open) interface_tutti_graph_open;
__typeof__(&tutti_graph_open_push) interface_tutti_graph_open_push;
__typeof__(&tutti_graph_close) interface_tutti_graph_close;
__typeof__(&tutti_graph_size) interface_tutti_graph_size;
__typeof__(&tutti_graph_period) interface_tutti_graph_period;
__typeof__(&tutti_graph_degree) interface_tutti_graph_degree;
__typeof__(&tutti_graph_round) interface_tutti_graph_round;
__typeof__(&tutti_graph_messages) interface_tutti_graph_messages;
__typeof__(&tutti_graph_require) interface_tutti_graph_require;
__typeof__(&tutti_graph_is) interface_tutti_graph_is;
__typeof__(&tutti_graph_gap) interface_tutti_graph_gap;
__typeof__(&tutti_graph_family) interface_tutti_graph_family;
__typeof__(&tutti_mixer_declare) interface_tutti_mixer_declare;
__typeof__(&tutti_mix) interface_tutti_mix;
__typeof__(&tutti_mix_start) interface_tutti_mix_start;
__typeof__(&tutti_mix_wait) interface_tutti_mix_wait;
__typeof__(&tutti_averager_declare) interface_tutti_averager_declare;
__typeof__(&tutti_averager_read) interface_tutti_averager_read;
__typeof__(&tutti_averager_update) interface_tutti_averager_update;
__typeof__(&tutti_averager_average) interface_tutti_averager_average;
__typeof__(&tutti_averager_post) interface_tutti_averager_post;
__typeof__(&tutti_averager_tell) interface_tutti_averager_tell;
__typeof__(&tutti_averager_beat) interface_tutti_averager_beat;
__typeof__(&tutti_averager_mix) interface_tutti_averager_mix;
__typeof__(&tutti_pairs_declare) interface_tutti_pairs_declare;
__typeof__(&tutti_pairs_read) interface_tutti_pairs_read;
__typeof__(&tutti_pairs_update) interface_tutti_pairs_update;
__typeof__(&tutti_pairs_ask) interface_tutti_pairs_ask;
__typeof__(&tutti_pairs_answer) interface_tutti_pairs_answer;
__typeof__(&tutti_drive_model) interface_tutti_drive_model;
__typeof__(&tutti_drive_declare) interface_tutti_drive_declare;
__typeof__(&tutti_drive_pass) interface_tutti_drive_pass;
__typeof__(&tutti_drive_forward) interface_tutti_drive_forward;
__typeof__(&tutti_drive_backward) interface_tutti_drive_backward;
__typeof__(&tutti_drive_waits) interface_tutti_drive_waits;
__typeof__(&tutti_drive_rate) interface_tutti_drive_rate;
__typeof__(&tutti_drive_update) interface_tutti_drive_update;
__typeof__(&tutti_pipe_open) interface_tutti_pipe_open;
__typeof__(&tutti_pipe_close) interface_tutti_pipe_close;
__typeof__(&tutti_pipe_run) interface_tutti_pipe_run;
__typeof__(&tutti_cut_stages) interface_tutti_cut_stages;
__typeof__(&tutti_cut_most) interface_tutti_cut_most;
__typeof__(&tutti_server_declare) interface_tutti_server_declare;
__typeof__(&tutti_server_table_fits) interface_tutti_server_table_fits;
__typeof__(&tutti_server_run) interface_tutti_server_run;
__typeof__(&tutti_server_final_model) interface_tutti_server_final_model;
__typeof__(&tutti_server_index) interface_tutti_server_index;
__typeof__(&tutti_server_part) interface_tutti_server_part;
__typeof__(&tutti_server_push) interface_tutti_server_push;
__typeof__(&tutti_server_ask) interface_tutti_server_ask;
__typeof__(&tutti_server_need_rows) interface_tutti_server_need_rows;
__typeof__(&tutti_server_node) interface_tutti_server_node;
__typeof__(&tutti_server_sums_declare) interface_tutti_server_sums_declare;
__typeof__(&tutti_server_sums_run) interface_tutti_server_sums_run;
__typeof__(&tutti_server_sums_exchange) interface_tutti_server_sums_exchange;
__typeof__(&tutti_server_sums_watch) interface_tutti_server_sums_watch;
__typeof__(&tutti_server_sums_final_model) interface_tutti_server_sums_final_model;
__typeof__(&tutti_server_values) interface_tutti_server_values;
__typeof__(&tutti_server_has) interface_tutti_server_has;
__typeof__(&tutti_server_version) interface_tutti_server_version;
__typeof__(&tutti_server_seconds) interface_tutti_server_seconds;
__typeof__(&tutti_server_given_ns) interface_tutti_server_given_ns;
__typeof__(&tutti_server_update) interface_tutti_server_update;
__typeof__(&tutti_server_collect) interface_tutti_server_collect;
__typeof__(&tutti_server_update_collected) interface_tutti_server_update_collected;
__typeof__(&tutti_server_add) interface_tutti_server_add;
__typeof__(&tutti_server_wake_at) interface_tutti_server_wake_at;
__typeof__(&tutti_server_give) interface_tutti_server_give;
__typeof__(&tutti_server_give_each) interface_tutti_server_give_each;
__typeof__(&tutti_server_answer) interface_tutti_server_answer;
__typeof__(&tutti_names_declare) interface_tutti_names_declare;
__typeof__(&tutti_computed_ns) interface_tutti_computed_ns;
__typeof__(&tutti_passes_assign_declare) interface_tutti_passes_assign_declare;
__typeof__(&tutti_passes_assign) interface_tutti_passes_assign;
__typeof__(&tutti_passes_divide) interface_tutti_passes_divide;
__typeof__(&tutti_batch_declare) interface_tutti_batch_declare;
__typeof__(&tutti_batch_exchange) interface_tutti_batch_exchange;
__typeof__(&tutti_batch_set) interface_tutti_batch_set;
__typeof__(&tutti_batch_next_pass) interface_tutti_batch_next_pass;
__typeof__(&tutti_batch_close) interface_tutti_batch_close;
__typeof__(&tutti_batch_divide_by) interface_tutti_batch_divide_by;
__typeof__(&tutti_by_piece_declare) interface_tutti_by_piece_declare;
__typeof__(&tutti_recut) interface_tutti_recut;
__typeof__(&tutti_shards_group) interface_tutti_shards_group;
__typeof__(&tutti_shards_declare) interface_tutti_shards_declare;
__typeof__(&tutti_shards_exchange) interface_tutti_shards_exchange;
__typeof__(&tutti_shards_step) interface_tutti_shards_step;
__typeof__(&tutti_shards_count) interface_tutti_shards_count;
__typeof__(&tutti_held_bytes) interface_tutti_held_bytes;
__typeof__(&tutti_units_bytes) interface_tutti_units_bytes;
__typeof__(&tutti_tune_declare) interface_tutti_tune_declare;
__typeof__(&tutti_methods) interface_tutti_methods;
tutti_status *interface_type_tutti_status;
tutti_error *interface_type_tutti_error;
tutti_rng *interface_type_tutti_rng;
tutti_cpu *interface_type_tutti_cpu;
tutti_option_type *interface_type_tutti_option_type;
tutti_option *interface_type_tutti_option;
tutti_knob *interface_type_tutti_knob;
tutti_tuner_options *interface_type_tutti_tuner_options;
tutti_parts *interface_type_tutti_parts;
tutti_share *interface_type_tutti_share;
tutti_file_mode *interface_type_tutti_file_mode;
tutti_queue_entry *interface_type_tutti_queue_entry;
tutti_queue_result *interface_type_tutti_queue_result;
tutti_runtime_ops *interface_type_tutti_runtime_ops;
tutti_dtype *interface_type_tutti_dtype;
tutti_buffer *interface_type_tutti_buffer;
tutti_keep *interface_type_tutti_keep;
tutti_range *interface_type_tutti_range;
tutti_state *interface_type_tutti_state;
tutti_place *interface_type_tutti_place;
tutti_view *interface_type_tutti_view;
tutti_codec_space *interface_type_tutti_codec_space;
tutti_codec_moment *interface_type_tutti_codec_moment;
tutti_codec_message *interface_type_tutti_codec_message;
tutti_codec_messages *interface_type_tutti_codec_messages;
tutti_codec_listener *interface_type_tutti_codec_listener;
tutti_codec_ops *interface_type_tutti_codec_ops;
tutti_codec_about *interface_type_tutti_codec_about;
tutti_relay_tensor *interface_type_tutti_relay_tensor;
tutti_freight_kind *interface_type_tutti_freight_kind;
tutti_freight *interface_type_tutti_freight;
tutti_flag *interface_type_tutti_flag;
tutti_word *interface_type_tutti_word;
tutti_header *interface_type_tutti_header;
tutti_request *interface_type_tutti_request;
tutti_launch *interface_type_tutti_launch;
tutti_peer_change *interface_type_tutti_peer_change;
tutti_peer_event *interface_type_tutti_peer_event;
tutti_transport_ops *interface_type_tutti_transport_ops;
tutti_group *interface_type_tutti_group;
tutti_reduction *interface_type_tutti_reduction;
tutti_elastic_epoch *interface_type_tutti_elastic_epoch;
tutti_tensor_entry *interface_type_tutti_tensor_entry;
tutti_saved *interface_type_tutti_saved;
tutti_record_options *interface_type_tutti_record_options;
tutti_call *interface_type_tutti_call;
tutti_launch_options *interface_type_tutti_launch_options;
tutti_launch_result *interface_type_tutti_launch_result;
tutti_launch_by *interface_type_tutti_launch_by;
tutti_launch_place *interface_type_tutti_launch_place;
tutti_tensor *interface_type_tutti_tensor;
tutti_rows *interface_type_tutti_rows;
tutti_piece *interface_type_tutti_piece;
tutti_layout *interface_type_tutti_layout;
tutti_pass *interface_type_tutti_pass;
tutti_param *interface_type_tutti_param;
tutti_nonfinite *interface_type_tutti_nonfinite;
tutti_codec_cost *interface_type_tutti_codec_cost;
tutti_engine_options *interface_type_tutti_engine_options;
tutti_received *interface_type_tutti_received;
tutti_saves *interface_type_tutti_saves;
tutti_snapshot *interface_type_tutti_snapshot;
tutti_memory *interface_type_tutti_memory;
tutti_memory_record *interface_type_tutti_memory_record;
tutti_codec_figure *interface_type_tutti_codec_figure;
tutti_codec_record *interface_type_tutti_codec_record;
tutti_histogram *interface_type_tutti_histogram;
tutti_doing *interface_type_tutti_doing;
tutti_figures *interface_type_tutti_figures;
tutti_event_record *interface_type_tutti_event_record;
tutti_metric_record *interface_type_tutti_metric_record;
tutti_trace_event *interface_type_tutti_trace_event;
tutti_rate *interface_type_tutti_rate;
tutti_optim_ops *interface_type_tutti_optim_ops;
tutti_axes *interface_type_tutti_axes;
tutti_held *interface_type_tutti_held;
tutti_order *interface_type_tutti_order;
tutti_service *interface_type_tutti_service;
tutti_method_default *interface_type_tutti_method_default;
tutti_method_ops *interface_type_tutti_method_ops;
tutti_mixer_options *interface_type_tutti_mixer_options;
tutti_pairs_options *interface_type_tutti_pairs_options;
tutti_pipeline_plan *interface_type_tutti_pipeline_plan;
tutti_model_unit *interface_type_tutti_model_unit;
tutti_model *interface_type_tutti_model;
tutti_drive_options *interface_type_tutti_drive_options;
tutti_pipe_options *interface_type_tutti_pipe_options;
tutti_pipe_work *interface_type_tutti_pipe_work;
tutti_cut_options *interface_type_tutti_cut_options;
tutti_server_request *interface_type_tutti_server_request;
tutti_feedback *interface_type_tutti_feedback;
tutti_server_setup *interface_type_tutti_server_setup;
tutti_server_answers *interface_type_tutti_server_answers;
tutti_server_sums_options *interface_type_tutti_server_sums_options;
tutti_batch_options *interface_type_tutti_batch_options;
tutti_tune_options *interface_type_tutti_tune_options;
