"""The public headers as ctypes: made by tools/python-abi, which a test runs again. Not for hands."""
# ruff: noqa
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int16, c_int8,
    c_long, c_longlong, c_uint, c_uint16, c_uint8, c_ulong, c_ulonglong, c_void_p,
)

VERSION = "0.3.0"
# Libraries of one interface have this in their soname.
ABI = "0.3"

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
TUTTI_CPU_SCALAR = 0
TUTTI_CPU_AVX2 = 1
TUTTI_CPU_AVX512 = 2
TUTTI_FILE_READ = 0
TUTTI_FILE_CREATE = 1
TUTTI_FILE_APPEND = 2
TUTTI_F32 = 0
TUTTI_BF16 = 1
TUTTI_F16 = 2
TUTTI_I32 = 3
TUTTI_I64 = 4
TUTTI_U8 = 5
TUTTI_F64 = 6
TUTTI_I8 = 7
TUTTI_INT = 0
TUTTI_REAL = 1
TUTTI_BOOL = 2
TUTTI_CHOICE = 3
TUTTI_TEXT = 4
TUTTI_SPEC = 5
TUTTI_FROM_DEFAULT = 0
TUTTI_FROM_FILE = 1
TUTTI_FROM_ENVIRONMENT = 2
TUTTI_FROM_FLAG = 3
TUTTI_PEER_LOST = 1
TUTTI_PEER_SILENT = 2
TUTTI_PEER_BACK = 3
TUTTI_SUM = 0
TUTTI_MEAN = 1
TUTTI_MAX = 2
TUTTI_MIN = 3
TUTTI_SAME = 0
TUTTI_SLICE = 1
TUTTI_OWN_MEAN = 2
TUTTI_OWN_SUM = 3
TUTTI_OWN_ZERO = 4
TUTTI_SCRATCH = 5
TUTTI_NORM_BLOCK = 4096
TUTTI_HISTOGRAM_EXACT = 1024
TUTTI_HISTOGRAM_BINS = 1081
TUTTI_DRIVE_STAGES_MOST = 64
TUTTI_DRIVE_SUMS_MOST = 8
TUTTI_JOB_IDLE = 0
TUTTI_JOB_QUEUED = 1
TUTTI_JOB_RUNNING = 2
TUTTI_JOB_ENDED = 3
TUTTI_KNOBS_MOST = 6
TUTTI_POINTS_MOST = 200
TUTTI_KNOB_WORDS = 64
TUTTI_AHEAD_MOST = 16
TUTTI_LATE_MOST = 15
TUTTI_GRAPH_SIZE_MAX = 65536
TUTTI_GRAPH_GAP_MAX = 2048
TUTTI_REPLICAS_EQUAL = 1
TUTTI_OWNS_UPDATE = 2
TUTTI_FAULT_TOLERANT = 4
TUTTI_ASYNC = 8
TUTTI_TAKES_CODEC = 16
TUTTI_NON_GRADIENT_UPDATE = 32
TUTTI_SPARSE_ROWS = 64
TUTTI_SHARDED_OPTIMIZER = 128
TUTTI_THROUGH_SERVERS = 256
TUTTI_PARAMETER_SERVERS = 512
TUTTI_RECOMPUTES = 1024
TUTTI_DDP_EQUIVALENT = 2048
TUTTI_FAIL_STOP = 4096
TUTTI_DDP_EQUIVALENT_ALONE = 8192
TUTTI_SHARDED_PARAMETERS = 16384
TUTTI_PIPELINE_SCHEDULE = 32768
TUTTI_PROFILES_UNITS = 65536
TUTTI_UNSYNCHRONIZED_STEPS = 131072
TUTTI_NEVER_SKIPS = 262144
TUTTI_HELD_WHOLE = 0
TUTTI_HELD_BY_PIECE = 1
TUTTI_HELD_BY_UNIT = 2
TUTTI_ORDER_READY = 0
TUTTI_ORDER_LED = 1
TUTTI_SERVICES_MOST = 4
TUTTI_METHOD_DEFAULT_LONGEST = 128
TUTTI_METHOD_DEFAULT_BYTES = 4352
TUTTI_FACILITIES_MOST = 8
TUTTI_NONFINITE_STOP = 0
TUTTI_NONFINITE_SKIP = 1
TUTTI_NONFINITE_KEEP = 2
TUTTI_CODEC_COST_OFF = 0
TUTTI_CODEC_COST_EXPLAIN = 1
TUTTI_CODEC_COST_AUTO_OFF = 2
TUTTI_MEMORY_VALUES = 0
TUTTI_MEMORY_GRADIENTS = 1
TUTTI_MEMORY_STATES = 2
TUTTI_MEMORY_ACTIVATIONS = 3
TUTTI_MEMORY_BUFFERS = 4
TUTTI_MEMORY_KINDS = 5
TUTTI_DOING_COMPUTE = 0
TUTTI_DOING_EXPOSED = 1
TUTTI_DOING_DATA = 2
TUTTI_DOING_OTHER = 3
TUTTI_DOING_REPORT = 4
TUTTI_DOING_OUTSIDE = 5
TUTTI_BY_NOBODY = 0
TUTTI_BY_TUTTI = 1
TUTTI_BY_OPENMPI = 2
TUTTI_BY_PMI = 3
TUTTI_BY_MVAPICH = 4
TUTTI_BY_SLURM = 5
TUTTI_BY_TORCHRUN = 6
TUTTI_FREIGHT_MEAN = 0
TUTTI_FREIGHT_GATHER = 1
TUTTI_PIPELINE_STAGES_MOST = 8
TUTTI_PIPELINE_UNITS_MOST = 200
TUTTI_PIPELINE_NODE = 0
TUTTI_PIPELINE_EQUAL = 1
TUTTI_PIPELINE_HYBRID = 2
TUTTI_TURN_WAIT = 0
TUTTI_TURN_FORWARD = 1
TUTTI_TURN_BACKWARD = 2
TUTTI_TICKTOCK_WAVES_MOST = 4
TUTTI_QUEUES_STANDARD = 0
TUTTI_QUEUES_NOTIFY_ACK = 1
TUTTI_QUEUES_LINEAR = 0
TUTTI_QUEUES_UNIFORM = 1
TUTTI_QUEUES_GAPS = 64
TUTTI_PREDUCE_AUTO = 0
TUTTI_PREDUCE_ON = 1
TUTTI_PREDUCE_OFF = 2
TUTTI_FEEDBACK_AUTO = 0
TUTTI_FEEDBACK_ON = 1
TUTTI_FEEDBACK_OFF = 2
TUTTI_SERVER_CHUNKS = 64
TUTTI_PLACEMENT_LAYERS_MOST = 64
TUTTI_PLACEMENT_TYPES_MOST = 8
TUTTI_PLACEMENT_UNITS_MOST = 32768


class tutti_error(Structure):
    _fields_ = [
        ("status", c_int),
        ("rank", c_int),
        ("cause", c_int),
        ("text", (c_char * 480)),
    ]


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
    ]


class tutti_buffer(Structure):
    _fields_ = [
        ("device", c_void_p),
        ("data", c_void_p),
        ("count", c_ulong),
        ("dtype", c_int),
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
        ("alike", CFUNCTYPE(None, c_void_p)),
        ("traits", c_uint),
        ("traits_of", CFUNCTYPE(c_uint, c_void_p)),
        ("services", POINTER(tutti_service)),
        ("serves", CFUNCTYPE(c_bool, c_void_p)),
        ("settles", CFUNCTYPE(c_ulong, c_void_p, c_ulong, c_ulong)),
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
    ]


class tutti_method(Structure):
    _fields_ = [
        ("ops", POINTER(tutti_method_ops)),
        ("traits", c_uint),
        ("self", c_void_p),
        ("world", c_void_p),
        ("rt", POINTER(tutti_runtime)),
        ("device", c_void_p),
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
        ("beside", c_bool),
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


class tutti_arena_part(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("bytes", c_ulong),
    ]


class tutti_arena_sum(Structure):
    _fields_ = [
        ("now", c_ulong),
        ("peak", c_ulong),
        ("limit", c_ulong),
    ]


class tutti_locks(Structure):
    _fields_ = [
        ("word", POINTER(c_uint)),
        ("rows", c_bool),
    ]


class tutti_note(Structure):
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
        ("note", tutti_note),
        ("status", c_int),
        ("rank", c_int),
        ("done", c_bool),
        ("posted", c_bool),
        ("internal", (c_void_p * 8)),
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


class tutti_codec_about(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("paper", c_char_p),
        ("help", c_char_p),
        ("form", c_char_p),
        ("options", POINTER(tutti_option)),
    ]


class tutti_compensation(Structure):
    _fields_ = [
        ("a", c_float),
        ("decay", c_float),
        ("one_minus_decay", c_float),
        ("eps", c_float),
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


class tutti_cut_options(Structure):
    _fields_ = [
        ("stages", c_int),
        ("in_flight", c_int),
        ("samples", c_long),
        ("speed", POINTER(c_double)),
        ("memory", POINTER(c_double)),
        ("gflops", c_double),
        ("seconds", POINTER(c_double)),
        ("bandwidth", c_double),
        ("more", c_double),
    ]


class tutti_pipeline_plan(Structure):
    _fields_ = [
        ("stages", c_int),
        ("in_flight", c_int),
        ("first", (c_int * 9)),
        ("worker", (c_int * 8)),
        ("seconds", (c_double * 8)),
        ("bytes", (c_double * 8)),
        ("slowest", c_double),
        ("rate", c_double),
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


class tutti_drive_options(Structure):
    _fields_ = [
        ("pipelines", c_int),
        ("stages", c_int),
        ("first", POINTER(c_int)),
        ("worker", POINTER(c_int)),
        ("width", POINTER(c_int)),
        ("samples", c_long),
        ("passes", c_long),
        ("slots", c_int),
        ("apart", c_bool),
        ("alike", c_bool),
        ("own_cuts", c_bool),
    ]


class tutti_codec_figure(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("n", c_ulong),
        ("value", POINTER(c_double)),
    ]


class tutti_codec_record(Structure):
    _fields_ = [
        ("step", c_ulong),
        ("codec", c_char_p),
        ("bytes", c_ulong),
        ("bits", c_double),
        ("norm", c_double),
        ("rho", c_double),
        ("lost", c_double),
        ("density", c_double),
        ("union_density", c_double),
        ("residual", c_double),
        ("n_figures", c_int),
        ("figure", POINTER(tutti_codec_figure)),
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


class tutti_memory_record(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("bytes", c_ulong),
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


class tutti_engine_options(Structure):
    _fields_ = [
        ("method", c_char_p),
        ("optimizer", c_char_p),
        ("lr_schedule", c_char_p),
        ("collective", c_char_p),
        ("codec", c_char_p),
        ("codec_cost", c_int),
        ("codec_report", c_ulong),
        ("codec_checksum", c_bool),
        ("codec_hierarchy", c_char_p),
        ("batch", c_long),
        ("accumulate", c_long),
        ("batch_of", POINTER(c_long)),
        ("parts", POINTER(tutti_parts)),
        ("data_samples", c_ulong),
        ("steps", c_ulong),
        ("seed", c_ulong),
        ("clip_norm", c_double),
        ("nonfinite", c_int),
        ("loss_scale", c_char_p),
        ("fingerprint", c_char_p),
        ("initial", CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float))),
        ("user", c_void_p),
        ("evaluate", CFUNCTYPE(c_int, c_void_p, POINTER(c_double), POINTER(tutti_error))),
        ("update", CFUNCTYPE(c_int, c_void_p, c_double, POINTER(tutti_error))),
        ("sample_bytes", c_ulong),
        ("give", CFUNCTYPE(c_int, c_void_p, POINTER(c_ulong), c_ulong, c_void_p, POINTER(tutti_error))),
        ("label", CFUNCTYPE(c_int, c_void_p, c_ulong)),
        ("lane", c_int),
        ("trace_events", c_ulong),
        ("trace_first", c_ulong),
        ("trace_steps", c_ulong),
        ("stop_on_loss", c_bool),
        ("once", c_bool),
        ("whole_batches", c_bool),
        ("names", c_bool),
        ("streams", c_bool),
        ("needs", c_bool),
        ("same_order", c_bool),
        ("servers", c_int),
        ("model", POINTER(tutti_model)),
        ("own_values", c_ulong),
        ("snapshot_every", c_ulong),
        ("snapshot_most", c_int),
        ("only_declared", c_bool),
        ("device_memory", c_ulong),
    ]


class tutti_received(Structure):
    _fields_ = [
        ("gradients", c_ulong),
        ("samples", c_double),
        ("loss_sum", c_double),
    ]


class tutti_snapshot(Structure):
    _fields_ = [
        ("gradients", c_ulong),
        ("wall_ns", c_long),
        ("bytes_sent", c_ulong),
        ("samples_since", c_ulong),
    ]


class tutti_trace_event(Structure):
    _fields_ = [
        ("what", c_char_p),
        ("index", c_int),
        ("thread", c_uint8),
        ("step", c_ulong),
        ("begin_ns", c_long),
        ("end_ns", c_long),
    ]


class tutti_saved_run(Structure):
    _fields_ = [
        ("slices", c_long),
        ("resized", c_bool),
        ("changed", c_bool),
    ]


class tutti_facility_ops(Structure):
    _fields_ = [
        ("open", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("begin", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("arrive", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("quiesce", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("resume", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("begun", CFUNCTYPE(None, c_void_p)),
        ("without", CFUNCTYPE(c_int, c_void_p, c_int, c_char_p, POINTER(tutti_error))),
        ("slices", CFUNCTYPE(c_long, c_void_p)),
        ("snapshot_due", CFUNCTYPE(None, c_void_p, c_int)),
        ("snapshot_values", CFUNCTYPE(None, c_void_p, POINTER(c_float))),
        ("snapshot_final_model", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(tutti_error))),
        ("snapshot_drop", CFUNCTYPE(None, c_void_p)),
        ("recuts", CFUNCTYPE(c_bool, c_void_p, POINTER(tutti_saved_run), c_void_p)),
        ("load", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(tutti_saved_run), POINTER(tutti_error))),
    ]


class tutti_job(Structure):
    _fields_ = [
        ("run", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_error))),
        ("owner", c_void_p),
        ("index", c_int),
        ("priority", c_ulong),
        ("bytes", c_ulong),
        ("turn", c_ulong),
        ("queued_ns", c_long),
        ("started_ns", c_long),
        ("ended_ns", c_long),
        ("status", c_int),
        ("error", tutti_error),
        ("state", c_int),
        ("next", c_void_p),
    ]


class tutti_knob(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("low", c_double),
        ("high", c_double),
        ("log", c_bool),
        ("multiple", c_double),
        ("choices", POINTER(c_char_p)),
        ("first", c_double),
    ]


class tutti_lane_order(Structure):
    _fields_ = [
        ("credit", c_ulong),
        ("lead", POINTER(tutti_group)),
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


class tutti_launch_host(Structure):
    _fields_ = [
        ("name", (c_char * 128)),
        ("workers", c_int),
        ("first", c_int),
    ]


class tutti_launch_hosts_options(Structure):
    _fields_ = [
        ("hosts", POINTER(tutti_launch_host)),
        ("n_hosts", c_int),
        ("rsh", c_char_p),
        ("agent", c_char_p),
        ("argv", POINTER(c_char_p)),
        ("threads_word", c_int),
        ("environment", POINTER(c_char_p)),
        ("directory", c_char_p),
        ("threads", c_int),
        ("pin", c_bool),
        ("meet", c_bool),
        ("address", c_char_p),
        ("start_ns", c_long),
        ("grace_ns", c_long),
        ("continue_on_loss", c_bool),
        ("servers", c_int),
        ("least", c_int),
        ("stop_ns", c_long),
        ("silence_ns", c_long),
        ("torch", c_bool),
        ("tag", c_bool),
        ("exports", c_char_p),
        ("output", CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_ulong)),
        ("user", c_void_p),
    ]


class tutti_launch_result(Structure):
    _fields_ = [
        ("exit_code", c_int),
        ("rank", c_int),
        ("pid", c_long),
        ("signal", c_int),
        ("noticed_ns", c_long),
        ("text", (c_char * 640)),
    ]


class tutti_launch_options(Structure):
    _fields_ = [
        ("workers", c_int),
        ("threads", c_int),
        ("argv", POINTER(c_char_p)),
        ("environment", POINTER(c_char_p)),
        ("pin", c_bool),
        ("grace_ns", c_long),
        ("meet", c_bool),
        ("first", c_int),
        ("size", c_int),
        ("local_first", c_int),
        ("local_size", c_int),
        ("on_worker", CFUNCTYPE(None, c_void_p, c_int, c_long, c_bool, c_int, c_int)),
        ("user", c_void_p),
        ("continue_on_loss", c_bool),
        ("servers", c_int),
        ("least", c_int),
        ("lost", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("stop_ns", c_long),
        ("silence_ns", c_long),
        ("torch", c_bool),
        ("output", CFUNCTYPE(None, c_void_p, c_int, c_int, c_char_p, c_ulong)),
        ("ends_all", c_bool),
    ]


class tutti_leaders(Structure):
    _fields_ = [
        ("inside", tutti_group),
        ("between", tutti_group),
        ("ranks", POINTER(c_int)),
    ]


class tutti_mixer_options(Structure):
    _fields_ = [
        ("graph", c_char_p),
        ("push", c_bool),
        ("encode", c_bool),
        ("ahead", c_bool),
        ("gamma", c_double),
        ("cross", c_bool),
        ("team", c_int),
        ("by_tensor", c_bool),
    ]


class tutti_offload_options(Structure):
    _fields_ = [
        ("tier", c_char_p),
        ("tile_bytes", c_ulong),
        ("threads", c_int),
        ("delayed", c_bool),
        ("warmup", c_ulong),
        ("ahead", c_int),
    ]


class tutti_pairs_options(Structure):
    _fields_ = [
        ("graph", c_char_p),
        ("peer", c_int),
        ("roles", c_int),
        ("exchanges", c_long),
        ("outstanding", c_long),
        ("lr_staleness", c_bool),
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
    ]


class tutti_pipe_options(Structure):
    _fields_ = [
        ("stages", c_int),
        ("stage", c_int),
        ("in_flight", c_int),
        ("ranks", POINTER(c_int)),
        ("key", c_ulong),
        ("enters", c_ulong),
        ("leaves", c_ulong),
        ("width", POINTER(c_int)),
        ("member", c_int),
        ("period", c_long),
    ]


class tutti_pipe_work(Structure):
    _fields_ = [
        ("self", c_void_p),
        ("forward", CFUNCTYPE(c_int, c_void_p, c_long, c_int, POINTER(c_float), c_ulong, POINTER(c_float),
            POINTER(c_ulong), POINTER(tutti_error))),
        ("backward", CFUNCTYPE(c_int, c_void_p, c_long, c_int, POINTER(c_float), POINTER(c_float),
            POINTER(tutti_error))),
        ("admitted", CFUNCTYPE(c_long, c_void_p)),
        ("await", CFUNCTYPE(c_int, c_void_p, c_long, POINTER(tutti_error))),
        ("admits", CFUNCTYPE(POINTER(tutti_request), c_void_p)),
        ("waits", CFUNCTYPE(None, c_void_p, c_bool)),
    ]


class tutti_pipeline_unit(Structure):
    _fields_ = [
        ("cut", c_bool),
        ("enters", c_double),
        ("values", c_double),
        ("state", c_double),
        ("kept", c_double),
    ]


class tutti_pipeline_profile(Structure):
    _fields_ = [
        ("units", c_int),
        ("workers", c_int),
        ("unit", POINTER(tutti_pipeline_unit)),
        ("seconds", POINTER(c_double)),
        ("memory", POINTER(c_double)),
        ("latency", c_double),
        ("bandwidth", c_double),
    ]


class tutti_pipeline_turns(Structure):
    _fields_ = [
        ("stage", c_int),
        ("stages", c_int),
        ("in_flight", c_int),
        ("forwards", c_long),
        ("backwards", c_long),
    ]


class tutti_placed_options(Structure):
    _fields_ = [
        ("tile_bytes", c_ulong),
        ("threads", c_int),
        ("gradients", POINTER(tutti_place)),
    ]


class tutti_update_part(Structure):
    _fields_ = [
        ("first", c_ulong),
        ("count", c_ulong),
        ("g", POINTER(c_float)),
        ("x", POINTER(c_float)),
    ]


class tutti_placement_layer(Structure):
    _fields_ = [
        ("name", (c_char * 40)),
        ("kind", (c_char * 24)),
        ("enters", c_double),
        ("values", c_double),
    ]


class tutti_placement_type(Structure):
    _fields_ = [
        ("name", (c_char * 32)),
        ("price", c_double),
        ("units", c_int),
    ]


class tutti_placement_time(Structure):
    _fields_ = [
        ("compute", c_double),
        ("communicate", c_double),
        ("compute_share", c_double),
        ("communicate_share", c_double),
    ]


class tutti_placement_problem(Structure):
    _fields_ = [
        ("layers", c_int),
        ("types", c_int),
        ("layer", (tutti_placement_layer * 64)),
        ("type", (tutti_placement_type * 8)),
        ("time", ((tutti_placement_time * 8) * 64)),
        ("batch", c_double),
        ("examples", c_double),
        ("floor", c_double),
        ("besides", c_double),
    ]


class tutti_placement_stage(Structure):
    _fields_ = [
        ("type", c_int),
        ("first", c_int),
        ("end", c_int),
        ("units", c_int),
        ("compute", c_double),
        ("communicate", c_double),
        ("slack", c_double),
    ]


class tutti_placement_plan(Structure):
    _fields_ = [
        ("on", (c_int * 64)),
        ("stages", c_int),
        ("stage", (tutti_placement_stage * 64)),
        ("rate", c_double),
        ("seconds", c_double),
        ("cost", c_double),
    ]


class tutti_placement_speed(Structure):
    _fields_ = [
        ("flops", c_double),
        ("bandwidth", c_double),
        ("compute_share", c_double),
        ("communicate_share", c_double),
    ]


class tutti_placement_scheduled(Structure):
    _fields_ = [
        ("type", (c_char * 32)),
        ("first", c_int),
        ("end", c_int),
        ("units", c_int),
        ("sparse", c_bool),
    ]


class tutti_placement_schedule(Structure):
    _fields_ = [
        ("model", (c_char * 256)),
        ("stages", c_int),
        ("layers", c_int),
        ("stage", (tutti_placement_scheduled * 64)),
        ("unit", (c_int * 65)),
    ]


class tutti_preduce_options(Structure):
    _fields_ = [
        ("generator", c_int),
        ("group_size", c_long),
        ("sync_every", c_long),
        ("filter_threshold", c_long),
        ("inter_intra", c_char_p),
        ("group_timeout", c_double),
        ("overlap", c_int),
        ("log", c_bool),
    ]


class tutti_transfer(Structure):
    _fields_ = [
        ("file", c_void_p),
        ("write", c_bool),
        ("fixed", c_int),
        ("offset", c_ulong),
        ("memory", c_void_p),
        ("bytes", c_ulong),
        ("user", c_void_p),
        ("status", c_int),
        ("err", tutti_error),
        ("done", c_ulong),
        ("stalls", c_int),
    ]


class tutti_queues_options(Structure):
    _fields_ = [
        ("graph", c_char_p),
        ("mode", c_int),
        ("weights", c_int),
        ("max_gap", c_long),
        ("backup", c_long),
        ("staleness", c_long),
    ]


class tutti_queues_figures(Structure):
    _fields_ = [
        ("skipped", c_ulong),
        ("dropped", c_ulong),
        ("tokens_s", c_double),
        ("models_s", c_double),
        ("gap", (c_ulong * 64)),
    ]


class tutti_relay_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("rows", c_ulong),
        ("cols", c_ulong),
    ]


class tutti_ring_options(Structure):
    _fields_ = [
        ("codec", c_char_p),
        ("bucket_bytes", c_ulong),
        ("team", c_int),
        ("overlap", c_bool),
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
        ("with", c_void_p),
        ("hash", c_ulong),
    ]


class tutti_server_request(Structure):
    _fields_ = [
        ("note", tutti_note),
        ("worker", c_int),
        ("kind", c_uint),
        ("b", c_long),
        ("delay", c_ulong),
        ("in", POINTER(c_float)),
        ("words", c_ulong),
        ("stays", c_bool),
        ("first", c_ulong),
        ("count", c_ulong),
    ]


class tutti_server_answers(Structure):
    _fields_ = [
        ("kind", c_uint),
        ("delay", c_ulong),
        ("values", c_bool),
    ]


class tutti_server_setup(Structure):
    _fields_ = [
        ("rule", CFUNCTYPE(c_int, POINTER(tutti_method), POINTER(tutti_server_request), POINTER(tutti_error))),
        ("service", c_int),
        ("servers", c_int),
        ("whole", c_bool),
        ("collects", c_bool),
        ("reads", c_bool),
        ("times", c_bool),
        ("pieces", c_bool),
        ("tables", c_bool),
        ("due", CFUNCTYPE(c_int, POINTER(tutti_method), POINTER(tutti_error))),
        ("wire", c_int),
        ("even", c_bool),
        ("node", c_int),
        ("rails", c_int),
        ("turns", c_bool),
        ("undivided", c_bool),
        ("mixed", c_bool),
        ("parts", POINTER(c_uint)),
        ("codec", c_bool),
        ("feedback", c_int),
        ("anew", c_bool),
        ("tells", c_bool),
        ("lost", CFUNCTYPE(c_int, POINTER(tutti_method), c_int, POINTER(tutti_error))),
    ]


class tutti_server_sums_options(Structure):
    _fields_ = [
        ("service", c_int),
        ("servers", c_int),
        ("even", c_bool),
        ("node", c_int),
        ("rails", c_int),
        ("undivided", c_bool),
        ("mixed", c_bool),
        ("parts", POINTER(c_uint)),
        ("wire", c_int),
        ("codec", c_bool),
        ("feedback", c_int),
        ("slots", c_int),
        ("slots_name", c_char_p),
        ("reports", c_bool),
    ]


class tutti_server_sums_figures(Structure):
    _fields_ = [
        ("under_way_most", c_int),
        ("under_way_mean", c_double),
        ("trip_seconds", c_double),
        ("trip_seconds_most", c_double),
        ("busy_seconds", c_double),
        ("hidden_seconds", c_double),
        ("server", c_int),
        ("imbalance", c_double),
        ("served_bytes", c_ulong),
        ("sums", c_ulong),
    ]


class tutti_adam_step(Structure):
    _fields_ = [
        ("scale", c_float),
        ("decay", c_float),
        ("shrink", c_float),
        ("one_minus_beta1", c_float),
        ("beta2", c_float),
        ("one_minus_beta2", c_float),
        ("eps", c_float),
        ("step_size", c_float),
        ("root_c2", c_float),
    ]


class tutti_sgd_step(Structure):
    _fields_ = [
        ("lr", c_float),
        ("scale", c_float),
        ("momentum", c_float),
        ("one_minus_dampening", c_float),
        ("decay", c_float),
        ("nesterov", c_bool),
        ("first", c_bool),
    ]


class tutti_take_options(Structure):
    _fields_ = [
        ("pass", c_long),
        ("most", c_long),
        ("leased", c_bool),
        ("even", c_bool),
        ("record", c_char_p),
        ("replay", c_char_p),
    ]


class tutti_ticktock_profile(Structure):
    _fields_ = [
        ("forwards", c_int),
        ("parts", c_int),
        ("seconds", POINTER(c_double)),
        ("bytes", POINTER(c_double)),
    ]


class tutti_ticktock_track(Structure):
    _fields_ = [
        ("next", c_int),
        ("at", c_double),
        ("since", c_double),
    ]


class tutti_ticktock(Structure):
    _fields_ = [
        ("profile", POINTER(tutti_ticktock_profile)),
        ("waves", c_int),
        ("offset", c_double),
        ("begun", c_long),
        ("over", c_long),
        ("of", (tutti_ticktock_track * 4)),
    ]


class tutti_tier_sum(Structure):
    _fields_ = [
        ("read", c_ulong),
        ("written", c_ulong),
        ("disk_read", c_ulong),
        ("disk_written", c_ulong),
        ("requests", c_ulong),
        ("staged", c_ulong),
        ("under_way_peak", c_int),
    ]


class tutti_io(Structure):
    _fields_ = [
        ("next", c_void_p),
        ("memory", c_char_p),
        ("at", c_ulong),
        ("bytes", c_ulong),
        ("cut", c_ulong),
        ("left", c_ulong),
        ("write", c_bool),
        ("under_way", c_bool),
        ("status", c_int),
        ("err", tutti_error),
    ]


class tutti_launch(Structure):
    _fields_ = [
        ("rank", c_int),
        ("size", c_int),
        ("spec", c_char_p),
        ("environment", POINTER(c_char_p)),
        ("within", c_void_p),
        ("rt", POINTER(tutti_runtime)),
        ("waits", CFUNCTYPE(None, c_void_p, c_char_p)),
        ("user", c_void_p),
    ]


class tutti_peer_event(Structure):
    _fields_ = [
        ("epoch", c_uint),
        ("rank", c_int),
        ("change", c_int),
        ("at_ns", c_long),
        ("why", (c_char * 200)),
    ]


class tutti_transport_ops(Structure):
    _fields_ = [
        ("abi", c_uint),
        ("bytes", c_uint),
        ("runtime_abi", c_uint),
        ("runtime_bytes", c_uint),
        ("name", c_char_p),
        ("help", c_char_p),
        ("options", POINTER(tutti_option)),
        ("options_bytes", c_ulong),
        ("open", CFUNCTYPE(c_int, POINTER(c_void_p), POINTER(tutti_runtime), POINTER(tutti_launch),
            POINTER(tutti_error))),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("send", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_request), c_int, c_ulong, POINTER(tutti_note), tutti_buffer,
            POINTER(tutti_error))),
        ("recv", CFUNCTYPE(c_int, c_void_p, POINTER(tutti_request), c_int, c_ulong, tutti_buffer,
            POINTER(tutti_error))),
        ("wait_some", CFUNCTYPE(c_int, c_void_p, POINTER(POINTER(tutti_request)), c_ulong, c_ulong, c_long,
            POINTER(c_ulong), POINTER(tutti_error))),
        ("cancel", CFUNCTYPE(None, c_void_p, POINTER(tutti_request))),
        ("dead_peer", CFUNCTYPE(c_int, c_void_p, c_void_p, c_ulong)),
        ("failure_report", CFUNCTYPE(None, c_void_p, POINTER(tutti_error))),
        ("window", CFUNCTYPE(c_int, c_void_p, c_char_p, c_ulong, POINTER(c_void_p), POINTER(tutti_error))),
        ("publish", CFUNCTYPE(None, c_void_p, POINTER(c_uint), c_uint)),
        ("await", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_uint), c_uint, c_long, POINTER(tutti_error))),
        ("run", CFUNCTYPE(c_int, POINTER(tutti_runtime), POINTER(tutti_launch), CFUNCTYPE(c_int, POINTER(tutti_launch),
            c_void_p, POINTER(tutti_error)), c_void_p, POINTER(tutti_error))),
        ("simulated", c_bool),
        ("host", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("events", CFUNCTYPE(c_int, c_void_p, c_int, POINTER(tutti_peer_event), c_int)),
        ("expel", CFUNCTYPE(None, c_void_p, c_int, c_char_p)),
        ("node", CFUNCTYPE(c_int, c_void_p, c_int)),
    ]


class tutti_tuner_options(Structure):
    _fields_ = [
        ("knobs", POINTER(tutti_knob)),
        ("n_knobs", c_int),
        ("points", c_int),
        ("drawn", c_int),
        ("xi", c_double),
        ("seed", c_ulong),
    ]


class tutti_tune_options(Structure):
    _fields_ = [
        ("tuner", tutti_tuner_options),
        ("drop", c_long),
        ("steps", c_long),
        ("apply", CFUNCTYPE(c_int, POINTER(tutti_method), POINTER(c_double), POINTER(tutti_error))),
    ]


class tutti_waves_options(Structure):
    _fields_ = [
        ("service", c_int),
        ("pipelines", c_int),
        ("stages", c_int),
        ("worker", POINTER(c_int)),
        ("range", POINTER(tutti_range)),
        ("distance", c_long),
        ("step", c_long),
    ]


class tutti_tier_kind(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("help", c_char_p),
        ("options", POINTER(tutti_option)),
    ]


class tutti_lr_schedule_ops(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("help", c_char_p),
        ("options", POINTER(tutti_option)),
        ("shape", CFUNCTYPE(c_double, c_void_p, c_ulong, c_ulong)),
    ]


TABLES = {
    "tutti_transports": POINTER(tutti_transport_ops),
    "tutti_optims": POINTER(tutti_optim_ops),
    "tutti_methods": POINTER(tutti_method_ops),
}

FUNCTIONS = {
    "tutti_add": (None, [c_void_p, c_ulong, POINTER(c_float), POINTER(c_float)]),
    "tutti_add_diff": (None, [c_void_p, c_ulong, c_float, POINTER(c_float), POINTER(c_float), POINTER(c_float)]),
    "tutti_algorithm_check": (c_int, [c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_algorithm_prove": (c_int, [c_char_p, c_int, c_ulong, POINTER(tutti_error)]),
    "tutti_allgather": (c_int, [POINTER(tutti_group), tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_allgather_v": (c_int, [POINTER(tutti_group), POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_alloc": (c_void_p, [c_ulong, c_ulong]),
    "tutti_allot": (c_int, [POINTER(tutti_method), POINTER(c_long), POINTER(tutti_error)]),
    "tutti_allot_declare": (c_int, [POINTER(tutti_method), c_void_p, c_long, POINTER(tutti_error)]),
    "tutti_allot_pass": (c_int, [POINTER(tutti_method), POINTER(tutti_pass), POINTER(tutti_error)]),
    "tutti_allreduce": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_allreduce_from": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_allreduce_weighted": (c_int, [POINTER(tutti_group), c_float, tutti_buffer, POINTER(tutti_error)]),
    "tutti_alltoall": (c_int, [POINTER(tutti_group), tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_alltoall_v": (c_int, [POINTER(tutti_group), POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_arena_charge": (c_int, [c_void_p, c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_arena_charge_all": (c_int, [c_void_p, POINTER(tutti_arena_part), c_ulong, POINTER(tutti_error)]),
    "tutti_arena_close": (None, [c_void_p]),
    "tutti_arena_count": (tutti_arena_sum, [c_void_p, c_char_p]),
    "tutti_arena_give": (None, [c_void_p, c_void_p]),
    "tutti_arena_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_char_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_arena_refund": (None, [c_void_p, c_char_p, c_ulong]),
    "tutti_arena_take": (c_int, [c_void_p, c_char_p, c_ulong, c_ulong, POINTER(c_void_p), POINTER(tutti_error)]),
    "tutti_average": (c_int, [POINTER(tutti_method), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_averager_average": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_averager_beat": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_averager_begin": (None, [c_void_p]),
    "tutti_averager_clock": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_averager_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, c_char_p, c_long, c_long,
        POINTER(c_int), POINTER(tutti_error)]),
    "tutti_averager_declare_clock": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, c_long,
        POINTER(c_int), POINTER(tutti_error)]),
    "tutti_averager_mix": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_averager_post": (None, [c_void_p]),
    "tutti_averager_read": (None, [c_void_p]),
    "tutti_averager_tell": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_averager_update": (c_int, [c_void_p, c_long, POINTER(tutti_error)]),
    "tutti_await": (c_int, [POINTER(tutti_method), c_void_p, CFUNCTYPE(c_bool, c_void_p), c_void_p, c_long,
        POINTER(tutti_error)]),
    "tutti_await_samples": (None, [POINTER(tutti_method), c_long]),
    "tutti_await_samples_declare": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_axpy": (None, [c_void_p, c_ulong, c_float, POINTER(c_float), POINTER(c_float)]),
    "tutti_barrier": (c_int, [POINTER(tutti_group), POINTER(tutti_error)]),
    "tutti_base_check": (c_int, [POINTER(tutti_method), POINTER(tutti_rate), POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_base_exchange": (c_int, [POINTER(tutti_method), POINTER(tutti_piece), POINTER(tutti_error)]),
    "tutti_base_gradient": (c_int, [POINTER(tutti_method), POINTER(tutti_rate), POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_base_step": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_base_step_counted": (c_int, [POINTER(tutti_method), POINTER(c_long), POINTER(tutti_error)]),
    "tutti_base_step_locked": (c_int, [POINTER(tutti_method), POINTER(c_float), POINTER(tutti_locks),
        POINTER(tutti_error)]),
    "tutti_base_step_on": (c_int, [POINTER(tutti_method), POINTER(c_float), c_void_p, c_double, POINTER(tutti_error)]),
    "tutti_base_unscale": (None, [POINTER(tutti_method)]),
    "tutti_blend": (None, [c_void_p, c_ulong, c_float, POINTER(c_float), c_float, POINTER(c_float)]),
    "tutti_broadcast": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_buffers_average": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_buffers_declare": (c_int, [POINTER(tutti_method), c_void_p, c_bool, POINTER(tutti_error)]),
    "tutti_buffers_reset": (None, [POINTER(tutti_method)]),
    "tutti_by_piece_check": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_bytes_parse": (c_int, [c_char_p, c_ulong, POINTER(c_ulong), POINTER(tutti_error)]),
    "tutti_cancel": (None, [c_void_p, POINTER(tutti_request)]),
    "tutti_cast": (None, [c_void_p, tutti_buffer, tutti_buffer]),
    "tutti_cast_at_hand": (None, [c_void_p, c_ulong, POINTER(c_float), tutti_buffer, c_bool]),
    "tutti_charge": (None, [POINTER(tutti_runtime), c_double, c_double]),
    "tutti_checkpoint_close": (None, [c_void_p]),
    "tutti_checkpoint_facts": (c_char_p, [c_void_p]),
    "tutti_checkpoint_find": (c_int, [POINTER(tutti_runtime), c_char_p, c_void_p, c_ulong, c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_checkpoint_has": (c_bool, [c_void_p, c_char_p]),
    "tutti_checkpoint_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_checkpoint_parse": (c_int, [POINTER(c_void_p), c_char_p, c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_checkpoint_piece": (c_bool, [c_void_p, c_ulong, POINTER(tutti_saved)]),
    "tutti_checkpoint_read": (c_int, [c_void_p, POINTER(tutti_saved), c_ulong, POINTER(tutti_error)]),
    "tutti_checkpoint_save": (c_int, [c_void_p, c_char_p, c_ulong, POINTER(tutti_saved), c_ulong, c_char_p, c_int,
        POINTER(tutti_error)]),
    "tutti_checkpoint_save_group": (c_int, [POINTER(tutti_group), c_char_p, c_ulong, POINTER(tutti_saved), c_ulong,
        c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_checkpoint_step": (c_ulong, [c_void_p]),
    "tutti_checkpoint_verify": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_checkpoint_world": (c_int, [c_void_p]),
    "tutti_clock_is_common": (c_bool, [POINTER(tutti_runtime)]),
    "tutti_codec_listed": (c_bool, [c_int, POINTER(tutti_codec_about)]),
    "tutti_collective_check": (c_int, [c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_collective_table_check": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_collective_table_load": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_collective_table_text": (c_int, [c_void_p, c_char_p, c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_compensate": (None, [c_void_p, c_ulong, POINTER(tutti_compensation), POINTER(c_float), POINTER(c_float),
        POINTER(c_float), POINTER(c_float)]),
    "tutti_computed_ns": (c_long, [POINTER(tutti_method)]),
    "tutti_copy": (None, [c_void_p, c_ulong, POINTER(c_float), POINTER(c_float)]),
    "tutti_copy_text": (c_char_p, [c_char_p]),
    "tutti_cores": (c_int, []),
    "tutti_cpu_best": (c_int, []),
    "tutti_cpu_name": (c_char_p, [c_int]),
    "tutti_credit": (None, [POINTER(tutti_method), c_ulong]),
    "tutti_cut_most": (c_int, [POINTER(tutti_model)]),
    "tutti_cut_stages": (c_int, [POINTER(tutti_method), POINTER(tutti_model), POINTER(tutti_cut_options),
        POINTER(tutti_pipeline_plan), POINTER(tutti_error)]),
    "tutti_declare": (None, [c_void_p, POINTER(tutti_state), c_void_p]),
    "tutti_declare_late_value": (None, [c_void_p, c_char_p, c_int, c_void_p, c_ulong]),
    "tutti_declare_value": (None, [c_void_p, c_char_p, c_int, c_void_p, c_ulong]),
    "tutti_declare_vector": (None, [c_void_p, c_char_p, c_int, POINTER(POINTER(c_float))]),
    "tutti_device_charge": (None, [c_void_p, c_double, c_double]),
    "tutti_device_close": (None, [c_void_p]),
    "tutti_device_cpu": (c_int, [c_void_p]),
    "tutti_device_kind": (c_char_p, [c_void_p]),
    "tutti_device_open_host": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_int, POINTER(tutti_error)]),
    "tutti_diff": (None, [c_void_p, c_ulong, c_float, POINTER(c_float), POINTER(c_float), POINTER(c_float)]),
    "tutti_directory_list": (c_int, [POINTER(tutti_runtime), c_char_p, CFUNCTYPE(c_int, c_void_p, c_char_p,
        POINTER(tutti_error)), c_void_p, POINTER(tutti_error)]),
    "tutti_directory_make": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_directory_sync": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_discarded": (None, [POINTER(tutti_method)]),
    "tutti_dot": (c_double, [c_void_p, c_ulong, POINTER(c_float), POINTER(c_float)]),
    "tutti_drive_backward": (c_int, [POINTER(tutti_method), c_ulong, c_int, POINTER(tutti_pass), POINTER(c_float),
        POINTER(c_float), POINTER(c_float), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_drive_begin_backward": (c_int, [POINTER(tutti_method), c_ulong, c_int, POINTER(tutti_pass),
        POINTER(c_float), POINTER(c_float), POINTER(c_float), POINTER(c_float), POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_drive_begin_forward": (c_int, [POINTER(tutti_method), c_ulong, c_int, POINTER(tutti_pass), POINTER(c_float),
        POINTER(c_float), POINTER(c_float), POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_drive_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_drive_options),
        POINTER(tutti_error)]),
    "tutti_drive_forward": (c_int, [POINTER(tutti_method), c_ulong, c_int, POINTER(tutti_pass), POINTER(c_float),
        POINTER(c_float), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_drive_go_on": (c_int, [POINTER(tutti_method), c_ulong, c_int, POINTER(tutti_pass), c_bool, POINTER(c_bool),
        POINTER(tutti_error)]),
    "tutti_drive_held": (c_ulong, [POINTER(tutti_method)]),
    "tutti_drive_model": (c_int, [POINTER(tutti_method), POINTER(POINTER(tutti_model)), POINTER(tutti_error)]),
    "tutti_drive_optimizer": (c_int, [POINTER(tutti_method), c_void_p, c_char_p, POINTER(POINTER(tutti_optim)),
        POINTER(tutti_error)]),
    "tutti_drive_optimizer_slots": (c_int, [POINTER(tutti_method)]),
    "tutti_drive_pass": (None, [POINTER(tutti_method), c_ulong, c_long, POINTER(tutti_pass)]),
    "tutti_drive_range": (tutti_range, [POINTER(tutti_method), c_int, c_int]),
    "tutti_drive_rate": (tutti_rate, [POINTER(tutti_method), c_ulong, c_ulong]),
    "tutti_drive_sum": (c_int, [POINTER(tutti_method), POINTER(c_float), c_ulong, POINTER(tutti_error)]),
    "tutti_drive_sum_over": (c_bool, [POINTER(tutti_method), c_int]),
    "tutti_drive_sum_start": (None, [POINTER(tutti_method), c_int, c_double, POINTER(c_float)]),
    "tutti_drive_sum_wait": (c_int, [POINTER(tutti_method), c_int, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_drive_update": (c_int, [POINTER(tutti_method), POINTER(tutti_optim), POINTER(c_float), POINTER(c_float),
        POINTER(tutti_rate), POINTER(tutti_error)]),
    "tutti_drive_update_part": (c_int, [POINTER(tutti_method), POINTER(tutti_optim), c_ulong, c_ulong,
        POINTER(c_float), POINTER(c_float), POINTER(tutti_rate), POINTER(tutti_error)]),
    "tutti_drive_waits": (None, [POINTER(tutti_method), c_bool]),
    "tutti_dtype_bytes": (c_ulong, [c_int]),
    "tutti_dtype_name": (c_char_p, [c_int]),
    "tutti_end": (None, [POINTER(tutti_method)]),
    "tutti_engine_apart": (c_double, [c_void_p]),
    "tutti_engine_client_state": (POINTER(c_float), [c_void_p]),
    "tutti_engine_close": (None, [c_void_p]),
    "tutti_engine_codec_records": (POINTER(tutti_codec_record), [c_void_p]),
    "tutti_engine_doing": (c_int, [c_void_p, c_int]),
    "tutti_engine_drive": (c_int, [c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_engine_drop_snapshots": (None, [c_void_p]),
    "tutti_engine_ended": (c_bool, [c_void_p]),
    "tutti_engine_eval_begin": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_eval_end": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_eval_snapshot": (c_int, [c_void_p, c_int, POINTER(tutti_error)]),
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
    "tutti_engine_has": (c_bool, [c_void_p, c_int]),
    "tutti_engine_load": (c_int, [c_void_p, c_void_p, POINTER(tutti_error)]),
    "tutti_engine_lr": (c_int, [c_void_p, c_double, POINTER(tutti_error)]),
    "tutti_engine_memory": (c_ulong, [c_void_p, POINTER(tutti_memory_record), c_ulong]),
    "tutti_engine_method": (POINTER(tutti_method), [c_void_p]),
    "tutti_engine_metrics": (c_int, [c_void_p, POINTER(POINTER(tutti_metric_record))]),
    "tutti_engine_more": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_more_epochs": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_more_samples": (c_int, [c_void_p, c_ulong, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_param), c_int,
        POINTER(tutti_engine_options), POINTER(tutti_error)]),
    "tutti_engine_open_from": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_param), c_int,
        POINTER(tutti_engine_options), POINTER(POINTER(tutti_method_ops)), POINTER(tutti_error)]),
    "tutti_engine_part": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_pass_begin": (c_int, [c_void_p, POINTER(tutti_pass), POINTER(tutti_error)]),
    "tutti_engine_pass_end": (c_int, [c_void_p, c_double, POINTER(tutti_error)]),
    "tutti_engine_payload": (POINTER(c_ulong), [c_void_p]),
    "tutti_engine_received": (None, [c_void_p, POINTER(tutti_received)]),
    "tutti_engine_received_most": (c_long, [c_void_p]),
    "tutti_engine_regroup": (c_bool, [c_void_p, POINTER(tutti_group), c_ulong]),
    "tutti_engine_reshare": (c_int, [c_void_p, POINTER(c_long), POINTER(tutti_error)]),
    "tutti_engine_rows_acquire": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error)]),
    "tutti_engine_save": (c_int, [c_void_p, c_char_p, c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_engine_settle": (c_int, [c_void_p, c_int, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_engine_share": (POINTER(tutti_share), [c_void_p]),
    "tutti_engine_snapshot": (None, [c_void_p, c_int, POINTER(tutti_snapshot)]),
    "tutti_engine_snapshots": (c_int, [c_void_p, POINTER(c_int), POINTER(tutti_error)]),
    "tutti_engine_state": (c_int, [c_void_p, POINTER(POINTER(tutti_saved)), POINTER(c_ulong), POINTER(tutti_error)]),
    "tutti_engine_state_written": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_step": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_engine_swap": (c_bool, [c_void_p]),
    "tutti_engine_takes": (c_int, [c_void_p]),
    "tutti_engine_trace": (c_ulong, [c_void_p, POINTER(POINTER(tutti_trace_event))]),
    "tutti_engine_trace_lost": (c_ulong, [c_void_p]),
    "tutti_engine_unit_acquire": (c_int, [c_void_p, c_int, c_bool, POINTER(tutti_error)]),
    "tutti_engine_unit_release": (c_int, [c_void_p, c_int, c_bool, POINTER(tutti_error)]),
    "tutti_engine_use_device": (c_int, [c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_engine_values": (POINTER(c_float), [c_void_p, c_int]),
    "tutti_entropy": (None, [POINTER(tutti_runtime), c_void_p, c_ulong]),
    "tutti_evaluate": (c_int, [POINTER(tutti_method), POINTER(c_double), POINTER(tutti_error)]),
    "tutti_evaluate_declare": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_exchange": (c_int, [POINTER(tutti_method), POINTER(tutti_piece), c_double, POINTER(tutti_error)]),
    "tutti_exchange_all": (c_int, [POINTER(tutti_method), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_exchange_ask": (c_int, [POINTER(tutti_method), c_double, POINTER(c_double), POINTER(c_double),
        POINTER(tutti_error)]),
    "tutti_exchange_ask_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_error)]),
    "tutti_exchange_check_all": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_exchange_codec": (c_char_p, [POINTER(tutti_method)]),
    "tutti_exchange_declare": (c_int, [POINTER(tutti_method), c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_exchange_once": (c_int, [POINTER(tutti_method), c_char_p, POINTER(tutti_error)]),
    "tutti_exchange_plain": (c_int, [POINTER(tutti_method), POINTER(tutti_piece), c_double, POINTER(tutti_error)]),
    "tutti_exchange_teams": (c_int, [POINTER(tutti_method), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_facility_add": (None, [POINTER(tutti_method), POINTER(tutti_facility_ops), c_void_p]),
    "tutti_fails_with": (c_int, [POINTER(tutti_method), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_file_begin": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_bool, POINTER(tutti_error)]),
    "tutti_file_bytes": (c_ulong, [c_void_p]),
    "tutti_file_close": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_file_end": (c_int, [c_void_p, c_int, POINTER(tutti_error)]),
    "tutti_file_exists": (c_bool, [POINTER(tutti_runtime), c_char_p]),
    "tutti_file_map": (c_int, [c_void_p, POINTER(c_void_p), POINTER(tutti_error)]),
    "tutti_file_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_file_read": (c_int, [c_void_p, c_ulong, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_file_remove": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_file_rename": (c_int, [POINTER(tutti_runtime), c_char_p, c_char_p, POINTER(tutti_error)]),
    "tutti_file_reserve": (c_int, [c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_file_scratch": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_ulong, c_bool,
        POINTER(tutti_error)]),
    "tutti_file_sync": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_file_wide": (c_bool, [POINTER(tutti_runtime)]),
    "tutti_file_write": (c_int, [c_void_p, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_file_write_at": (c_int, [c_void_p, c_ulong, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_fill": (None, [c_void_p, c_ulong, c_float, POINTER(c_float)]),
    "tutti_fill_normal": (None, [c_void_p, c_ulong, tutti_rng, POINTER(c_float)]),
    "tutti_fill_uniform": (None, [c_void_p, c_ulong, tutti_rng, c_float, c_float, POINTER(c_float)]),
    "tutti_finite": (c_bool, [c_void_p, c_ulong, POINTER(c_float)]),
    "tutti_free": (None, [c_void_p]),
    "tutti_gather": (c_int, [POINTER(tutti_method), POINTER(c_float), c_ulong, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_gather_parts": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_gather_parts_v": (c_int, [POINTER(tutti_group), c_int, POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_gather_v": (c_int, [POINTER(tutti_method), POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_give": (c_int, [POINTER(tutti_method), POINTER(tutti_pass), POINTER(c_ulong), POINTER(c_long),
        POINTER(c_long), POINTER(tutti_error)]),
    "tutti_give_declare": (c_int, [POINTER(tutti_method), c_void_p, c_long, POINTER(tutti_error)]),
    "tutti_graph_close": (None, [c_void_p]),
    "tutti_graph_degree": (c_int, [c_void_p]),
    "tutti_graph_family": (c_bool, [c_int, POINTER(c_char_p), POINTER(c_char_p), POINTER(POINTER(tutti_option))]),
    "tutti_graph_gap": (c_int, [c_void_p, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_graph_is": (c_bool, [c_void_p, c_char_p]),
    "tutti_graph_messages": (c_double, [c_void_p]),
    "tutti_graph_open": (c_int, [POINTER(c_void_p), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_graph_open_push": (c_int, [POINTER(c_void_p), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_graph_partners": (c_int, [c_void_p, POINTER(c_bool), c_int, POINTER(c_int), POINTER(c_int),
        POINTER(tutti_error)]),
    "tutti_graph_period": (c_ulong, [c_void_p]),
    "tutti_graph_product": (c_int, [c_void_p, c_ulong, c_ulong, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_graph_require": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_graph_roles": (c_int, [c_void_p, POINTER(c_bool), POINTER(c_int), POINTER(tutti_error)]),
    "tutti_graph_round": (None, [c_void_p, c_ulong, c_int, POINTER(c_int), POINTER(c_double), POINTER(c_int),
        POINTER(c_int), POINTER(c_double), POINTER(c_int), POINTER(c_double)]),
    "tutti_graph_size": (c_int, [c_void_p]),
    "tutti_group_give_up": (None, [POINTER(tutti_group), c_int]),
    "tutti_group_keyed": (tutti_group, [POINTER(tutti_group), c_ulong, c_uint]),
    "tutti_group_of": (tutti_group, [c_void_p, POINTER(c_int), c_int, c_ulong]),
    "tutti_group_rank": (c_int, [POINTER(tutti_group), c_int]),
    "tutti_group_workers": (tutti_group, [c_void_p, c_ulong]),
    "tutti_hash": (c_ulong, [c_void_p, c_ulong]),
    "tutti_held_bytes": (c_ulong, [POINTER(tutti_method)]),
    "tutti_histogram_add": (None, [POINTER(tutti_histogram), c_ulong]),
    "tutti_histogram_bin": (c_int, [c_ulong]),
    "tutti_histogram_least": (c_ulong, [c_int]),
    "tutti_is_left_out": (c_bool, [POINTER(tutti_method), c_int, POINTER(tutti_error)]),
    "tutti_job_over": (c_bool, [c_void_p, POINTER(tutti_job)]),
    "tutti_job_wait": (c_int, [c_void_p, POINTER(tutti_job), POINTER(tutti_error)]),
    "tutti_keep_name": (c_char_p, [c_int]),
    "tutti_knob_check": (c_int, [POINTER(tutti_knob), POINTER(tutti_error)]),
    "tutti_knob_text": (None, [POINTER(tutti_knob), c_double, c_void_p, c_ulong]),
    "tutti_lane_close": (None, [c_void_p]),
    "tutti_lane_credit": (None, [c_void_p, c_ulong]),
    "tutti_lane_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_lane_open_ordered": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_int,
        POINTER(tutti_lane_order), POINTER(tutti_error)]),
    "tutti_lane_start": (None, [c_void_p, POINTER(tutti_job)]),
    "tutti_lane_turns": (c_ulong, [c_void_p]),
    "tutti_late_age": (c_ulong, [POINTER(tutti_method)]),
    "tutti_late_declare": (c_int, [POINTER(tutti_method), c_void_p, c_int, c_ulong, c_bool, POINTER(tutti_error)]),
    "tutti_late_overlaps": (c_bool, [POINTER(tutti_method)]),
    "tutti_late_step": (c_ulong, [POINTER(tutti_method)]),
    "tutti_late_waited_ns": (c_long, [POINTER(tutti_method)]),
    "tutti_launch_agent": (c_int, [c_int, c_int]),
    "tutti_launch_claim_close": (None, [c_void_p]),
    "tutti_launch_claim_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_launch_find_place": (c_int, [POINTER(c_char_p), POINTER(tutti_launch_place), POINTER(tutti_error)]),
    "tutti_launch_gather": (c_int, [POINTER(c_void_p), POINTER(tutti_launch_place), c_char_p, POINTER(c_char_p),
        c_long, CFUNCTYPE(None, c_void_p, c_char_p), c_void_p, POINTER(tutti_error)]),
    "tutti_launch_gather_close": (None, [c_void_p]),
    "tutti_launch_gathered": (POINTER(c_char_p), [c_void_p]),
    "tutti_launch_gathers": (c_bool, [POINTER(tutti_launch_place), c_char_p, POINTER(c_char_p)]),
    "tutti_launch_host_at": (c_int, [c_char_p, c_long, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_launch_hosts": (c_int, [POINTER(tutti_launch_hosts_options), POINTER(tutti_launch_result),
        POINTER(tutti_error)]),
    "tutti_launch_parse_hosts": (c_int, [c_char_p, POINTER(POINTER(tutti_launch_host)), POINTER(c_int), POINTER(c_int),
        POINTER(tutti_error)]),
    "tutti_launch_patient": (None, [POINTER(tutti_runtime), POINTER(c_char_p)]),
    "tutti_launch_place_environment": (c_int, [POINTER(tutti_launch_place), POINTER(c_char_p),
        POINTER(POINTER(c_char_p)), POINTER(tutti_error)]),
    "tutti_launch_place_meets": (c_int, [POINTER(tutti_launch_place), POINTER(c_char_p), POINTER(tutti_error)]),
    "tutti_launch_place_transport": (c_char_p, [POINTER(tutti_launch_place)]),
    "tutti_launch_run": (c_int, [POINTER(tutti_launch_options), POINTER(tutti_launch_result), POINTER(tutti_error)]),
    "tutti_leaders_close": (None, [POINTER(tutti_leaders)]),
    "tutti_leaders_give": (c_int, [POINTER(tutti_leaders), tutti_buffer, POINTER(tutti_error)]),
    "tutti_leaders_keyed": (tutti_leaders, [POINTER(tutti_leaders), c_ulong, c_uint]),
    "tutti_leaders_open": (c_int, [POINTER(tutti_leaders), POINTER(tutti_group), c_int, c_char_p,
        POINTER(tutti_error)]),
    "tutti_leaders_sum": (c_int, [POINTER(tutti_leaders), c_float, tutti_buffer, POINTER(tutti_error)]),
    "tutti_leaders_take": (c_int, [POINTER(tutti_leaders), tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_lock": (None, [c_void_p]),
    "tutti_locked_read": (None, [POINTER(tutti_method), POINTER(tutti_locks), POINTER(c_float)]),
    "tutti_locked_read_rows": (None, [POINTER(tutti_method), POINTER(tutti_locks), POINTER(c_float), c_int,
        POINTER(c_uint), c_ulong]),
    "tutti_locks_count": (c_ulong, [POINTER(tutti_method), c_bool]),
    "tutti_locks_leave": (None, [POINTER(c_uint)]),
    "tutti_locks_take": (None, [POINTER(tutti_method), POINTER(c_uint)]),
    "tutti_lookup": (c_char_p, [c_char_p, c_char_p, c_void_p, POINTER(c_void_p)]),
    "tutti_loss_scale_check": (c_int, [c_char_p, POINTER(tutti_error)]),
    "tutti_lr_schedule_close": (None, [c_void_p]),
    "tutti_lr_schedule_factor": (c_double, [c_void_p, c_ulong]),
    "tutti_lr_schedule_open": (c_int, [POINTER(c_void_p), c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_machine_bytes": (c_ulong, []),
    "tutti_machine_quota": (c_int, []),
    "tutti_members_agree": (c_int, [c_void_p, c_int, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_members_close": (None, [c_void_p]),
    "tutti_members_epoch": (c_uint, [c_void_p]),
    "tutti_members_group": (tutti_group, [c_void_p, c_ulong]),
    "tutti_members_has": (c_bool, [c_void_p, c_int]),
    "tutti_members_open": (c_int, [POINTER(c_void_p), c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_members_part": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_memory_name": (c_char_p, [c_int]),
    "tutti_merge_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_error)]),
    "tutti_merged": (c_long, [POINTER(tutti_method)]),
    "tutti_method_alike": (c_bool, [c_char_p, c_char_p]),
    "tutti_method_default_completes": (c_bool, [POINTER(tutti_method_default)]),
    "tutti_method_default_of": (c_bool, [POINTER(tutti_method_ops), c_char_p, c_char_p, c_char_p, c_int, c_void_p]),
    "tutti_method_find": (POINTER(tutti_method_ops), [c_char_p]),
    "tutti_method_settles": (c_ulong, [c_char_p, c_ulong, c_ulong]),
    "tutti_method_traits": (c_bool, [c_char_p, POINTER(c_uint)]),
    "tutti_metric": (None, [POINTER(tutti_method), c_char_p, c_int, c_double]),
    "tutti_metric_at": (None, [POINTER(tutti_method), c_char_p, c_int, c_long, c_double]),
    "tutti_metric_histogram": (None, [POINTER(tutti_method), c_char_p, c_int, POINTER(tutti_histogram)]),
    "tutti_mix": (c_int, [c_void_p, c_ulong, POINTER(c_float), POINTER(c_float), POINTER(c_long),
        POINTER(tutti_error)]),
    "tutti_mix_start": (None, [c_void_p, c_ulong, POINTER(c_float), POINTER(c_float), POINTER(c_long)]),
    "tutti_mix_wait": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_mixer_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_mixer_options),
        POINTER(tutti_error)]),
    "tutti_mixer_give_back": (c_int, [c_void_p, c_int, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_mixer_model": (POINTER(c_float), [c_void_p, c_int]),
    "tutti_mixer_neighbours": (c_int, [c_void_p]),
    "tutti_mixer_restart": (None, [c_void_p, POINTER(c_float)]),
    "tutti_mixer_take_back": (c_int, [c_void_p, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_monitor_close": (None, [c_void_p]),
    "tutti_monitor_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), POINTER(tutti_error)]),
    "tutti_names_declare": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_norm2": (c_double, [c_void_p, c_ulong, POINTER(c_float)]),
    "tutti_norm2_blocks": (None, [POINTER(tutti_method), c_ulong, c_ulong, POINTER(c_double)]),
    "tutti_normal": (c_double, [tutti_rng, c_ulong]),
    "tutti_now_ns": (c_long, [POINTER(tutti_runtime)]),
    "tutti_offload_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_offload_options),
        POINTER(tutti_error)]),
    "tutti_offload_step": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_optim_by_rows": (c_bool, [POINTER(tutti_optim)]),
    "tutti_optim_close": (None, [POINTER(tutti_optim)]),
    "tutti_optim_declare": (c_int, [POINTER(POINTER(tutti_optim)), c_void_p, c_char_p, c_char_p, c_ulong, c_ulong,
        c_int, c_void_p, POINTER(tutti_error)]),
    "tutti_optim_declare_ranges": (c_int, [POINTER(POINTER(tutti_optim)), c_void_p, c_char_p, c_char_p,
        POINTER(tutti_range), c_ulong, c_bool, c_char_p, c_void_p, POINTER(tutti_error)]),
    "tutti_optim_find": (POINTER(tutti_optim_ops), [c_char_p]),
    "tutti_optim_lazy": (c_bool, [POINTER(tutti_optim)]),
    "tutti_optim_lr": (c_double, [POINTER(tutti_optim)]),
    "tutti_optim_placed": (None, [POINTER(tutti_optim)]),
    "tutti_optimizer_declare": (c_int, [POINTER(tutti_method), c_void_p, c_ulong, c_ulong, c_int,
        POINTER(tutti_error)]),
    "tutti_option_find": (POINTER(tutti_option), [POINTER(tutti_option), c_char_p]),
    "tutti_option_holds": (c_bool, [POINTER(tutti_option), c_char_p, c_void_p]),
    "tutti_option_is_condition": (c_bool, [POINTER(tutti_option), c_char_p]),
    "tutti_option_positives": (c_int, [c_char_p, POINTER(c_double), c_int]),
    "tutti_option_print": (c_int, [POINTER(tutti_option), c_void_p, c_void_p, c_ulong]),
    "tutti_option_set": (c_int, [POINTER(tutti_option), c_char_p, c_char_p, c_void_p, POINTER(tutti_error)]),
    "tutti_option_type_name": (c_char_p, [c_int]),
    "tutti_options_check": (c_int, [POINTER(tutti_option), c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_options_default": (None, [POINTER(tutti_option), c_void_p]),
    "tutti_pairs_answer": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_pairs_ask": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_pairs_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_pairs_options),
        POINTER(c_int), POINTER(tutti_error)]),
    "tutti_pairs_read": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_pairs_update": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_parcel_close": (None, [c_void_p]),
    "tutti_parcel_next": (c_int, [c_void_p, POINTER(tutti_freight), POINTER(tutti_error)]),
    "tutti_parcel_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_error)]),
    "tutti_parcel_send": (c_int, [c_void_p, POINTER(c_int), POINTER(POINTER(c_float)), c_int, POINTER(tutti_freight),
        POINTER(tutti_error)]),
    "tutti_permuted": (c_ulong, [tutti_rng, c_ulong, c_ulong]),
    "tutti_philox": (None, [POINTER(c_uint), POINTER(c_uint), POINTER(c_uint)]),
    "tutti_philox_begin": (None, [tutti_rng, POINTER(c_uint), POINTER(c_uint)]),
    "tutti_pipe_close": (None, [c_void_p]),
    "tutti_pipe_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(tutti_pipe_options), POINTER(tutti_error)]),
    "tutti_pipe_run": (c_int, [c_void_p, c_long, POINTER(tutti_pipe_work), POINTER(tutti_error)]),
    "tutti_pipe_sent": (None, [c_void_p, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_pipe_slots": (c_int, [POINTER(tutti_pipe_options), c_int]),
    "tutti_pipeline_allocate": (c_int, [c_int, c_int, POINTER(c_int), POINTER(c_double), POINTER(c_int),
        POINTER(c_int), POINTER(c_int), POINTER(tutti_error)]),
    "tutti_pipeline_best": (c_int, [POINTER(tutti_pipeline_profile), POINTER(c_int), c_int, c_int,
        POINTER(tutti_pipeline_plan), POINTER(tutti_error)]),
    "tutti_pipeline_bubble": (c_double, [c_int, c_long]),
    "tutti_pipeline_next": (c_int, [POINTER(tutti_pipeline_turns), c_long, c_long]),
    "tutti_pipeline_partition": (c_int, [POINTER(tutti_pipeline_profile), POINTER(c_int), c_int, c_int,
        POINTER(tutti_pipeline_plan), POINTER(tutti_error)]),
    "tutti_pipeline_widths": (c_int, [c_int, POINTER(c_bool), POINTER(c_double), c_int, c_int, POINTER(c_int),
        POINTER(c_int), POINTER(tutti_error)]),
    "tutti_placed_bytes": (c_ulong, [POINTER(tutti_optim), POINTER(tutti_placed_options)]),
    "tutti_placed_close": (None, [c_void_p]),
    "tutti_placed_give": (c_int, [c_void_p, POINTER(tutti_update_part), POINTER(tutti_error)]),
    "tutti_placed_open": (c_int, [POINTER(c_void_p), POINTER(tutti_optim), POINTER(tutti_place),
        POINTER(tutti_runtime), POINTER(tutti_placed_options), c_void_p, POINTER(tutti_error)]),
    "tutti_placed_take": (c_int, [c_void_p, POINTER(tutti_update_part), POINTER(tutti_error)]),
    "tutti_placed_update": (c_int, [c_void_p, POINTER(tutti_update_part), c_ulong, POINTER(tutti_rate), CFUNCTYPE(None,
        c_void_p, c_ulong), c_void_p, POINTER(tutti_error)]),
    "tutti_placed_updated": (c_ulong, [c_void_p]),
    "tutti_placement_check": (c_int, [POINTER(tutti_placement_problem), POINTER(tutti_error)]),
    "tutti_placement_find": (c_int, [POINTER(tutti_placement_problem), c_char_p, POINTER(tutti_placement_plan),
        POINTER(tutti_error)]),
    "tutti_placement_parse": (c_int, [c_char_p, c_char_p, c_ulong, POINTER(tutti_placement_problem),
        POINTER(tutti_placement_speed), POINTER(tutti_error)]),
    "tutti_placement_provision": (c_int, [POINTER(tutti_placement_problem), POINTER(c_int),
        POINTER(tutti_placement_plan), POINTER(tutti_error)]),
    "tutti_placement_read": (c_int, [c_char_p, c_char_p, c_ulong, POINTER(tutti_placement_schedule),
        POINTER(tutti_error)]),
    "tutti_placement_search": (c_char_p, [c_int, POINTER(POINTER(tutti_option))]),
    "tutti_placement_share": (c_double, [c_double, POINTER(c_int), POINTER(c_double), c_int]),
    "tutti_plan_carry_out": (c_int, [c_void_p, c_void_p, POINTER(tutti_error)]),
    "tutti_plan_close": (None, [c_void_p]),
    "tutti_plan_count": (c_ulong, [c_void_p]),
    "tutti_plan_count_in": (None, [c_void_p, c_void_p, c_void_p]),
    "tutti_plan_open": (c_int, [POINTER(c_void_p), c_ulong, POINTER(tutti_error)]),
    "tutti_plan_place": (POINTER(tutti_place), [c_void_p, c_ulong]),
    "tutti_plan_state": (POINTER(tutti_state), [c_void_p, c_ulong, POINTER(c_void_p)]),
    "tutti_port_of": (c_ulong, [c_char_p, c_ulong, c_ulong]),
    "tutti_post_recv": (c_int, [c_void_p, POINTER(tutti_request), c_int, c_ulong, tutti_buffer, POINTER(tutti_error)]),
    "tutti_post_send": (c_int, [c_void_p, POINTER(tutti_request), c_int, c_ulong, POINTER(tutti_note), tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_preduce_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p,
        POINTER(tutti_preduce_options), POINTER(c_int), POINTER(tutti_error)]),
    "tutti_preduce_generate": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_preduce_is_static": (c_bool, [POINTER(tutti_preduce_options)]),
    "tutti_preduce_leave": (None, [c_void_p]),
    "tutti_preduce_read": (None, [c_void_p]),
    "tutti_preduce_reduce": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_preduce_tell": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_preduce_update": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_queue_add": (None, [c_void_p, POINTER(tutti_transfer)]),
    "tutti_queue_built_with": (c_char_p, []),
    "tutti_queue_close": (None, [c_void_p]),
    "tutti_queue_fix": (c_int, [c_void_p, c_void_p, c_ulong, POINTER(c_int), POINTER(tutti_error)]),
    "tutti_queue_kick": (None, [c_void_p]),
    "tutti_queue_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_int, POINTER(tutti_error)]),
    "tutti_queue_reap": (c_int, [c_void_p, c_bool, POINTER(POINTER(tutti_transfer)), c_int, POINTER(c_int),
        POINTER(tutti_error)]),
    "tutti_queues_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_queues_options),
        POINTER(c_int), POINTER(tutti_error)]),
    "tutti_queues_figures_of": (POINTER(tutti_queues_figures), [c_void_p]),
    "tutti_queues_go_on": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_queues_jump": (c_int, [c_void_p, c_long, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_queues_ledger": (c_void_p, [c_void_p]),
    "tutti_queues_may_jump": (c_long, [c_void_p, c_long, c_long]),
    "tutti_queues_mix": (c_int, [c_void_p, POINTER(c_float), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_queues_send": (c_int, [c_void_p, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_queues_take_models": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_queues_take_tokens": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_random": (c_ulong, [tutti_rng, c_ulong]),
    "tutti_rate_at": (tutti_rate, [POINTER(tutti_method), c_ulong]),
    "tutti_rate_now": (tutti_rate, [POINTER(tutti_method)]),
    "tutti_recut": (c_int, [POINTER(tutti_method), c_ulong, c_ulong, POINTER(tutti_error)]),
    "tutti_recv": (c_int, [c_void_p, c_int, c_ulong, POINTER(tutti_note), tutti_buffer, c_long, POINTER(tutti_error)]),
    "tutti_reduce": (c_int, [POINTER(tutti_group), c_int, c_int, tutti_buffer, POINTER(tutti_error)]),
    "tutti_reduce_double": (c_int, [POINTER(tutti_group), c_int, POINTER(c_double), c_ulong, POINTER(tutti_error)]),
    "tutti_reduce_from": (c_int, [POINTER(tutti_group), c_int, c_int, tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
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
    "tutti_ring_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_ring_options),
        POINTER(tutti_error)]),
    "tutti_ring_exchange": (c_int, [c_void_p, c_ulong, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_ring_of": (POINTER(c_float), [c_void_p, c_int]),
    "tutti_round_await": (c_int, [POINTER(tutti_method), c_int, c_long, POINTER(tutti_error)]),
    "tutti_round_next": (c_int, [POINTER(tutti_method), c_int, c_bool, POINTER(tutti_error)]),
    "tutti_round_post": (None, [POINTER(tutti_method), c_int, c_long]),
    "tutti_rpc_call": (c_int, [POINTER(tutti_method), c_int, c_int, POINTER(tutti_note), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_rpc_receive": (c_int, [POINTER(tutti_method), c_int, POINTER(tutti_note), tutti_buffer, c_long,
        POINTER(tutti_error)]),
    "tutti_rpc_reply": (c_int, [POINTER(tutti_method), POINTER(tutti_note), POINTER(tutti_note), POINTER(tutti_error)]),
    "tutti_runtime_check": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_runtime_close": (None, [POINTER(tutti_runtime)]),
    "tutti_runtime_open_posix": (c_int, [POINTER(POINTER(tutti_runtime)), POINTER(tutti_error)]),
    "tutti_safetensors_close": (None, [c_void_p]),
    "tutti_safetensors_count": (c_ulong, [c_void_p]),
    "tutti_safetensors_entry": (POINTER(tutti_tensor_entry), [c_void_p, c_ulong]),
    "tutti_safetensors_find": (POINTER(tutti_tensor_entry), [c_void_p, c_char_p]),
    "tutti_safetensors_metadata": (c_char_p, [c_void_p, c_char_p]),
    "tutti_safetensors_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, POINTER(tutti_error)]),
    "tutti_safetensors_parse": (c_int, [POINTER(c_void_p), c_char_p, POINTER(c_uint8), c_ulong, c_ulong,
        POINTER(tutti_error)]),
    "tutti_safetensors_read": (c_int, [c_void_p, POINTER(tutti_tensor_entry), c_ulong, c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_safetensors_write": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(tutti_tensor_entry), c_ulong,
        POINTER(c_char_p), POINTER(c_ulong), POINTER(tutti_error)]),
    "tutti_sample_label": (c_int, [POINTER(tutti_method), c_ulong]),
    "tutti_scale": (None, [c_void_p, c_ulong, c_float, POINTER(c_float)]),
    "tutti_scatter_parts": (c_int, [POINTER(tutti_group), c_int, tutti_buffer, tutti_buffer, POINTER(tutti_error)]),
    "tutti_scatter_parts_v": (c_int, [POINTER(tutti_group), c_int, POINTER(c_ulong), tutti_buffer, tutti_buffer,
        POINTER(tutti_error)]),
    "tutti_send": (c_int, [c_void_p, c_int, c_ulong, POINTER(tutti_note), tutti_buffer, POINTER(tutti_error)]),
    "tutti_server_add": (None, [c_void_p, c_float, POINTER(c_float)]),
    "tutti_server_answer": (c_int, [c_void_p, POINTER(tutti_note), c_int, c_uint, POINTER(c_float), c_ulong,
        POINTER(tutti_error)]),
    "tutti_server_answer_sum": (c_int, [c_void_p, POINTER(tutti_server_request), POINTER(tutti_note), c_int, c_uint,
        POINTER(POINTER(c_float)), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_server_ask": (c_int, [c_void_p, c_int, c_uint, c_long, POINTER(tutti_server_answers), POINTER(tutti_error)]),
    "tutti_server_blend": (None, [c_void_p, c_float, POINTER(c_float)]),
    "tutti_server_collect": (None, [c_void_p, c_float, POINTER(c_float), POINTER(c_float)]),
    "tutti_server_compensate": (None, [c_void_p, POINTER(tutti_server_request), POINTER(tutti_compensation),
        POINTER(c_float)]),
    "tutti_server_count": (c_int, [c_void_p]),
    "tutti_server_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_server_setup),
        POINTER(tutti_error)]),
    "tutti_server_declare_count": (None, [c_void_p, c_void_p, c_char_p, POINTER(POINTER(c_long))]),
    "tutti_server_exchange": (c_int, [c_void_p, POINTER(tutti_piece), c_long, POINTER(tutti_error)]),
    "tutti_server_final_model": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_server_give": (c_int, [c_void_p, POINTER(tutti_note), c_int, c_uint, POINTER(tutti_error)]),
    "tutti_server_give_each": (c_int, [c_void_p, POINTER(tutti_note), c_int, POINTER(c_uint), POINTER(tutti_error)]),
    "tutti_server_give_own": (c_int, [c_void_p, POINTER(tutti_note), c_int, c_uint, POINTER(c_float),
        POINTER(tutti_error)]),
    "tutti_server_give_update": (c_int, [c_void_p, POINTER(tutti_note), c_int, c_int, c_uint, POINTER(c_float),
        c_ulong, POINTER(tutti_error)]),
    "tutti_server_given_ns": (c_long, [c_void_p, c_int]),
    "tutti_server_got": (c_ulong, [c_void_p]),
    "tutti_server_has": (c_bool, [c_void_p, c_int]),
    "tutti_server_has_table": (c_bool, [c_void_p, c_int]),
    "tutti_server_index": (c_int, [c_void_p]),
    "tutti_server_keeps": (c_bool, [c_void_p]),
    "tutti_server_need_rows": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error)]),
    "tutti_server_node": (c_int, [POINTER(tutti_method), c_char_p, POINTER(c_int), c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_server_part": (c_ulong, [c_void_p, c_int, c_ulong, c_ulong, POINTER(c_ulong)]),
    "tutti_server_push": (c_int, [c_void_p, c_uint, c_long, POINTER(c_float), POINTER(c_float),
        POINTER(tutti_server_answers), POINTER(tutti_error)]),
    "tutti_server_push_rows": (c_int, [c_void_p, POINTER(tutti_piece), c_float, c_int, POINTER(tutti_error)]),
    "tutti_server_run": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_server_seconds": (c_double, [c_void_p, c_int]),
    "tutti_server_slack": (c_ulong, [POINTER(tutti_method)]),
    "tutti_server_sum": (POINTER(c_float), [c_void_p, POINTER(tutti_server_request), c_int, POINTER(POINTER(c_float)),
        POINTER(c_float), POINTER(c_ulong)]),
    "tutti_server_sums_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p,
        POINTER(tutti_server_sums_options), POINTER(tutti_error)]),
    "tutti_server_sums_exchange": (c_int, [c_void_p, POINTER(tutti_piece), POINTER(tutti_error)]),
    "tutti_server_sums_figures_of": (None, [c_void_p, POINTER(tutti_server_sums_figures)]),
    "tutti_server_sums_final_model": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_server_sums_run": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_server_sums_watch": (None, [c_void_p, c_bool]),
    "tutti_server_table_fits": (c_int, [c_void_p, c_int, c_double, c_char_p, POINTER(tutti_error)]),
    "tutti_server_tables_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, c_int, c_int, c_int,
        POINTER(tutti_error)]),
    "tutti_server_take_table": (c_int, [c_void_p, c_int, POINTER(tutti_error)]),
    "tutti_server_tell": (c_int, [c_void_p, c_int, c_int, POINTER(c_bool), POINTER(tutti_error)]),
    "tutti_server_took": (None, [c_void_p, c_ulong]),
    "tutti_server_update": (None, [c_void_p, POINTER(c_float), POINTER(tutti_rate)]),
    "tutti_server_update_collected": (None, [c_void_p, POINTER(c_float), POINTER(tutti_rate)]),
    "tutti_server_update_give": (c_int, [c_void_p, POINTER(c_float), POINTER(tutti_rate), POINTER(tutti_note), c_int,
        c_uint, POINTER(tutti_error)]),
    "tutti_server_values": (POINTER(c_float), [c_void_p]),
    "tutti_server_version": (c_ulong, [c_void_p]),
    "tutti_server_wake_at": (None, [c_void_p, c_long]),
    "tutti_server_words": (c_ulong, [c_void_p, c_ulong, c_ulong]),
    "tutti_settings_close": (None, [c_void_p]),
    "tutti_settings_complete": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, POINTER(tutti_error)]),
    "tutti_settings_default": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, POINTER(tutti_error)]),
    "tutti_settings_environment": (c_int, [c_void_p, c_char_p, POINTER(c_char_p), POINTER(tutti_error)]),
    "tutti_settings_file": (c_int, [c_void_p, c_char_p, POINTER(tutti_error)]),
    "tutti_settings_file_filtered": (c_int, [c_void_p, c_char_p, CFUNCTYPE(c_bool, c_void_p, POINTER(tutti_option),
        c_char_p, c_char_p), c_void_p, POINTER(tutti_error)]),
    "tutti_settings_flag": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, POINTER(tutti_error)]),
    "tutti_settings_open": (c_int, [POINTER(c_void_p), POINTER(tutti_option), c_void_p, POINTER(tutti_error)]),
    "tutti_settings_origin": (c_int, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "tutti_settings_text": (c_int, [c_void_p, c_char_p, c_char_p, c_ulong, POINTER(tutti_error)]),
    "tutti_shards_count": (c_ulong, [POINTER(tutti_method), c_int]),
    "tutti_shards_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_error)]),
    "tutti_shards_exchange": (c_int, [POINTER(tutti_method), POINTER(tutti_piece), POINTER(tutti_error)]),
    "tutti_shards_group": (c_int, [POINTER(tutti_method), c_char_p, c_char_p, POINTER(tutti_error)]),
    "tutti_shards_step": (c_int, [POINTER(tutti_method), POINTER(tutti_error)]),
    "tutti_share_apportion": (None, [c_long, c_int, POINTER(c_double), c_long, POINTER(c_long)]),
    "tutti_share_batch": (c_long, [POINTER(tutti_share), c_int]),
    "tutti_share_pass": (c_long, [POINTER(tutti_share), c_ulong, c_int, c_long, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_share_passes": (c_long, [POINTER(tutti_share), c_int]),
    "tutti_share_sample": (c_ulong, [POINTER(tutti_share), c_ulong, c_ulong]),
    "tutti_share_sample_of": (c_ulong, [POINTER(tutti_share), c_int, c_ulong, c_ulong]),
    "tutti_share_step": (c_long, [POINTER(tutti_share), c_ulong, c_int]),
    "tutti_share_steps": (c_ulong, [POINTER(tutti_share)]),
    "tutti_sit_out": (None, [POINTER(tutti_method)]),
    "tutti_sit_out_declare": (None, [POINTER(tutti_method), c_void_p]),
    "tutti_size_add": (c_bool, [c_ulong, c_ulong, POINTER(c_ulong)]),
    "tutti_size_mul": (c_bool, [c_ulong, c_ulong, POINTER(c_ulong)]),
    "tutti_sleep_until": (None, [POINTER(tutti_runtime), c_long]),
    "tutti_space_left": (c_int, [POINTER(tutti_runtime), c_char_p, POINTER(c_ulong), POINTER(tutti_error)]),
    "tutti_spec_apply": (c_int, [c_void_p, c_char_p, POINTER(tutti_option), c_void_p, POINTER(tutti_error)]),
    "tutti_spec_arg": (POINTER(tutti_option), [c_void_p, POINTER(tutti_option), c_ulong, POINTER(c_char_p)]),
    "tutti_spec_close": (None, [c_void_p]),
    "tutti_spec_count": (c_ulong, [c_void_p]),
    "tutti_spec_name": (c_char_p, [c_void_p]),
    "tutti_spec_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(tutti_error)]),
    "tutti_spec_print": (c_int, [c_char_p, POINTER(tutti_option), c_void_p, c_void_p, c_ulong]),
    "tutti_stage_rows_bytes": (None, [c_void_p, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_stage_rows_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, c_int, POINTER(c_int),
        POINTER(tutti_error)]),
    "tutti_stage_rows_has": (c_bool, [c_void_p, c_int]),
    "tutti_stage_rows_need": (c_int, [c_void_p, c_int, POINTER(c_uint), c_ulong, POINTER(tutti_error)]),
    "tutti_stage_rows_push": (c_int, [c_void_p, c_ulong, POINTER(tutti_rate), POINTER(tutti_error)]),
    "tutti_stage_rows_run": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_stale": (None, [POINTER(tutti_method), c_ulong]),
    "tutti_status_name": (c_char_p, [c_int]),
    "tutti_step_adam": (None, [c_void_p, c_ulong, POINTER(tutti_adam_step), POINTER(c_float), POINTER(c_float),
        POINTER(c_float), POINTER(c_float)]),
    "tutti_step_sgd": (None, [c_void_p, c_ulong, POINTER(tutti_sgd_step), POINTER(c_float), POINTER(c_float),
        POINTER(c_float)]),
    "tutti_stragglar_rounds": (c_int, [c_int, c_bool]),
    "tutti_suggest": (None, [c_char_p, POINTER(c_char_p), c_ulong, c_void_p, c_ulong]),
    "tutti_sum": (c_int, [POINTER(tutti_method), POINTER(c_float), c_ulong, POINTER(tutti_error)]),
    "tutti_take_another": (c_bool, [POINTER(tutti_method), c_bool]),
    "tutti_take_close": (c_int, [POINTER(tutti_method), POINTER(c_long), POINTER(tutti_error)]),
    "tutti_take_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_take_options), POINTER(tutti_error)]),
    "tutti_take_divide": (None, [POINTER(tutti_method), c_double]),
    "tutti_take_known": (c_int, [POINTER(tutti_method), POINTER(tutti_pass), POINTER(c_long), POINTER(c_long),
        POINTER(tutti_error)]),
    "tutti_take_left": (c_long, [POINTER(tutti_method)]),
    "tutti_take_over": (c_int, [POINTER(tutti_method), POINTER(c_float), POINTER(tutti_error)]),
    "tutti_take_place": (c_long, [POINTER(tutti_method), c_long, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_take_tell": (c_int, [POINTER(tutti_method), POINTER(tutti_pass), c_long, POINTER(c_long),
        POINTER(tutti_error)]),
    "tutti_team_close": (None, [c_void_p]),
    "tutti_team_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_int, POINTER(tutti_error)]),
    "tutti_team_parse": (c_int, [POINTER(tutti_method), c_char_p, c_char_p, POINTER(c_int), POINTER(tutti_error)]),
    "tutti_team_run": (None, [c_void_p, c_ulong, c_ulong, CFUNCTYPE(None, c_void_p, c_ulong, c_ulong), c_void_p]),
    "tutti_team_threads": (c_int, [c_void_p]),
    "tutti_thread_join": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_thread_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, CFUNCTYPE(c_int, c_void_p,
        POINTER(tutti_error)), c_void_p, POINTER(tutti_error)]),
    "tutti_ticktock_next": (c_long, [POINTER(tutti_ticktock), c_bool]),
    "tutti_ticktock_offset": (c_double, [POINTER(tutti_ticktock_profile), c_int]),
    "tutti_ticktock_peak": (c_double, [POINTER(tutti_ticktock_profile), c_int, c_double]),
    "tutti_ticktock_ran": (c_bool, [POINTER(tutti_ticktock), c_long]),
    "tutti_tier_address": (c_void_p, [c_void_p]),
    "tutti_tier_block": (c_ulong, [c_void_p]),
    "tutti_tier_bytes": (c_ulong, [c_void_p]),
    "tutti_tier_close": (None, [c_void_p]),
    "tutti_tier_count": (tutti_tier_sum, [c_void_p]),
    "tutti_tier_describe": (c_int, [c_void_p, c_void_p, c_ulong]),
    "tutti_tier_done": (c_bool, [c_void_p, POINTER(tutti_io)]),
    "tutti_tier_open": (c_int, [POINTER(c_void_p), POINTER(tutti_runtime), c_char_p, c_ulong, c_void_p,
        POINTER(tutti_error)]),
    "tutti_tier_pin": (c_bool, [c_void_p, c_void_p, c_ulong]),
    "tutti_tier_read": (c_int, [c_void_p, POINTER(tutti_io), c_ulong, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_tier_wait": (c_int, [c_void_p, POINTER(POINTER(tutti_io)), c_ulong, POINTER(tutti_error)]),
    "tutti_tier_write": (c_int, [c_void_p, POINTER(tutti_io), c_ulong, c_void_p, c_ulong, POINTER(tutti_error)]),
    "tutti_transport_check": (c_int, [POINTER(tutti_transport_ops), c_char_p, POINTER(tutti_error)]),
    "tutti_transport_find": (POINTER(tutti_transport_ops), [c_char_p]),
    "tutti_transport_load": (c_int, [c_char_p, POINTER(POINTER(tutti_transport_ops)), c_void_p, c_ulong,
        POINTER(tutti_error)]),
    "tutti_tree_sum": (None, [c_void_p, c_ulong, c_int, POINTER(POINTER(c_float)), POINTER(c_float), POINTER(c_float)]),
    "tutti_tree_sum_all": (None, [c_void_p, c_ulong, c_int, POINTER(POINTER(c_float)), POINTER(c_float)]),
    "tutti_tune_declare": (c_int, [POINTER(tutti_method), c_void_p, POINTER(tutti_tune_options), POINTER(tutti_error)]),
    "tutti_tuner_ask": (c_int, [c_void_p, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_tuner_best": (c_int, [c_void_p, POINTER(c_double), POINTER(tutti_error)]),
    "tutti_tuner_close": (None, [c_void_p]),
    "tutti_tuner_open": (c_int, [POINTER(c_void_p), POINTER(tutti_tuner_options), POINTER(tutti_error)]),
    "tutti_tuner_tell": (c_int, [c_void_p, POINTER(c_double), c_double, POINTER(tutti_error)]),
    "tutti_uniform": (c_double, [tutti_rng, c_ulong]),
    "tutti_units_bytes": (c_ulong, [POINTER(tutti_method)]),
    "tutti_unlock": (None, [c_void_p]),
    "tutti_update": (None, [POINTER(tutti_optim), c_ulong, c_ulong, POINTER(c_float), POINTER(c_float),
        POINTER(tutti_rate)]),
    "tutti_update_tiled": (None, [POINTER(tutti_optim), c_ulong, c_ulong, POINTER(c_float), POINTER(c_float),
        POINTER(tutti_rate), tutti_buffer, c_void_p]),
    "tutti_variable": (c_char_p, [POINTER(c_char_p), c_char_p]),
    "tutti_version": (c_char_p, []),
    "tutti_wait": (c_int, [c_void_p, c_long, POINTER(tutti_error)]),
    "tutti_wait_some": (c_int, [c_void_p, POINTER(POINTER(tutti_request)), c_ulong, c_ulong, c_long, POINTER(c_ulong),
        POINTER(tutti_error)]),
    "tutti_wake": (None, [c_void_p]),
    "tutti_wave_apart": (c_long, [c_long]),
    "tutti_wave_ends": (c_bool, [c_long, c_int]),
    "tutti_wave_gate": (c_long, [c_long, c_int, c_long]),
    "tutti_wave_of": (c_long, [c_long, c_int]),
    "tutti_wave_staleness": (c_long, [c_int, c_long]),
    "tutti_wave_version": (c_long, [c_long, c_int]),
    "tutti_waves_apart": (c_long, [c_void_p]),
    "tutti_waves_await": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_waves_awaited": (POINTER(tutti_request), [c_void_p]),
    "tutti_waves_clock": (c_long, [c_void_p]),
    "tutti_waves_declare": (c_int, [POINTER(c_void_p), POINTER(tutti_method), c_void_p, POINTER(tutti_waves_options),
        POINTER(tutti_error)]),
    "tutti_waves_pulls": (c_bool, [c_void_p]),
    "tutti_waves_push": (c_int, [c_void_p, c_long, POINTER(c_float), c_long, POINTER(c_float), POINTER(tutti_error)]),
    "tutti_waves_ready": (c_bool, [c_void_p]),
    "tutti_waves_run": (c_int, [c_void_p, POINTER(tutti_error)]),
    "tutti_world_can_survive": (c_bool, [c_char_p]),
    "tutti_world_check": (c_int, [c_char_p, POINTER(tutti_error)]),
    "tutti_world_close": (None, [c_void_p]),
    "tutti_world_common": (c_int, [c_void_p, c_char_p, c_ulong, POINTER(c_void_p), POINTER(c_bool),
        POINTER(tutti_error)]),
    "tutti_world_dead": (c_int, [c_void_p, c_void_p, c_ulong]),
    "tutti_world_device": (c_void_p, [c_void_p]),
    "tutti_world_events": (c_int, [c_void_p, c_int, POINTER(tutti_peer_event), c_int]),
    "tutti_world_expel": (None, [c_void_p, c_int, c_char_p]),
    "tutti_world_failure_report": (None, [c_void_p, POINTER(tutti_error)]),
    "tutti_world_give_back": (None, [c_void_p]),
    "tutti_world_host": (c_int, [c_void_p, c_int]),
    "tutti_world_lost": (c_bool, [c_void_p, c_int, c_void_p, c_ulong]),
    "tutti_world_node": (c_int, [c_void_p, c_int]),
    "tutti_world_open": (c_int, [POINTER(c_void_p), c_char_p, POINTER(tutti_error)]),
    "tutti_world_open_telling": (c_int, [POINTER(c_void_p), c_char_p, CFUNCTYPE(None, c_void_p, c_char_p), c_void_p,
        POINTER(tutti_error)]),
    "tutti_world_rank": (c_int, [c_void_p]),
    "tutti_world_run": (c_int, [c_char_p, c_int, CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(tutti_error)), c_void_p,
        POINTER(tutti_error)]),
    "tutti_world_runtime": (POINTER(tutti_runtime), [c_void_p]),
    "tutti_world_sent": (None, [c_void_p, c_int, POINTER(c_ulong), POINTER(c_ulong)]),
    "tutti_world_sent_there": (None, [c_void_p, c_int, c_ulong]),
    "tutti_world_shares": (c_bool, [c_void_p]),
    "tutti_world_simulated": (c_bool, [c_char_p]),
    "tutti_world_size": (c_int, [c_void_p]),
    "tutti_world_survives": (c_bool, [c_void_p]),
    "tutti_world_take": (c_bool, [c_void_p]),
    "tutti_world_there": (c_void_p, [c_void_p, c_char_p, c_ulong, c_ulong, c_int]),
    "tutti_world_transport": (c_char_p, [c_void_p]),
    "tutti_world_window": (c_int, [c_void_p, c_char_p, c_ulong, POINTER(c_void_p), POINTER(tutti_error)]),
}


def declare(library):
    """Gives each function of a loaded library its arguments and its result."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
