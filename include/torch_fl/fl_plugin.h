/* SPDX-License-Identifier: Apache-2.0
 *
 * fl_plugin.h: the Torch-FL plugin ABI, version 1.0. This header is the specification.
 *
 * A chip joins Torch-FL as one shared library that exports one function, fl_plugin_get(). Nothing here mentions
 * PyTorch or Python: one binary serves every version of both. C99; also compiles as C++11.
 *
 * ---------------------------------------------------------------------------------------------------------------
 * 1. Negotiation
 *   The host calls fl_plugin_get(host) once, right after loading the library. The plugin returns a pointer to an
 *   fl_plugin that it owns and never frees, or null after host->set_error(). Nothing may touch hardware here.
 *   - Same major: compatible, whatever the minors. Another major: the host skips the plugin.
 *   - Every struct that crosses the boundary starts with struct_size, which its WRITER sets to the sizeof() it was
 *     compiled with. A READER looks at a field only if it lies inside struct_size: FL_HAS(ptr, field). Sizes are never
 *     compared with ==. Fields are only ever appended; a new meaning gets a new field.
 *   - A null function pointer means "absent". Functions marked "(optional)" may be null; all others must be set.
 * 2. Lifetimes
 *   Libraries are never unloaded. Strings and tables reachable from fl_plugin live as long as the process.
 *   Everything reachable from an fl_call (values, tensors, sizes, strides) is BORROWED for the duration of that call:
 *   a plugin that runs work later copies what it needs.
 * 3. Threads
 *   Every function may be called from any thread, and concurrently, also for one stream, unless its comment says
 *   otherwise. A plugin may call host services from any thread.
 * 4. Addresses
 *   Device addresses are opaque 64-bit values (fl_address). Arithmetic inside one allocation is legal, so
 *   address + n is n bytes further on. Zero is no address. Chips with real pointers use them; handle-based chips
 *   encode. The host never dereferences a device address unless the device declares FL_CAP_HOST_COHERENT.
 * 5. Order
 *   Work enqueued on one stream runs in order. Without the stream table the chip is synchronous: every function returns
 *   after its work is done. fl_stream null is the device's default stream, which always exists.
 * 6. Errors
 *   Functions return fl_status. For anything but FL_OK the plugin should first call host->set_error() with a message
 *   that says what was expected and found. Kind and message are per thread.
 * 7. Units
 *   Sizes of memory in bytes, sizes and strides of tensors in elements, times in nanoseconds unless said otherwise.
 *
 * Changelog
 *   1.0  first version.
 */
#ifndef TORCH_FL_FL_PLUGIN_H_
#define TORCH_FL_FL_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_ABI_MAJOR 1
#define FL_ABI_MINOR 0

#if defined(_WIN32)
#define FL_EXPORT __declspec(dllexport)
#else
#define FL_EXPORT __attribute__((visibility("default")))
#endif

/* True when `field` lies inside what the writer of *ptr declared. */
#define FL_HAS(ptr, field) ((ptr) != NULL && (ptr)->struct_size >= FL_END_OF_(ptr, field))
#define FL_END_OF_(ptr, field) ((size_t)((const char*)&(ptr)->field - (const char*)(ptr)) + sizeof((ptr)->field))

/* ---- Status (since 1.0) ---------------------------------------------------------------------------------------- */
typedef int32_t fl_status;
enum {
  FL_OK = 0,
  FL_UNSUPPORTED = 1,      /* not this call: the host routes it elsewhere; never an error to the user by itself */
  FL_OUT_OF_MEMORY = 2,    /* the host empties its cache and retries once, then raises out-of-memory */
  FL_INVALID_ARGUMENT = 3, /* the caller broke the contract of the function */
  FL_DEVICE_LOST = 4,      /* the device is gone for good: the host refuses it from then on; others go on */
  FL_INTERNAL = 5,         /* anything else that failed */
  FL_NOT_READY = 6,        /* queries only: work is still pending */
  FL_OUT_OF_RANGE = 7      /* kernels: an index among the call's data lies outside its tensor (IndexError to the user;
                              FL_INVALID_ARGUMENT is RuntimeError). Kernels that run later report either through the
                              function that next waits for them. */
};

/* ---- Element types (since 1.0). Values are fixed for ever. ------------------------------------------------------ */
typedef int32_t fl_dtype;
enum {
  FL_UINT8 = 0,
  FL_INT8 = 1,
  FL_INT16 = 2,
  FL_INT32 = 3,
  FL_INT64 = 4,
  FL_FLOAT16 = 5,
  FL_FLOAT32 = 6,
  FL_FLOAT64 = 7,
  FL_COMPLEX32 = 8, /* two float16 */
  FL_COMPLEX64 = 9,
  FL_COMPLEX128 = 10,
  FL_BOOL = 11, /* one byte, 0 or 1 */
  FL_BFLOAT16 = 12,
  FL_UINT16 = 13,
  FL_UINT32 = 14,
  FL_UINT64 = 15,
  FL_FLOAT8_E5M2 = 16,
  FL_FLOAT8_E4M3FN = 17,
  FL_FLOAT8_E5M2FNUZ = 18,
  FL_FLOAT8_E4M3FNUZ = 19,
  FL_FLOAT8_E8M0FNU = 20,
  FL_DTYPE_OTHER = 63 /* an element type this version has no name for; only moved as bytes */
};
#define FL_DTYPE_BIT(dtype) (UINT64_C(1) << (dtype))

/* ---- Opaque handles (since 1.0). Owned by the plugin; null stream = default stream. ------------------------------ */
typedef uint64_t fl_address;
typedef struct fl_device_* fl_device;
typedef struct fl_stream_* fl_stream;
typedef struct fl_event_* fl_event;
typedef struct fl_module_* fl_module;
typedef struct fl_graph_* fl_graph;
typedef struct fl_communicator_* fl_communicator;

/* ---- Tensor descriptor (since 1.0): a borrowed view of device memory, never owned by the plugin. ----------------- */
enum {
  FL_TENSOR_CONTIGUOUS = 1u << 0,   /* dense, row-major */
  FL_TENSOR_CHANNELS_LAST = 1u << 1 /* dense, NHWC (4 dims) or NDHWC (5 dims) order */
};
typedef struct fl_tensor {
  uint32_t struct_size;
  uint32_t flags;     /* FL_TENSOR_* */
  fl_address address; /* of element [0,...,0]; storage offset already added; may be 0 when numel is 0 */
  fl_dtype dtype;
  int32_t ndim;           /* 0 for a scalar tensor; then sizes and strides may be null */
  const int64_t* sizes;   /* ndim values, >= 0 */
  const int64_t* strides; /* ndim values in elements, >= 0; 0 where a dimension is broadcast */
  int64_t numel;          /* product of sizes */
} fl_tensor;

/* ---- Argument value (since 1.0). The layout of fl_value is frozen: it will never grow. --------------------------- */
typedef uint32_t fl_kind;
enum {
  FL_NONE = 0,     /* an absent optional */
  FL_TENSOR = 1,   /* u.tensor */
  FL_BOOLEAN = 2,  /* u.i, 0 or 1; also a boolean Scalar */
  FL_INTEGER = 3,  /* u.i; also an integer Scalar */
  FL_REAL = 4,     /* u.d; also a floating-point Scalar */
  FL_COMPLEX = 5,  /* u.c: real, imaginary */
  FL_STRING = 6,   /* u.s, NUL-terminated */
  FL_INTEGERS = 7, /* u.ints, count */
  FL_REALS = 8,    /* u.reals, count */
  FL_BOOLEANS = 9, /* u.bools (one byte each), count */
  FL_TENSORS = 10, /* u.tensors, count; an element may be null (absent) */
  FL_VALUES = 11,  /* u.values, count: a list of scalars */
  FL_DTYPE = 12,   /* u.i, an fl_dtype */
  FL_OPAQUE = 13   /* something a kernel has no use for (generator, layout, device, memory format) */
};
typedef struct fl_value {
  fl_kind kind;
  uint32_t count; /* for the list kinds */
  union {
    const fl_tensor* tensor;
    int64_t i;
    double d;
    double c[2];
    const char* s;
    const int64_t* ints;
    const double* reals;
    const uint8_t* bools;
    const fl_tensor* const* tensors;
    const struct fl_value* values;
  } u;
} fl_value;

/* ---- Kernels (since 1.0) ----------------------------------------------------------------------------------------
 * A kernel is written once, for the FUNCTIONAL overload of an operator (op = "aten::add.Tensor"). The host derives the
 * out=, in-place and foreach forms, allocates outputs, and applies PyTorch's rules for type promotion, broadcasting,
 * resizing and overlap. Operators that exist only as mutations ("aten::fill_.Scalar", "aten::uniform_") are named as
 * such: outs[] then lists the mutated arguments, in schema order.
 *
 * A row serves the overload of exactly its name (and the derived forms), no other. Without a row, an overload that
 * PyTorch composes of others reaches the chip as those: aten::add.Scalar calls aten::add.Tensor. An overload that is
 * not composed needs a row: aten::lt.Scalar is one of its own beside aten::lt.Tensor.
 *
 * fl_call is what a kernel gets: args in schema order, one per schema argument (outputs excepted), and outs in the
 * order of the returns. The contract flags say what the host does to the arguments first.
 */
enum {
  /* Tensor arguments are cast to the operator's promoted type (call->compute_dtype) and 0-dim tensors of the host
   * become host scalars of kind FL_BOOLEAN/INTEGER/REAL/COMPLEX in the tensor's place (never both operands of a call).
   * An output whose dtype differs from compute_dtype's natural result (comparisons: bool) has its own dtype. */
  FL_KERNEL_PROMOTE = 1u << 0,
  /* Tensor arguments are described with the (broadcast) sizes of outs[0]: strides are 0 where expanded. */
  FL_KERNEL_BROADCAST = 1u << 1,
  /* Every tensor argument is dense and row-major. Without this flag any strides may come. */
  FL_KERNEL_CONTIGUOUS_INPUTS = 1u << 2,
  /* Every output is dense and row-major. Without this flag any (non-overlapping) strides may come. */
  FL_KERNEL_CONTIGUOUS_OUTPUTS = 1u << 3,
  /* An output may be exactly the same memory as an input of equal dtype and geometry (in-place forms are free). Without
   * it the in-place form goes through a temporary. */
  FL_KERNEL_IN_PLACE_SAFE = 1u << 4,
  /* supports() looks at the value of floating-point or Scalar arguments: its answer is not remembered. */
  FL_KERNEL_VALUE_DEPENDENT = 1u << 5,
  /* The kernel draws random numbers: call->philox_* are set. See "Random numbers". */
  FL_KERNEL_RANDOM = 1u << 6,
  /* Dense channels-last inputs keep their layout where CONTIGUOUS_INPUTS is also set (both flags: either layout). */
  FL_KERNEL_CHANNELS_LAST_OK = 1u << 7,
  /* Every 4-dim (5-dim) tensor argument and output is channels-last; the host converts. */
  FL_KERNEL_CHANNELS_LAST_ONLY = 1u << 8
};

struct fl_kernel;
typedef struct fl_call {
  uint32_t struct_size;
  int32_t device_index; /* of the device within its chip, from 0 */
  fl_device device;
  fl_stream stream;               /* enqueue on this one */
  const struct fl_kernel* kernel; /* the table row, for user_data; lives as long as the process */
  const fl_value* args;
  uint32_t n_args;
  uint32_t n_outs;
  fl_tensor* const* outs; /* an entry is null where the caller needs no such output (masked gradients) */
  fl_dtype compute_dtype; /* with PROMOTE: the promoted type; otherwise the first tensor argument's */
  int32_t reserved;
  uint64_t philox_seed;
  uint64_t philox_offset;
} fl_call;

/* Two steps: how long the output of aten::nonzero or aten::masked_select is depends on values. The host counts first
 * (with the chip's aten::ne.Scalar and aten::sum, waiting for the answer); the kernel finds the number in
 * outs[0]->sizes and must not write beyond it, whatever its inputs hold by then. */

/* Enqueue the work and return. FL_UNSUPPORTED: nothing was done, try another route. */
typedef fl_status (*fl_kernel_fn)(const fl_call* call);
/* May this call run? FL_OK, or FL_UNSUPPORTED with host->set_error(reason). Sees the call after the contract flags were
 * applied, outputs included; addresses may be 0. Must not enqueue anything and must depend only on dtypes, sizes,
 * strides, device, integers, booleans and strings (see FL_KERNEL_VALUE_DEPENDENT): the host remembers the answer. */
typedef fl_status (*fl_supports_fn)(const fl_call* call);

typedef struct fl_kernel {
  uint32_t struct_size;
  uint32_t flags; /* FL_KERNEL_* */
  const char* op; /* "aten::add.Tensor"; the default overload has no dot: "aten::relu" */
  fl_kernel_fn run;
  fl_supports_fn supports; /* (optional) */
  void* user_data;         /* (optional) for the plugin's own use */
  uint64_t dtypes;         /* FL_DTYPE_BIT()s: compute_dtype must be among them; 0 = any */
  uint32_t constraint;     /* 0, or the 1-based row of the descriptor's constraint table */
  uint32_t reserved;
} fl_kernel;

/* Random numbers (since 1.0). The same seed gives the same numbers on every chip, so the sequence is part of the ABI.
 * Philox-4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011); key = low and high
 * word of philox_seed; 128-bit counter = {low, high word of (philox_offset + e / 4), 0, 0}; element e of the output in
 * row-major order of its INDEX (not of memory) takes word e % 4. For a 64-bit draw, element e takes words 2*(e%2) (low)
 * and 2*(e%2)+1 (high) of block philox_offset + e / 2.
 *   unit32(w) = (w >> 8) * 2^-24, in [0,1): float32, float16 and bfloat16.  unit64(w) = (w >> 11) * 2^-53: float64.
 *   uniform_(from,to):  from + unit * (to - from), computed in float32 (float64 for float64); a result that is `to`,
 *                       or more, once rounded to the output's type becomes `from`.
 *   bernoulli(p):       unit32 < p, always from the 32-bit draw; also where every element has its own p.
 *   random_(from,to):   from + (w mod (to - from)): 32-bit draw where to - from <= 2^32, else the 64-bit one.
 *   normal_(mean,std):  Box-Muller on pairs: elements 2k, 2k+1 use draws u1 = 1 - unit(2k), u2 = unit(2k+1);
 *                       r = sqrt(-2 ln u1); element 2k = r cos(2 pi u2), element 2k+1 = r sin(2 pi u2); in float64 for
 *                       float64, otherwise float32.
 *   exponential_(l):    -ln(1 - unit) / l.
 * ln, cos and sin of these two, where the device rounds as IEEE 754 does, in this order and nothing fused:
 *   ln x:               x = m 2^e, sqrt(1/2) <= m < sqrt(2); s = (m - 1) / (m + 1), z = s s;
 *                       e ln(2) + (2 s) p(z), p = 1 + z/3 + z^2/5 + ... up to z^4 (float64: z^10), by Horner's rule.
 *   cos, sin of 2 pi u: q = floor(4 u + 1/2), a = 2 pi (u - q/4), z = a a; by Horner's rule the Taylor polynomials of
 *                       cos a, up to z^5 (float64: z^8), and of sin a, a (1 + z (-1/3! + ...)), up to z^4 (z^8); then
 *                       turned by q quarters.
 *   log_normal_(m,s):   e to the power of what normal_(m,s) draws.
 *   cauchy_(m,s):       m + s tan(pi (unit - 1/2)), tan being -1.633123935319537e16 where unit is 0.
 *   geometric_(p):      ln(1 - unit) / ln(1 - p) rounded up, at least 1; computed in float64 where the device has it.
 *   native_dropout(p):  keep element where unit32 >= p; scale 1 / (1 - p).
 * e to a power and tan are the device's own: cauchy_ and log_normal_ may differ in their last bits.
 * The host advances its offset by the number of blocks used: ceil(numel / 4), or ceil(numel / 2) with 64-bit draws. */

/* ---- Device (since 1.0) ----------------------------------------------------------------------------------------- */
enum {
  FL_CAP_HOST_COHERENT = 1u << 0, /* the host may dereference device addresses; no copies needed to read or write */
  FL_CAP_UNIFIED = 1u << 1,       /* kernels may be given addresses of ordinary host memory */
  FL_CAP_PEER_COPY = 1u << 2,     /* memory.copy_peer works between this chip's devices */
  FL_CAP_TIMED_EVENTS = 1u << 3   /* events.elapsed works */
};
typedef struct fl_device_properties {
  uint32_t struct_size;
  uint32_t capabilities; /* FL_CAP_* */
  char name[128];        /* NUL-terminated; empty: the chip's name and the index */
  char driver_version[64];
  uint64_t total_memory;
  uint64_t max_allocation;   /* largest single allocation; 0 = total_memory */
  uint64_t alignment;        /* every allocation's address is a multiple of it; a power of two; 0 = 64 */
  uint64_t size_granularity; /* allocation sizes are rounded up to a multiple; 0 = alignment */
  uint64_t padding;          /* bytes that must exist beyond the end of every allocation; 0 = none */
  uint64_t dtypes;           /* FL_DTYPE_BIT()s that kernels of this device can compute with; 0 = all */
  uint32_t compute_units;    /* 0 = unknown */
  uint32_t clock_mhz;        /* 0 = unknown */
  double peak_flops;         /* float32 operations per second; 0 = unknown */
  double peak_bandwidth;     /* bytes per second; 0 = unknown */
} fl_device_properties;

typedef struct fl_device_api {
  uint32_t struct_size;
  /* How many devices? Initialises none; called once, before open. A text for set_error() is shown even with FL_OK. */
  fl_status (*count)(int32_t* count);
  /* Properties without opening. The host zero-fills *properties and sets its struct_size; write no further. */
  fl_status (*properties)(int32_t index, fl_device_properties* properties);
  /* Initialise device `index`. Called at most once at a time per device, on first use. */
  fl_status (*open)(int32_t index, fl_device* device);
  /* (optional) Release it at process exit. Not called for a lost device. */
  void (*close)(fl_device device);
  /* Block until all work on all streams of the device is done; report failures of work enqueued earlier. */
  fl_status (*synchronize)(fl_device device);
} fl_device_api;

/* ---- Memory (since 1.0) ----------------------------------------------------------------------------------------- */
typedef int32_t fl_copy_kind;
enum { FL_COPY_HOST_TO_DEVICE = 0, FL_COPY_DEVICE_TO_HOST = 1, FL_COPY_DEVICE_TO_DEVICE = 2 };

typedef struct fl_memory_api {
  uint32_t struct_size;
  /* Raw allocation. bytes > 0 and a multiple of size_granularity. Contents undefined. Caching is the host's business.
   */
  fl_status (*alloc)(fl_device device, uint64_t bytes, fl_address* address);
  /* All work that uses it has completed. */
  fl_status (*free)(fl_device device, fl_address address);
  /* Enqueue a copy of bytes > 0. Host addresses are pointers cast to fl_address. A host range that is not from
   * host_alloc may be read (or written) any time until the stream has passed this point: the host waits. */
  fl_status (*copy)(fl_device device, fl_stream stream, fl_address dst, fl_address src, uint64_t bytes,
                    fl_copy_kind kind);
  /* (optional) Enqueue on src_stream a copy between two devices of this chip. */
  fl_status (*copy_peer)(fl_device dst_device, fl_address dst, fl_device src_device, fl_address src, uint64_t bytes,
                         fl_stream src_stream);
  /* (optional) Enqueue a fill with `count` repetitions of a pattern of 1, 2, 4, 8 or 16 bytes (read during the call).
   */
  fl_status (*fill)(fl_device device, fl_stream stream, fl_address dst, const void* pattern, uint32_t pattern_bytes,
                    uint64_t count);
  /* (optional, both or none) Pinned host memory, fast to copy from and to asynchronously. */
  fl_status (*host_alloc)(fl_device device, uint64_t bytes, void** pointer);
  fl_status (*host_free)(fl_device device, void* pointer);
  /* (optional, both or none) Make existing host memory pinned, in place. */
  fl_status (*host_register)(fl_device device, void* pointer, uint64_t bytes);
  fl_status (*host_unregister)(fl_device device, void* pointer);
  /* (optional, both or none) Map a device range into host address space until unmap. Waits for earlier work on it. */
  fl_status (*map)(fl_device device, fl_address address, uint64_t bytes, void** pointer);
  fl_status (*unmap)(fl_device device, fl_address address, void* pointer);
  /* (optional) Free and total bytes now. */
  fl_status (*info)(fl_device device, uint64_t* free_bytes, uint64_t* total_bytes);
} fl_memory_api;

/* ---- Streams and events (since 1.0, the whole table is optional) ------------------------------------------------- */
enum { FL_EVENT_TIMED = 1u << 0 };
typedef struct fl_stream_api {
  uint32_t struct_size;
  /* priority: 0 normal, negative higher, positive lower; a chip without priorities ignores it. */
  fl_status (*create)(fl_device device, int32_t priority, fl_stream* stream);
  fl_status (*destroy)(fl_device device, fl_stream stream);
  fl_status (*synchronize)(fl_device device, fl_stream stream);
  fl_status (*query)(fl_device device, fl_stream stream); /* FL_OK or FL_NOT_READY */
  fl_status (*event_create)(fl_device device, uint32_t flags, fl_event* event);
  fl_status (*event_destroy)(fl_device device, fl_event event);
  /* Recording again moves the event; a wait refers to the latest record before it. A never-recorded event is done. */
  fl_status (*event_record)(fl_device device, fl_event event, fl_stream stream);
  fl_status (*event_wait)(fl_device device, fl_event event, fl_stream stream); /* the stream waits, the host does not */
  fl_status (*event_synchronize)(fl_device device, fl_event event);
  fl_status (*event_query)(fl_device device, fl_event event); /* FL_OK or FL_NOT_READY */
  /* (optional) Nanoseconds between two completed timed events. */
  fl_status (*event_elapsed)(fl_device device, fl_event start, fl_event end, int64_t* nanoseconds);
  /* (optional) The vendor's own handle of a stream, for interoperation. */
  fl_status (*native_handle)(fl_device device, fl_stream stream, void** handle);
} fl_stream_api;

/* ---- Compiler (since 1.0, optional): source -> module -> launch -------------------------------------------------
 * With it a chip gets the portable kernels: the host writes source in the chip's dialect, keeps compiled modules on
 * disk and launches them on streams, in order with everything else there. All functions may be called from any thread.
 *
 * A kernel's parameters are addresses and values. After every address parameter comes one of 64 unsigned bits: bytes to
 * add to it. The host passes 0; a chip whose fl_address is not a pointer (a buffer's handle with an offset) passes the
 * offset. Values have 4 or 8 bytes, or are structs of members of 8 bytes.
 *
 * Dialects:
 *   "opencl-c"  OpenCL C 1.2. Entries are __kernel functions; addresses are __global pointers.
 *   "cuda-c"    CUDA C for a run-time compiler. Entries are extern "C" __global__ functions.
 *   "c99"       C99 with GNU's vector extension. An entry is
 *                 void entry(void* const* args, const uint64_t* begin, const uint64_t* end)
 *               and runs the work items of a box, begin[d] <= id[d] < end[d] in three dimensions; args[i] points to the
 *               i-th argument's value, an address being a pointer by then. The chip cuts the work into boxes; a
 *               local_size other than 0 or 1 is refused.
 */
typedef struct fl_compile_options {
  uint32_t struct_size;
  uint32_t n_defines;
  const char* const* defines; /* "NAME=VALUE" */
  const char* flags;          /* (optional) extra compiler flags, the chip's own syntax */
} fl_compile_options;
typedef struct fl_launch {
  uint32_t struct_size;
  uint32_t work_dim;       /* 1 to 3 */
  uint64_t global_size[3]; /* work items */
  uint64_t local_size[3];  /* 0 = the chip chooses */
  uint32_t n_args;
  uint32_t local_bytes;      /* not 0: so much local memory, as one more parameter after the last */
  const void* const* args;   /* pointer to each argument's value; an address argument is an fl_address */
  const uint32_t* arg_sizes; /* bytes of each value; FL_ARG_ADDRESS for an address */
} fl_launch;
enum { FL_ARG_ADDRESS = 0 };
typedef struct fl_compiler_api {
  uint32_t struct_size;
  uint32_t reserved;
  const char* dialect; /* "opencl-c", "cuda-c", "c99" */
  /* Text that identifies compiler, device and driver: part of the key of the binary cache. */
  fl_status (*identity)(fl_device device, char* text, uint64_t capacity);
  /* Source that does not compile: FL_INVALID_ARGUMENT, the compiler's own messages as the error's text. */
  fl_status (*compile)(fl_device device, const char* source, const fl_compile_options* options, fl_module* module);
  /* (optional, both or none) The compiled module as bytes. binary null: only *bytes is set; else *bytes is the room
   * there is, and becomes what was written. */
  fl_status (*save)(fl_module module, void* binary, uint64_t* bytes);
  /* Bytes that this device cannot take (another driver's, damaged): FL_UNSUPPORTED, and the host compiles again. */
  fl_status (*load)(fl_device device, const void* binary, uint64_t bytes, fl_module* module);
  /* All work that uses it has completed. */
  fl_status (*release)(fl_module module);
  /* Enqueue. Arguments are read during the call. No entry of that name: FL_INVALID_ARGUMENT. */
  fl_status (*launch)(fl_device device, fl_stream stream, fl_module module, const char* entry, const fl_launch* launch);
} fl_compiler_api;

/* ---- Graph (since 1.0, optional): record once, replay. Not called by hosts of 1.0. ------------------------------- */
typedef struct fl_graph_api {
  uint32_t struct_size;
  fl_status (*begin)(fl_device device, fl_stream stream);
  fl_status (*end)(fl_device device, fl_stream stream, fl_graph* graph);
  fl_status (*launch)(fl_graph graph, fl_stream stream);
  fl_status (*destroy)(fl_graph graph);
  /* (optional, all three or none) Ahead-of-time compilation of a serialised operator graph (UTF-8 JSON). */
  fl_status (*claim)(fl_device device, const char* json, uint64_t bytes, char* claimed, uint64_t capacity);
  fl_status (*build)(fl_device device, const char* json, uint64_t bytes, fl_graph* graph);
  fl_status (*run)(fl_graph graph, fl_stream stream, const fl_value* args, uint32_t n_args, fl_tensor* const* outs,
                   uint32_t n_outs);
} fl_graph_api;

/* ---- Collectives (since 1.0, optional). Not called by hosts of 1.0. ---------------------------------------------- */
typedef int32_t fl_reduce_op;
enum { FL_REDUCE_SUM = 0, FL_REDUCE_AVG = 1, FL_REDUCE_PROD = 2, FL_REDUCE_MIN = 3, FL_REDUCE_MAX = 4 };
typedef struct fl_collectives_api {
  uint32_t struct_size;
  uint32_t id_bytes; /* size of the rendezvous id that rank 0 makes and the host carries to the others */
  fl_status (*make_id)(void* id);
  fl_status (*init)(fl_device device, const void* id, int32_t rank, int32_t size, fl_communicator* communicator);
  fl_status (*destroy)(fl_communicator communicator);
  fl_status (*all_reduce)(fl_communicator c, fl_stream s, fl_address src, fl_address dst, uint64_t count,
                          fl_dtype dtype, fl_reduce_op op);
  fl_status (*broadcast)(fl_communicator c, fl_stream s, fl_address buffer, uint64_t count, fl_dtype dtype,
                         int32_t root);
  fl_status (*all_gather)(fl_communicator c, fl_stream s, fl_address src, fl_address dst, uint64_t count,
                          fl_dtype dtype);
  fl_status (*reduce_scatter)(fl_communicator c, fl_stream s, fl_address src, fl_address dst, uint64_t count,
                              fl_dtype dtype, fl_reduce_op op);
  fl_status (*send)(fl_communicator c, fl_stream s, fl_address buffer, uint64_t count, fl_dtype dtype, int32_t peer);
  fl_status (*recv)(fl_communicator c, fl_stream s, fl_address buffer, uint64_t count, fl_dtype dtype, int32_t peer);
  fl_status (*group_begin)(fl_communicator c); /* (optional, both or none) batch the calls in between */
  fl_status (*group_end)(fl_communicator c);
} fl_collectives_api;

/* ---- Profiler events (since 1.0, optional) -----------------------------------------------------------------------
 * What the device did, and when, for as long as somebody profiles. Nothing may be recorded, and nothing may cost, while
 * it is stopped. The host calls start, stop, flush and clock of one device one at a time, from any thread; enqueuing
 * goes on meanwhile, on other threads too.
 */
typedef int32_t fl_profile_kind;
enum { FL_PROFILE_KERNEL = 0, FL_PROFILE_COPY = 1, FL_PROFILE_FILL = 2, FL_PROFILE_RUNTIME = 3 };
typedef struct fl_profile_event {
  uint32_t struct_size;
  fl_profile_kind kind;
  const char* name; /* of a kernel: what a person would know it by; valid during the callback */
  int32_t device_index;
  int32_t reserved;
  fl_stream stream;         /* null: the default stream */
  uint64_t correlation;     /* what set_correlation() said on the enqueuing thread */
  int64_t start_ns, end_ns; /* of the work itself, not of its time in the queue; in the device's clock: see clock() */
  uint64_t bytes;           /* that a copy or fill wrote; 0: unknown */
} fl_profile_event;
typedef struct fl_profiler_api {
  uint32_t struct_size;
  /* Record what is enqueued from now on. Forgets what was recorded before. */
  fl_status (*start)(fl_device device);
  /* The host has flushed before; what is left is forgotten. Work goes on. */
  fl_status (*stop)(fl_device device);
  /* The calling thread's number for what it enqueues next; cheap. Called before each enqueue while a device of the chip
   * is started, and after it with 0, or the number of the enqueue around it. Numbers are never used twice. */
  void (*set_correlation)(uint64_t id);
  /* Deliver the events of work that has ended, oldest first, then forget them; those of other work are kept for the
   * next flush. Does not wait. The host flushes at least once for each 16384 of its enqueues; a plugin whose buffer is
   * full all the same drops events, and says so through host->log. sink() must not be called after flush returned. */
  fl_status (*flush)(fl_device device, void (*sink)(void* context, const fl_profile_event* event), void* context);
  /* While started: the device's clock now, which the events' times are in, and the host's monotonic clock
   * (CLOCK_MONOTONIC) at the same moment. The host asks several times in a row and believes the quickest answer. */
  fl_status (*clock)(fl_device device, int64_t* device_ns, int64_t* host_ns);
} fl_profiler_api;

/* ---- Tuning (since 1.0, optional). Not called by hosts of 1.0. --------------------------------------------------- */
typedef struct fl_tuning_api {
  uint32_t struct_size;
  /* Candidate configurations of a kernel for this call as newline-separated texts; choose() fixes one. */
  fl_status (*candidates)(const fl_call* call, char* text, uint64_t capacity);
  fl_status (*choose)(const fl_call* call, const char* configuration);
} fl_tuning_api;

/* ---- Host services (since 1.0): given to fl_plugin_get(), valid for ever --------------------------------------- */
typedef int32_t fl_log_level;
enum { FL_LOG_DEBUG = 0, FL_LOG_INFO = 1, FL_LOG_WARNING = 2, FL_LOG_ERROR = 3 };
typedef struct fl_host {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t reserved;
  const char* version; /* of the host, for messages */
  void (*log)(fl_log_level level, const char* message);
  /* Set the error of the calling thread. The text is copied (at most 4 KiB). */
  void (*set_error)(fl_status status, const char* message);
  /* Scratch memory from the caching pool, for work on call->stream; only inside a kernel's run(). It is taken back when
   * run() returns, and is not given to work on other streams before that stream has passed this point. */
  fl_status (*scratch)(const fl_call* call, uint64_t bytes, fl_address* address);
  /* The calling thread's current stream on device `device_index` of the plugin `name`. */
  fl_status (*current_stream)(const char* plugin, int32_t device_index, fl_stream* stream);
} fl_host;

/* ---- The plugin (since 1.0) ------------------------------------------------------------------------------------- */
typedef struct fl_plugin {
  uint32_t struct_size;
  uint32_t abi_major; /* FL_ABI_MAJOR the plugin was compiled with */
  uint32_t abi_minor;
  uint32_t n_kernels;
  const char* name;    /* of the chip: letters, digits, '_' and '-', at most 63 */
  const char* vendor;  /* for people */
  const char* version; /* of the plugin */
  const fl_device_api* device;
  const fl_memory_api* memory;
  const fl_stream_api* stream;           /* (optional) */
  const fl_kernel* const* kernels;       /* n_kernels pointers to rows; null when n_kernels is 0 */
  const fl_compiler_api* compiler;       /* (optional) */
  const fl_graph_api* graph;             /* (optional) */
  const fl_collectives_api* collectives; /* (optional) */
  const fl_profiler_api* profiler;       /* (optional) */
  const fl_tuning_api* tuning;           /* (optional) */
} fl_plugin;

/* The one exported symbol. Returns null after host->set_error() when the plugin cannot serve this host. */
FL_EXPORT const fl_plugin* fl_plugin_get(const fl_host* host);
typedef const fl_plugin* (*fl_plugin_get_fn)(const fl_host* host);
#define FL_PLUGIN_ENTRY "fl_plugin_get"

#ifdef __cplusplus
}
#endif
#endif /* TORCH_FL_FL_PLUGIN_H_ */
