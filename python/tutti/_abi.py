"""What Python uses of the public headers, as ctypes. Made by tools/python-abi, which a test runs again."""
# ruff: noqa
from ctypes import (
    CDLL, CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int16, c_int8,
    c_long, c_longlong, c_uint, c_uint16, c_uint8, c_ulong, c_ulonglong, c_void_p,
)

VERSION = "0.4.0"
# Libraries of one interface have this in their soname.
ABI = "0.4"

TUTTI_OK = 0
TUTTI_CLOSED = 1
TUTTI_TIMEOUT = 2
TUTTI_ERR_USAGE = 3
TUTTI_ERR_MEMORY = 4
TUTTI_ERR_IO = 5
TUTTI_ERR_CORRUPT = 6
TUTTI_ERR_PEER = 7
TUTTI_ERR_STATE = 8
TUTTI_ERR_NUMBER = 9
TUTTI_INT = 0
TUTTI_REAL = 1
TUTTI_BOOL = 2
TUTTI_CHOICE = 3
TUTTI_TEXT = 4
TUTTI_SPEC = 5
TUTTI_F32 = 0
TUTTI_BF16 = 1
TUTTI_F16 = 2
TUTTI_I32 = 3
TUTTI_I64 = 4
TUTTI_U8 = 5
TUTTI_F64 = 6
TUTTI_I8 = 7
TUTTI_SAME = 0
TUTTI_SCRATCH = 5
TUTTI_SUM = 0
TUTTI_MEAN = 1
TUTTI_MAX = 2
TUTTI_MIN = 3
TUTTI_BY_NOBODY = 0
TUTTI_BY_TUTTI = 1
TUTTI_BY_SLURM = 5
TUTTI_BY_TORCHRUN = 6
TUTTI_CODEC_WHOLE_TENSOR = 4
TUTTI_CODEC_VOTES = 128
TUTTI_FREIGHT_MEAN = 0
TUTTI_FREIGHT_GATHER = 1
TUTTI_RECORD_EVENTS = 200000
TUTTI_NONFINITE_STOP = 0
TUTTI_NONFINITE_SKIP = 1
TUTTI_NONFINITE_KEEP = 2
TUTTI_CODEC_COST_OFF = 0
TUTTI_CODEC_COST_EXPLAIN = 1
TUTTI_CODEC_COST_AUTO_OFF = 2
TUTTI_DOING_COMPUTE = 0
TUTTI_DOING_DATA = 2
TUTTI_DOING_OUTSIDE = 5
TUTTI_REPLICAS_EQUAL = 1
TUTTI_OWNS_UPDATE = 2
TUTTI_ASYNC = 8
TUTTI_NON_GRADIENT_UPDATE = 32
TUTTI_SHARDED_OPTIMIZER = 128
TUTTI_RECOMPUTES = 1024
TUTTI_SHARDED_PARAMETERS = 16384
TUTTI_PIPELINE_SCHEDULE = 32768
TUTTI_PROFILES_UNITS = 65536
TUTTI_NEVER_SKIPS = 262144
TUTTI_ASKS_FOR_VALUES = 524288
TUTTI_LOGICAL_SHARES = 1048576
TUTTI_WHOLE_STEPS = 2097152
TUTTI_STATES_OF_SHARES = 4194304
TUTTI_METHOD_DEFAULT_BYTES = 4352


class tutti_group(Structure):
    _fields_ = [
        ("world", c_void_p),
        ("ranks", POINTER(c_int)),
        ("size", c_int),
        ("index", c_int),
        ("context", c_ulong),
        ("sequence", c_uint),
        ("algorithm", c_char_p),
        ("uncounted", c_bool),
        ("apart", c_bool),
        ("timeout_ns", c_long),
    ]


class tutti_buffer(Structure):
    _fields_ = [
        ("device", c_void_p),
        ("data", c_void_p),
        ("count", c_ulong),
        ("dtype", c_int),
    ]


class tutti_error(Structure):
    _fields_ = [
        ("status", c_int),
        ("rank", c_int),
        ("cause", c_int),
        ("text", (c_char * 480)),
    ]


class tutti_call(Structure):
    _fields_ = [
        ("group", c_char_p),
        ("name", c_char_p),
        ("codec", c_char_p),
        ("bytes", c_ulong),
        ("asked_ns", c_long),
        ("begin_ns", c_long),
        ("end_ns", c_long),
    ]


class tutti_record_options(Structure):
    _fields_ = [
        ("folder", c_char_p),
        ("overwrite", c_bool),
        ("samples", c_bool),
        ("report_every", c_ulong),
        ("facts", c_char_p),
        ("log_to", c_char_p),
        ("metrics_port", c_char_p),
    ]


class tutti_header(Structure):
    _fields_ = [
        ("from", c_int),
        ("kind", c_uint),
        ("a", c_long),
        ("b", c_long),
        ("ticket", c_ulong),
        ("bytes", c_ulong),
    ]


class tutti_request(Structure):
    _fields_ = [
        ("note", tutti_header),
        ("status", c_int),
        ("rank", c_int),
        ("done", c_bool),
        ("posted", c_bool),
        ("internal", (c_void_p * 8)),
    ]


class tutti_queue_entry(Structure):
    _fields_ = [
        ("tag", c_ulong),
        ("offset", c_ulong),
        ("fd", c_int),
        ("fixed", c_int),
        ("write", c_bool),
        ("memory", c_void_p),
        ("bytes", c_ulong),
    ]


class tutti_queue_result(Structure):
    _fields_ = [
        ("tag", c_ulong),
        ("cause", c_int),
        ("done", c_ulong),
    ]


class tutti_runtime_ops(Structure):
    _fields_ = [
        ("abi", c_uint),
        ("bytes", c_uint),
        ("name", c_char_p),
        ("common_clock", c_bool),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("now", CFUNCTYPE(c_long, c_void_p)),
        ("sleep_until", CFUNCTYPE(None, c_void_p, c_long)),
        ("charge", CFUNCTYPE(None, c_void_p, c_double, c_double)),
        ("thread_open", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), c_char_p, CFUNCTYPE(None, c_void_p), c_void_p)),
        ("thread_join", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("monitor_open", CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))),
        ("monitor_close", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("lock", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("unlock", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("wait", CFUNCTYPE(c_bool, c_void_p, c_void_p, c_long)),
        ("wake", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("file_open", CFUNCTYPE(c_int, c_void_p, c_char_p, c_int, POINTER(c_int))),
        ("file_size", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_ulong))),
        ("file_read", CFUNCTYPE(c_int, c_void_p, c_int, c_ulong, c_void_p, c_ulong, POINTER(c_ulong))),
        ("file_write", CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_ulong, POINTER(c_ulong))),
        ("file_sync", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("file_close", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("file_rename", CFUNCTYPE(c_int, c_void_p, c_char_p, c_char_p)),
        ("file_remove", CFUNCTYPE(c_int, c_void_p, c_char_p)),
        ("directory_make", CFUNCTYPE(c_int, c_void_p, c_char_p)),
        ("directory_sync", CFUNCTYPE(c_int, c_void_p, c_char_p)),
        ("directory_list", CFUNCTYPE(c_int, c_void_p, c_char_p, CFUNCTYPE(None, c_void_p, c_char_p), c_void_p)),
        ("exists", CFUNCTYPE(c_int, c_void_p, c_char_p)),
        ("space_left", CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_ulong))),
        ("entropy", CFUNCTYPE(None, c_void_p, c_void_p, c_ulong)),
        ("file_reserve", CFUNCTYPE(c_int, c_void_p, c_int, c_ulong)),
        ("file_direct", CFUNCTYPE(c_int, c_void_p, c_int, c_bool)),
        ("file_write_at", CFUNCTYPE(c_int, c_void_p, c_int, c_ulong, c_void_p, c_ulong, POINTER(c_ulong))),
        ("file_map", CFUNCTYPE(c_int, c_void_p, c_int, c_ulong, POINTER(c_void_p))),
        ("file_unmap", CFUNCTYPE(None, c_void_p, c_void_p, c_ulong)),
        ("file_scratch", CFUNCTYPE(c_int, c_void_p, c_char_p, c_ulong, c_bool, POINTER(c_int))),
        ("queue_open", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_void_p))),
        ("queue_close", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("queue_fix", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_void_p, c_ulong)),
        ("queue_add", CFUNCTYPE(None, c_void_p, c_void_p, POINTER(tutti_queue_entry))),
        ("queue_reap", CFUNCTYPE(c_int, c_void_p, c_void_p, c_bool, POINTER(tutti_queue_result), c_int,
            POINTER(c_int))),
        ("queue_kick", CFUNCTYPE(None, c_void_p, c_void_p)),
    ]


class tutti_runtime(Structure):
    _fields_ = [
        ("ops", POINTER(tutti_runtime_ops)),
        ("self", c_void_p),
    ]


class tutti_saved(Structure):
    _fields_ = [
        ("state", c_char_p),
        ("tensor", c_char_p),
        ("keep", c_int),
        ("dtype", c_int),
        ("owner", c_int),
        ("count", c_ulong),
        ("begin", c_ulong),
        ("end", c_ulong),
        ("data", c_void_p),
        ("tier", c_void_p),
        ("at", c_ulong),
    ]


class tutti_option(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int),
        ("offset", c_ulong),
        ("initial", c_double),
        ("min", c_double),
        ("max", c_double),
        ("text", c_char_p),
        ("help", c_char_p),
        ("when", c_char_p),
        ("reach", c_char_p),
    ]


class tutti_codec_about(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("paper", c_char_p),
        ("help", c_char_p),
        ("form", c_char_p),
        ("options", POINTER(tutti_option)),
    ]


class tutti_elastic_epoch(Structure):
    _fields_ = [
        ("world", c_void_p),
        ("number", c_ulong),
        ("step", c_ulong),
        ("state", c_void_p),
        ("bytes", c_ulong),
    ]


class tutti_event_record(Structure):
    _fields_ = [
        ("step", c_ulong),
        ("kind", c_char_p),
        ("text", c_char_p),
        ("worker", c_int),
        ("epoch", c_uint),
        ("own", c_bool),
    ]


class tutti_histogram(Structure):
    _fields_ = [
        ("count", (c_ulong * 1081)),
    ]


class tutti_figures(Structure):
    _fields_ = [
        ("wall_ns", c_long),
        ("compute_ns", c_long),
        ("comm_ns", c_long),
        ("exposed_ns", c_long),
        ("other_ns", c_long),
        ("data_ns", c_long),
        ("bytes_sent", c_ulong),
        ("messages_sent", c_ulong),
        ("gradients", c_ulong),
        ("steps", c_ulong),
        ("samples", c_ulong),
        ("skipped", c_ulong),
        ("loss_scale", c_double),
        ("own_steps", c_ulong),
        ("restarts", c_ulong),
        ("staleness_max", c_ulong),
        ("staleness_gradients", c_ulong),
        ("staleness_mean", c_double),
        ("staleness", POINTER(tutti_histogram)),
    ]


class tutti_axes(Structure):
    _fields_ = [
        ("topology", c_char_p),
        ("synchrony", c_char_p),
        ("codec", c_char_p),
        ("schedule", c_char_p),
        ("placement", c_char_p),
        ("update", c_char_p),
    ]


class tutti_method_default(Structure):
    _fields_ = [
        ("option", c_char_p),
        ("value", c_char_p),
        ("when", c_char_p),
    ]


class tutti_service(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("run", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("receives_losses", c_bool),
    ]


class tutti_pass(Structure):
    _fields_ = [
        ("index", c_long),
        ("samples", c_long),
        ("divisor", c_long),
        ("scale", c_double),
        ("epoch", c_ulong),
        ("position", c_ulong),
        ("again", c_bool),
        ("same_values", c_bool),
        ("keep", c_bool),
        ("exchange", c_bool),
        ("more", c_bool),
        ("merge", c_bool),
        ("stays", c_bool),
        ("received", c_long),
        ("given", c_void_p),
        ("ids", POINTER(c_ulong)),
        ("losses", POINTER(c_float)),
    ]


class tutti_rows(Structure):
    _fields_ = [
        ("all", c_bool),
        ("n", c_ulong),
        ("ids", POINTER(c_uint)),
    ]


class tutti_piece(Structure):
    _fields_ = [
        ("index", c_int),
        ("first", c_ulong),
        ("count", c_ulong),
        ("first_tensor", c_int),
        ("tensors", c_int),
        ("g", POINTER(c_float)),
        ("x", POINTER(c_float)),
        ("rows", POINTER(tutti_rows)),
        ("group", tutti_group),
        ("step", c_ulong),
        ("weight", c_double),
    ]


class tutti_method_ops(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("title", c_char_p),
        ("authors", c_char_p),
        ("family", c_char_p),
        ("year", c_int),
        ("axes", tutti_axes),
        ("constraints", POINTER(c_char_p)),
        ("options", POINTER(tutti_option)),
        ("defaults", POINTER(tutti_method_default)),
        ("self_bytes", c_ulong),
        ("ignore_on_resume", CFUNCTYPE(None, c_void_p)),
        ("traits", c_uint),
        ("traits_of", CFUNCTYPE(c_uint, c_void_p)),
        ("services", POINTER(tutti_service)),
        ("serves", CFUNCTYPE(c_bool, c_void_p)),
        ("settles", CFUNCTYPE(c_ulong, c_void_p, c_ulong, c_ulong)),
        ("repeats", CFUNCTYPE(c_ulong, c_void_p)),
        ("declare", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(tutti_error))),
        ("open", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("pass", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_pass), POINTER(tutti_error))),
        ("unit_acquire", CFUNCTYPE(c_int, c_void_p, c_int, c_bool, POINTER(tutti_error))),
        ("unit_release", CFUNCTYPE(c_int, c_void_p, c_int, c_bool, POINTER(tutti_error))),
        ("exchange", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_piece), POINTER(tutti_error))),
        ("drive", CFUNCTYPE(c_int, c_void_p, c_ulong, POINTER(tutti_error))),
        ("step", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("final_model", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("retire", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("quiesce", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("resume", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("rows_acquire", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error))),
        ("resized", CFUNCTYPE(c_int, c_void_p, c_int, c_int, POINTER(tutti_error))),
    ]


class tutti_view(Structure):
    _fields_ = [
        ("tensor", c_int),
        ("first", c_ulong),
        ("count", c_ulong),
        ("rows", c_ulong),
        ("cols", c_ulong),
        ("stage", c_int),
        ("step", c_ulong),
    ]


class tutti_codec_space(Structure):
    _fields_ = [
        ("n", c_ulong),
        ("tensor", POINTER(tutti_view)),
        ("name", POINTER(c_char_p)),
        ("n_tensors", c_int),
        ("rank", c_int),
        ("workers", c_int),
        ("seed", c_ulong),
        ("device", c_void_p),
        ("more", POINTER(c_void_p)),
    ]


class tutti_codec(Structure):
    _fields_ = [
        ("ops", c_void_p),
        ("self", c_void_p),
        ("spec", c_void_p),
        ("inner", (c_void_p * 3)),
        ("space", POINTER(tutti_codec_space)),
        ("prefix", (c_char * 128)),
    ]


class tutti_codec_moment(Structure):
    _fields_ = [
        ("step", c_ulong),
        ("epoch", c_ulong),
        ("steps", c_ulong),
        ("epochs", c_ulong),
        ("lr", c_double),
        ("sum", CFUNCTYPE(c_int, c_void_p, c_ulong, POINTER(c_float), POINTER(tutti_error))),
        ("say", CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)),
        ("with", c_void_p),
    ]


class tutti_codec_message(Structure):
    _fields_ = [
        ("at", POINTER(c_uint8)),
        ("bytes", c_ulong),
    ]


class tutti_codec_messages(Structure):
    _fields_ = [
        ("first", POINTER(tutti_codec_message)),
        ("stride", c_ulong),
        ("n", c_int),
        ("bad", POINTER(c_int)),
    ]


class tutti_codec_listener(Structure):
    _fields_ = [
        ("receive", CFUNCTYPE(None, c_void_p, c_char_p, c_ulong, POINTER(c_double))),
        ("user", c_void_p),
    ]


class tutti_codec_ops(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("paper", c_char_p),
        ("help", c_char_p),
        ("options", POINTER(tutti_option)),
        ("self_bytes", c_ulong),
        ("rounds", c_int),
        ("dtype", c_int),
        ("number", CFUNCTYPE(c_int, POINTER(tutti_codec), POINTER(tutti_view))),
        ("traits", CFUNCTYPE(c_uint, POINTER(tutti_codec))),
        ("check", CFUNCTYPE(c_int, POINTER(tutti_codec), POINTER(tutti_error))),
        ("declare", CFUNCTYPE(None, POINTER(tutti_codec), c_void_p)),
        ("open", CFUNCTYPE(None, POINTER(tutti_codec))),
        ("verify", CFUNCTYPE(c_int, POINTER(tutti_codec), POINTER(tutti_error))),
        ("begin", CFUNCTYPE(c_ulong, POINTER(tutti_codec), POINTER(tutti_codec_moment), c_int,
            POINTER(POINTER(c_float)))),
        ("left_out", CFUNCTYPE(None, POINTER(tutti_codec), c_ulong)),
        ("scratch", CFUNCTYPE(c_ulong, POINTER(tutti_codec), POINTER(tutti_view))),
        ("width", CFUNCTYPE(c_ulong, POINTER(tutti_codec), POINTER(tutti_view), c_int)),
        ("fold", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), c_int, POINTER(c_float), c_void_p,
            POINTER(c_void_p))),
        ("fold_part", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), c_ulong, c_ulong, POINTER(c_float),
            c_void_p, POINTER(c_void_p))),
        ("mine", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float), c_void_p,
            POINTER(c_void_p), c_float, POINTER(c_float))),
        ("unfold", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), c_void_p, POINTER(c_void_p),
            POINTER(c_float))),
        ("bound", CFUNCTYPE(c_ulong, POINTER(tutti_codec), POINTER(tutti_view))),
        ("encode", CFUNCTYPE(c_ulong, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float), c_void_p,
            POINTER(c_uint8))),
        ("decode_add", CFUNCTYPE(c_int, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_uint8), c_ulong, c_float,
            POINTER(c_float), POINTER(tutti_error))),
        ("mean", CFUNCTYPE(c_int, POINTER(tutti_codec), POINTER(tutti_view), POINTER(tutti_codec_messages),
            POINTER(c_float), POINTER(tutti_error))),
        ("places", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_uint8), c_ulong,
            POINTER(c_uint8))),
        ("report", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float), POINTER(c_float),
            POINTER(tutti_codec_listener))),
        ("choose", CFUNCTYPE(POINTER(tutti_codec), POINTER(tutti_codec), POINTER(tutti_view))),
        ("watch", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float))),
        ("before", CFUNCTYPE(POINTER(c_float), POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float))),
        ("by_element", c_bool),
        ("account", CFUNCTYPE(c_float, POINTER(tutti_codec), POINTER(tutti_view), POINTER(POINTER(c_float)))),
        ("marks", CFUNCTYPE(POINTER(c_uint8), POINTER(tutti_codec), POINTER(tutti_view))),
        ("after", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_view), POINTER(c_float))),
        ("follow", CFUNCTYPE(None, POINTER(tutti_codec), POINTER(tutti_codec), c_int)),
    ]


class tutti_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("first", c_ulong),
        ("count", c_ulong),
        ("rows", c_ulong),
        ("cols", c_ulong),
        ("unit", c_int),
        ("row_sparse", c_bool),
        ("asked", c_bool),
    ]


class tutti_layout(Structure):
    _fields_ = [
        ("used", c_ulong),
        ("n", c_ulong),
        ("tensor", POINTER(tutti_tensor)),
        ("n_tensors", c_int),
        ("n_units", c_int),
        ("piece", POINTER(tutti_piece)),
        ("n_pieces", c_int),
    ]


class tutti_range(Structure):
    _fields_ = [
        ("first", c_ulong),
        ("count", c_ulong),
    ]


class tutti_rate(Structure):
    _fields_ = [
        ("lr", c_double),
        ("scale", c_double),
        ("t", c_ulong),
    ]


class tutti_optim_ops(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("paper", c_char_p),
        ("options", POINTER(tutti_option)),
        ("self_bytes", c_ulong),
        ("slot_names", POINTER(c_char_p)),
        ("slots", CFUNCTYPE(c_int, c_void_p)),
        ("check", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("apply", CFUNCTYPE(None, c_void_p, c_ulong, POINTER(c_float), POINTER(c_float), POINTER(POINTER(c_float)),
            POINTER(tutti_rate))),
        ("lr", CFUNCTYPE(c_double, c_void_p)),
        ("by_rows", CFUNCTYPE(c_bool, c_void_p)),
        ("lazy", CFUNCTYPE(c_bool, c_void_p)),
    ]


class tutti_place(Structure):
    _fields_ = [
        ("tier", c_void_p),
        ("at", c_ulong),
        ("memory", c_void_p),
    ]


class tutti_optim(Structure):
    _fields_ = [
        ("ops", POINTER(tutti_optim_ops)),
        ("self", c_void_p),
        ("spec", c_void_p),
        ("device", c_void_p),
        ("ranges", POINTER(tutti_range)),
        ("n_ranges", c_ulong),
        ("count", c_ulong),
        ("at", POINTER(c_ulong)),
        ("slot", (POINTER(c_float) * 3)),
        ("place", (tutti_place * 3)),
    ]


class tutti_rng(Structure):
    _fields_ = [
        ("seed", c_ulong),
        ("stream", c_ulong),
        ("step", c_ulong),
    ]


class tutti_parts(Structure):
    _fields_ = [
        ("first", POINTER(c_ulong)),
        ("sample", POINTER(c_uint)),
    ]


class tutti_share(Structure):
    _fields_ = [
        ("samples", c_ulong),
        ("workers", c_int),
        ("batch", c_long),
        ("accumulate", c_long),
        ("seed", c_ulong),
        ("batch_of", POINTER(c_long)),
        ("passes_of", POINTER(c_long)),
        ("parts", POINTER(tutti_parts)),
        ("logical", c_int),
    ]


class tutti_method(Structure):
    _fields_ = [
        ("ops", POINTER(tutti_method_ops)),
        ("traits", c_uint),
        ("self", c_void_p),
        ("world", c_void_p),
        ("rt", POINTER(tutti_runtime)),
        ("device", c_void_p),
        ("codecs", POINTER(POINTER(tutti_codec_ops))),
        ("layout", POINTER(tutti_layout)),
        ("n", c_ulong),
        ("x", POINTER(c_float)),
        ("g", POINTER(c_float)),
        ("all", tutti_group),
        ("everyone", tutti_group),
        ("rank", c_int),
        ("workers", c_int),
        ("servers", c_int),
        ("own", tutti_range),
        ("own_x", POINTER(c_float)),
        ("own_g", POINTER(c_float)),
        ("member", c_int),
        ("stage", c_int),
        ("replica", c_int),
        ("replicas", c_int),
        ("optim", POINTER(tutti_optim)),
        ("team", c_int),
        ("lane_width", c_int),
        ("all_on_lane", c_bool),
        ("whole", c_bool),
        ("piece_bytes", c_ulong),
        ("first_piece_bytes", c_ulong),
        ("cut_bytes", c_bool),
        ("close_bytes", c_ulong),
        ("piece_bytes_least", c_ulong),
        ("by_piece", c_bool),
        ("no_step", c_bool),
        ("order", c_int),
        ("forward_first", c_bool),
        ("credit", c_ulong),
        ("held", c_int),
        ("keep_values", c_ulong),
        ("overlaps_steps", c_bool),
        ("rng", tutti_rng),
        ("step", c_ulong),
        ("epoch", c_ulong),
        ("steps", c_ulong),
        ("epochs", c_ulong),
        ("samples", c_long),
        ("weight", c_double),
        ("share", POINTER(tutti_share)),
        ("names", c_bool),
        ("loss", c_double),
        ("lr", c_double),
        ("engine", c_void_p),
    ]


class tutti_metric_record(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("worker", c_int),
        ("value", c_double),
        ("at", c_long),
    ]


class tutti_param(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dims", c_int),
        ("dim", (c_ulong * 4)),
        ("unit", c_int),
        ("row_sparse", c_bool),
        ("asks_rows", c_bool),
        ("dtype", c_int),
        ("values", c_void_p),
        ("gradient", c_void_p),
    ]


class tutti_model_unit(Structure):
    _fields_ = [
        ("cut", c_bool),
        ("forward", c_double),
        ("backward", c_double),
        ("enters", c_ulong),
        ("kept", c_ulong),
        ("given", c_ulong),
    ]


class tutti_model(Structure):
    _fields_ = [
        ("self", c_void_p),
        ("spec", c_char_p),
        ("whole", c_char_p),
        ("units", c_int),
        ("unit", POINTER(tutti_model_unit)),
        ("samples", c_long),
        ("open", CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_long, c_bool, POINTER(tutti_error))),
        ("forward", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(tutti_pass), POINTER(c_float), POINTER(c_float),
            POINTER(c_float), POINTER(c_bool), POINTER(tutti_error))),
        ("backward", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(tutti_pass), POINTER(c_float), POINTER(c_float),
            POINTER(c_float), POINTER(c_float), POINTER(c_bool), POINTER(c_double), POINTER(tutti_error))),
        ("go_on", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_bool), POINTER(c_double), POINTER(tutti_error))),
        ("held", CFUNCTYPE(c_ulong, c_void_p)),
        ("seconds", POINTER(c_double)),
    ]


class tutti_engine_options(Structure):
    _fields_ = [
        ("method", c_char_p),
        ("optimizer", c_char_p),
        ("lr_schedule", c_char_p),
        ("clip_norm", c_double),
        ("nonfinite", c_int),
        ("loss_scale", c_char_p),
        ("update", CFUNCTYPE(c_int, c_void_p, c_double, POINTER(tutti_error))),
        ("values", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("keeps_gradients", c_bool),
        ("collective", c_char_p),
        ("codec", c_char_p),
        ("codecs", POINTER(POINTER(tutti_codec_ops))),
        ("codec_cost", c_int),
        ("codec_report", c_ulong),
        ("codec_checksum", c_bool),
        ("codec_hierarchy", c_char_p),
        ("lane", c_int),
        ("batch", c_long),
        ("accumulate", c_long),
        ("elastic_shares", c_int),
        ("batch_of", POINTER(c_long)),
        ("parts", POINTER(tutti_parts)),
        ("data_samples", c_ulong),
        ("steps", c_ulong),
        ("seed", c_ulong),
        ("user", c_void_p),
        ("initial", CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float))),
        ("evaluate", CFUNCTYPE(c_int, c_void_p, POINTER(c_double), POINTER(tutti_error))),
        ("sample_bytes", c_ulong),
        ("give", CFUNCTYPE(c_int, c_void_p, POINTER(c_ulong), c_ulong, c_void_p, POINTER(tutti_error))),
        ("label", CFUNCTYPE(c_int, c_void_p, c_ulong)),
        ("own_values", c_ulong),
        ("model", POINTER(tutti_model)),
        ("once", c_bool),
        ("whole_batches", c_bool),
        ("names", c_bool),
        ("streams", c_bool),
        ("needs", c_bool),
        ("same_order", c_bool),
        ("fingerprint", c_char_p),
        ("servers", c_int),
        ("stop_on_loss", c_bool),
        ("device_memory", c_ulong),
        ("snapshot_every", c_ulong),
        ("snapshot_most", c_int),
        ("trace_events", c_ulong),
        ("trace_first", c_ulong),
        ("trace_steps", c_ulong),
        ("commit", CFUNCTYPE(c_bool, c_void_p, c_ulong)),
        ("only_declared", c_bool),
    ]


class tutti_received(Structure):
    _fields_ = [
        ("gradients", c_ulong),
        ("samples", c_double),
        ("loss_sum", c_double),
    ]


class tutti_saves(Structure):
    _fields_ = [
        ("begun", c_ulong),
        ("written", c_ulong),
        ("waited", c_ulong),
        ("blocked", c_ulong),
        ("bytes", c_ulong),
        ("copy_ns", c_long),
        ("wait_ns", c_long),
        ("write_ns", c_long),
        ("under_way", c_bool),
    ]


class tutti_launch_place(Structure):
    _fields_ = [
        ("rank", c_int),
        ("size", c_int),
        ("local_rank", c_int),
        ("by", c_int),
        ("name", c_char_p),
        ("found", (c_char * 160)),
        ("host", (c_char * 128)),
        ("meet", (c_char * 300)),
        ("meet_at_rank_0", c_bool),
        ("run", (c_char * 256)),
        ("one_host", c_bool),
    ]


class tutti_freight(Structure):
    _fields_ = [
        ("kind", c_int),
        ("data", c_void_p),
        ("count", c_ulong),
        ("dtype", c_int),
        ("most", c_ulong),
        ("fixed", c_bool),
        ("all", POINTER(c_uint8)),
        ("stride", c_ulong),
        ("counts", POINTER(c_ulong)),
        ("everyone", c_bool),
    ]


class tutti_relay_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("rows", c_ulong),
        ("cols", c_ulong),
    ]


class tutti_state(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("keep", c_int),
        ("dtype", c_int),
        ("first", c_ulong),
        ("count", c_ulong),
        ("ranges", POINTER(tutti_range)),
        ("n_ranges", c_ulong),
        ("of", c_ulong),
        ("of_workers", c_bool),
        ("copy", c_bool),
        ("placed", c_bool),
        ("late", c_bool),
        ("shared", c_bool),
        ("tier", c_char_p),
    ]


class tutti_tensor_entry(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("dims", c_int),
        ("dim", (c_ulong * 8)),
        ("begin", c_ulong),
        ("bytes", c_ulong),
        ("data", c_void_p),
        ("tier", c_void_p),
        ("at", c_ulong),
        ("bring", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_void_p), POINTER(tutti_error))),
        ("copy", CFUNCTYPE(c_int, c_void_p, c_void_p, c_ulong, c_void_p, c_ulong, POINTER(tutti_error))),
        ("with", c_void_p),
        ("hash", c_ulong),
    ]


TABLES = {
    "tutti_methods": POINTER(tutti_method_ops),
}

FUNCTIONS = {
    "tutti_allgather": (c_int, [POINTER(tutti_group), tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_allgather_v": (c_int, [POINTER(tutti_group), POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_alloc": (c_void_p, [c_ulong, c_ulong]),
    "tutti_allreduce": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_alltoall_v": (c_int, [POINTER(tutti_group), POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_barrier": (c_int, [POINTER(tutti_group), POINTER(tutti_error)]),
    "tutti_broadcast": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_call_record_call": (c_int, [c_void_p, POINTER(tutti_call), POINTER(tutti_error)]),
    "tutti_call_record_clock": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_call_record_close": (c_int, [c_void_p, c_bool, POINTER(tutti_error)]),
    "tutti_call_record_log": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_call_record_loss": (None, [c_void_p, c_double]),
    "tutti_call_record_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_record_options),
        POINTER(tutti_error)]),
    "tutti_call_record_step": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_call_record_wait": (c_long, [c_void_p]),
    "tutti_call_record_waited": (c_int, [c_void_p, POINTER(tutti_call), c_char_p, POINTER(tutti_error)]),
    "tutti_cancel": (None, [c_void_p, POINTER(tutti_request)]),
    "tutti_checkpoint_close": (None, [c_void_p]),
    "tutti_checkpoint_facts": (c_char_p, [c_void_p]),
    "tutti_checkpoint_find": (c_int, [POINTER(tutti_runtime), c_char_p, c_void_p, c_ulong, c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_checkpoint_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_checkpoint_piece": (c_bool, [c_void_p, c_ulong, POINTER(tutti_saved)]),
    "tutti_checkpoint_read": (c_int, [c_void_p, POINTER(tutti_saved), c_ulong, POINTER(tutti_error)]),
    "tutti_checkpoint_step": (c_ulong, [c_void_p]),
    "tutti_checkpoint_verify": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_checkpoint_world": (c_int, [c_void_p]),
    "tutti_codec_listed": (c_bool, [c_int, POINTER(tutti_codec_about)]),
    "tutti_dtype_bytes": (c_ulong, [c_int]),
    "tutti_dtype_name": (c_char_p, [c_int]),
    "tutti_elastic_acts": (c_bool, [c_void_p]),
    "tutti_elastic_close": (None, [c_void_p, c_bool]),
    "tutti_elastic_commit": (c_bool, [c_void_p, c_ulong]),
    "tutti_elastic_engine_load": (c_int, [c_void_p, c_void_p, POINTER(tutti_error)]),
    "tutti_elastic_engine_over": (c_int, [c_void_p, c_ulong, c_void_p, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_elastic_fail": (None, [c_void_p]),
    "tutti_elastic_leave": (None, [c_void_p]),
    "tutti_elastic_next": (c_int, [c_void_p, POINTER(tutti_elastic_epoch), POINTER(tutti_error)]),
    "tutti_elastic_open": (c_int, [POINTER(c_void_p), c_ulong, c_char_p, POINTER(tutti_error)]),
    "tutti_elastic_over": (c_int, [c_void_p, c_ulong, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_elastic_renew": (None, [c_void_p]),
    "tutti_elastic_sockets": (c_int, [c_void_p, POINTER(c_int), c_int]),
    "tutti_engine_apart": (c_double, [c_void_p]),
    "tutti_engine_client_state": (POINTER(c_float), [c_void_p]),
    "tutti_engine_close": (None, [c_void_p]),
    "tutti_engine_doing": (c_int, [c_void_p, c_int]),
    "tutti_engine_drive": (c_int, [c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_engine_ended": (c_bool, [c_void_p]),
    "tutti_engine_eval_begin": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_eval_end": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_events": (c_int, [c_void_p, POINTER(POINTER(tutti_event_record))]),
    "tutti_engine_fault_tolerant": (c_bool, [c_void_p]),
    "tutti_engine_figures": (None, [c_void_p, POINTER(tutti_figures)]),
    "tutti_engine_finish": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_grad_ready": (c_int, [c_void_p, c_int, POINTER(tutti_error)]),
    "tutti_engine_grad_ready_from": (c_int, [c_void_p, c_int, c_void_p, c_int, POINTER(tutti_error)]),
    "tutti_engine_grad_ready_rows": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error)]),
    "tutti_engine_grad_ready_rows_from": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, c_void_p, c_int,
        POINTER(tutti_error)]),
    "tutti_engine_gradient": (POINTER(c_float), [c_void_p, c_int]),
    "tutti_engine_handed": (c_ulong, [c_void_p]),
    "tutti_engine_has": (c_bool, [c_void_p, c_int]),
    "tutti_engine_load": (c_int, [c_void_p, c_void_p, POINTER(tutti_error)]),
    "tutti_engine_lr": (c_int, [c_void_p, c_double, POINTER(tutti_error)]),
    "tutti_engine_method": (POINTER(tutti_method), [c_void_p]),
    "tutti_engine_metrics": (c_int, [c_void_p, POINTER(POINTER(tutti_metric_record))]),
    "tutti_engine_more": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_more_epochs": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_more_samples": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_param), c_int,
        POINTER(tutti_engine_options), POINTER(tutti_error)]),
    "tutti_engine_part": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_pass_begin": (c_int, [c_void_p, POINTER(tutti_pass), POINTER(tutti_error)]),
    "tutti_engine_pass_end": (c_int, [c_void_p, c_double, POINTER(tutti_error)]),
    "tutti_engine_payload": (POINTER(c_ulong), [c_void_p]),
    "tutti_engine_received": (None, [c_void_p, POINTER(tutti_received)]),
    "tutti_engine_reshare": (c_int, [c_void_p, POINTER(c_long), POINTER(tutti_error)]),
    "tutti_engine_round_begins": (c_bool, [c_void_p]),
    "tutti_engine_rows_acquire": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error)]),
    "tutti_engine_save": (c_int, [c_void_p, c_char_p, c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_engine_save_begin": (c_int, [c_void_p, c_char_p, c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_engine_save_end": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_saves": (None, [c_void_p, POINTER(tutti_saves)]),
    "tutti_engine_share": (POINTER(tutti_share), [c_void_p]),
    "tutti_engine_state": (c_int, [c_void_p, POINTER(POINTER(tutti_saved)), POINTER(c_ulong), POINTER(tutti_error)]),
    "tutti_engine_state_written": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_step": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_swap": (c_bool, [c_void_p]),
    "tutti_engine_takes": (c_int, [c_void_p]),
    "tutti_engine_unit_acquire": (c_int, [c_void_p, c_int, c_bool, POINTER(tutti_error)]),
    "tutti_engine_unit_release": (c_int, [c_void_p, c_int, c_bool, POINTER(tutti_error)]),
    "tutti_engine_values": (POINTER(c_float), [c_void_p, c_int]),
    "tutti_engine_whole": (c_bool, [c_void_p, POINTER(c_ulong)]),
    "tutti_exchange_codec": (c_char_p, [POINTER(tutti_method)]),
    "tutti_gather_parts": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_graph_close": (None, [c_void_p]),
    "tutti_graph_degree": (c_int, [c_void_p]),
    "tutti_graph_family": (c_bool, [c_int, POINTER(c_char_p), POINTER(c_char_p), POINTER(POINTER(tutti_option))]),
    "tutti_graph_gap": (c_int, [c_void_p, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_graph_is": (c_bool, [c_void_p, c_char_p]),
    "tutti_graph_messages": (c_double, [c_void_p]),
    "tutti_graph_open": (c_int, [POINTER(c_void_p), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_graph_open_push": (c_int, [POINTER(c_void_p), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_graph_period": (c_ulong, [c_void_p]),
    "tutti_graph_require": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_graph_round": (None, [c_void_p, c_ulong, c_int, POINTER(c_int), POINTER(c_double), POINTER(c_int),
        POINTER(c_int), POINTER(c_double), POINTER(c_int), POINTER(c_double)]),
    "tutti_graph_size": (c_int, [c_void_p]),
    "tutti_group_compare": (c_int, [POINTER(tutti_group), c_uint, POINTER(tutti_error)]),
    "tutti_group_give_up": (None, [POINTER(tutti_group), c_int]),
    "tutti_group_of": (tutti_group, [c_void_p, POINTER(c_int), c_int, c_ulong]),
    "tutti_hash": (c_ulong, [c_void_p, c_ulong]),
    "tutti_keep_name": (c_char_p, [c_int]),
    "tutti_launch_find_place": (c_int, [POINTER(c_char_p), POINTER(tutti_launch_place), POINTER(tutti_error)]),
    "tutti_method_default_of": (c_bool, [POINTER(tutti_method_ops), c_char_p, c_char_p, c_char_p, c_int, c_void_p]),
    "tutti_method_find": (POINTER(tutti_method_ops), [c_char_p]),
    "tutti_method_traits": (c_bool, [c_char_p, POINTER(c_uint)]),
    "tutti_optim_find": (POINTER(tutti_optim_ops), [c_char_p]),
    "tutti_parcel_close": (None, [c_void_p]),
    "tutti_parcel_next": (c_int, [c_void_p, POINTER(tutti_freight), POINTER(tutti_error)]),
    "tutti_parcel_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_error)]),
    "tutti_parcel_send": (c_int, [c_void_p, POINTER(c_int), POINTER(POINTER(c_float)), c_int, POINTER(tutti_freight),
        POINTER(tutti_error)]),
    "tutti_permuted": (c_ulong, [tutti_rng, c_ulong, c_ulong]),
    "tutti_port_of": (c_ulong, [c_char_p, c_ulong, c_ulong]),
    "tutti_post_recv": (c_int, [c_void_p, POINTER(tutti_request), c_int, c_ulong, tutti_buffer, POINTER(tutti_error)]),
    "tutti_post_send": (c_int, [c_void_p, POINTER(tutti_request), c_int, c_ulong, POINTER(tutti_header), tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_record_close": (c_int, [c_void_p, c_bool, POINTER(tutti_error)]),
    "tutti_record_log": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_record_loss": (None, [c_void_p, c_double]),
    "tutti_record_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_record_options), POINTER(tutti_error)]),
    "tutti_record_span": (c_int, [c_void_p, c_char_p, c_long, c_long, POINTER(tutti_error)]),
    "tutti_record_step": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_recv": (c_int, [c_void_p, c_int, c_ulong, POINTER(tutti_header), tutti_buffer, c_long,
        POINTER(tutti_error)]),
    "tutti_reduce": (c_int, [POINTER(tutti_group), c_int, c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_reduce_double": (c_int, [POINTER(tutti_group), c_int, POINTER(c_double), c_ulong, POINTER(tutti_error)]),
    "tutti_reduce_scatter": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_reduce_scatter_v": (c_int, [POINTER(tutti_group), c_int, POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_relay_begin": (c_int, [c_void_p, c_ulong, c_double, CFUNCTYPE(c_int, c_void_p, c_ulong, POINTER(c_float),
        POINTER(tutti_error)), c_void_p, POINTER(tutti_error)]),
    "tutti_relay_close": (None, [c_void_p]),
    "tutti_relay_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(tutti_relay_tensor), c_int, c_int, c_int,
        c_ulong, POINTER(tutti_error)]),
    "tutti_relay_resume": (None, [c_void_p, c_ulong]),
    "tutti_relay_state": (POINTER(tutti_state), [c_void_p, c_ulong, POINTER(c_void_p)]),
    "tutti_relay_steps": (c_ulong, [c_void_p]),
    "tutti_relay_traits": (c_uint, [c_void_p]),
    "tutti_runtime_close": (None, [POINTER(tutti_runtime)]),
    "tutti_runtime_open_posix": (c_int, [POINTER(POINTER(tutti_runtime)), POINTER(tutti_error)]),
    "tutti_safetensors_close": (None, [c_void_p]),
    "tutti_safetensors_count": (c_ulong, [c_void_p]),
    "tutti_safetensors_entry": (POINTER(tutti_tensor_entry), [c_void_p, c_ulong]),
    "tutti_safetensors_find": (POINTER(tutti_tensor_entry), [c_void_p, c_char_p]),
    "tutti_safetensors_metadata": (c_char_p, [c_void_p, c_char_p]),
    "tutti_safetensors_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_safetensors_read": (c_int, [c_void_p, POINTER(tutti_tensor_entry), c_ulong, c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_scatter_parts": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_send": (c_int, [c_void_p, c_int, c_ulong, POINTER(tutti_header), tutti_buffer, POINTER(tutti_error)]),
    "tutti_share_apportion": (None, [c_long, c_int, POINTER(c_double), c_long, POINTER(c_long)]),
    "tutti_share_pass": (c_long, [POINTER(tutti_share), c_ulong, c_int, c_long, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_share_passes": (c_long, [POINTER(tutti_share), c_int]),
    "tutti_share_sample": (c_ulong, [POINTER(tutti_share), c_ulong, c_ulong]),
    "tutti_share_sample_of": (c_ulong, [POINTER(tutti_share), c_int, c_ulong, c_ulong]),
    "tutti_share_steps": (c_ulong, [POINTER(tutti_share)]),
    "tutti_suggest": (None, [c_char_p, POINTER(c_char_p), c_ulong, c_void_p, c_ulong]),
    "tutti_version": (c_char_p, []),
    "tutti_wait_some": (c_int, [c_void_p, POINTER(POINTER(tutti_request)), c_ulong, c_ulong, c_long, POINTER(c_ulong),
        POINTER(tutti_error)]),
    "tutti_world_close": (None, [c_void_p]),
    "tutti_world_device": (c_void_p, [c_void_p]),
    "tutti_world_failure_report": (None, [c_void_p, POINTER(tutti_error)]),
    "tutti_world_flight": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_world_folder": (None, [c_void_p, c_char_p]),
    "tutti_world_give_back": (None, [c_void_p]),
    "tutti_world_host": (c_int, [c_void_p, c_int]),
    "tutti_world_lost": (c_bool, [c_void_p, c_int, c_void_p, c_ulong]),
    "tutti_world_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(tutti_error)]),
    "tutti_world_rank": (c_int, [c_void_p]),
    "tutti_world_runtime": (POINTER(tutti_runtime), [c_void_p]),
    "tutti_world_sent": (None, [c_void_p, c_int, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_world_size": (c_int, [c_void_p]),
    "tutti_world_survives": (c_bool, [c_void_p]),
    "tutti_world_take": (c_bool, [c_void_p]),
    "tutti_world_transport": (c_char_p, [c_void_p]),
}


def declare(library: CDLL) -> None:
    """Gives each function of a loaded library its arguments and its result."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
