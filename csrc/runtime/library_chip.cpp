// SPDX-License-Identifier: Apache-2.0
#include "library_chip.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "error.h"
#include "internal.h"

namespace torch_fl::runtime {
namespace {

constexpr uint64_t kHostAlignment = 64;

fl_status refuse(fl_status status, const std::string& message) {
  set_plugin_message(status, message.c_str());
  return status;
}

uint64_t host_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : uint64_t{1} << 32;
}

fl_device_properties completed(const Described& description) {
  fl_device_properties p = description.properties;
  if (p.total_memory == 0) p.total_memory = host_memory();
  if (p.alignment == 0) p.alignment = kHostAlignment;
  p.capabilities = description.host_coherent ? uint32_t{FL_CAP_HOST_COHERENT} : 0;
  return p;
}

bool contains(const std::vector<int64_t>& codes, int64_t code) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

/// It writes to where the name `result` points, rather than returning it.
bool uses_result_slot(const CFunction& function, int32_t index) {
  for (const Program& program : function.arguments) {
    for (const Instruction& step : program) {
      if (step.code == kAddress && step.index == index) return true;
    }
  }
  return false;
}

void* host_pointer(fl_address address) { return reinterpret_cast<void*>(address); }

/// T by value or as a result: what the function is, differs with the type computed in.
bool depends_on_type(const CFunction& function) {
  return function.result == CType::Compute ||
         std::find(function.parameters.begin(), function.parameters.end(), CType::Compute) != function.parameters.end();
}

}  // namespace

void* required_symbol(void* library, const std::string& symbol, const std::string& where) {
  void* address = find_symbol(library, symbol);
  if (address != nullptr) return address;
  const std::string prefix = where.empty() ? "" : where + ": ";
  throw Error(FL_INVALID_ARGUMENT, prefix + "expected a function that the library exports, found none named " + symbol);
}

std::vector<fl_kernel> native_rows(const std::vector<DescribedKernel>& kernels, void* library) {
  std::vector<fl_kernel> rows;
  for (const DescribedKernel& kernel : kernels) {
    if (kernel.plain) continue;
    fl_kernel row{};
    row.struct_size = sizeof row;
    row.flags = kernel.flags;
    row.op = intern(kernel.op);
    row.run = reinterpret_cast<fl_kernel_fn>(required_symbol(library, kernel.call.symbol, kernel.call.where));
    row.dtypes = kernel.dtypes;
    rows.push_back(row);
  }
  return rows;
}

// ---- Kernels ------------------------------------------------------------------------------------------------------
LibraryKernel::LibraryKernel(LibraryChip& chip, void* library, const DescribedKernel& described)
    : chip_(chip), described_(described) {
  bind(library);
}

void LibraryKernel::bind(void* library) {
  const CFunction& call = described_.call;
  const auto bound = [&](const std::string& symbol, fl_dtype dtype) {
    return std::make_shared<const BoundFunction>(required_symbol(library, symbol, call.where), call, dtype);
  };
  for (const auto& [dtype, symbol] : described_.symbols) by_type_.at(static_cast<size_t>(dtype)) = bound(symbol, dtype);
  if (!described_.symbols.empty()) return;
  if (!depends_on_type(call)) return by_type_.fill(bound(call.symbol, FL_FLOAT32));
  for (fl_dtype dtype = 0; dtype < FL_DTYPE_OTHER; ++dtype) {
    if ((described_.dtypes & FL_DTYPE_BIT(dtype)) != 0)
      by_type_[static_cast<size_t>(dtype)] = bound(call.symbol, dtype);
  }
}

fl_kernel LibraryKernel::row() {
  fl_kernel row{};
  row.struct_size = sizeof row;
  row.flags = described_.flags;
  row.op = intern(described_.op);
  row.run = &run;
  row.supports = &supports;
  row.user_data = this;
  row.dtypes = described_.dtypes;
  return row;
}

fl_status LibraryKernel::run(const fl_call* call) {
  return static_cast<const LibraryKernel*>(call->kernel->user_data)->run_on(*call);
}

fl_status LibraryKernel::supports(const fl_call* call) {
  std::string why;
  if (static_cast<const LibraryKernel*>(call->kernel->user_data)->serves(*call, &why)) return FL_OK;
  return refuse(FL_UNSUPPORTED, why);
}

const BoundFunction* LibraryKernel::function_for(fl_dtype dtype) const {
  return dtype >= 0 && static_cast<size_t>(dtype) < by_type_.size() ? by_type_[static_cast<size_t>(dtype)].get()
                                                                    : nullptr;
}

bool LibraryKernel::serves(const fl_call& call, std::string* why) const {
  const BoundFunction* function = function_for(call.compute_dtype);
  if (function == nullptr) {
    *why = std::string("there is no function for ") + dtype_name(call.compute_dtype);
    return false;
  }
  return function->possible(described_.call, call, why) && may_start(call, why) && may_store(*function, call, why);
}

fl_status LibraryKernel::run_on(const fl_call& call) const {
  const BoundFunction* function = function_for(call.compute_dtype);
  if (function == nullptr) return refuse(FL_UNSUPPORTED, "there is no function for this type");
  std::string why;
  CValue values[kMaxParameters];
  if (!function->arguments(described_.call, call, values, &why)) return refuse(FL_UNSUPPORTED, why);
  fl_status status = start_output(call, &why);
  if (status != FL_OK) return refuse(status, why);
  const CValue result = (*function)(values);
  const CType declared = described_.call.result;
  if (declared == CType::Compute || declared == CType::Float || declared == CType::Double) {
    status = store(*function, result, call);
  } else {
    status = chip_.meaning(described_.call, function->result(), result);
  }
  return status == FL_OK ? chip_.finish_kernel(call.device) : status;
}

// ---- Outputs that start as a copy of an argument -------------------------------------------------------------------
namespace {

const fl_tensor* source_of(const fl_call& call, int32_t index) {
  if (index < 0 || static_cast<uint32_t>(index) >= call.n_args) return nullptr;
  const fl_value& v = call.args[index];
  return v.kind == FL_TENSOR ? v.u.tensor : nullptr;
}

bool same_geometry(const fl_tensor& a, const fl_tensor& b) {
  return a.ndim == b.ndim && std::equal(a.sizes, a.sizes + a.ndim, b.sizes) &&
         std::equal(a.strides, a.strides + a.ndim, b.strides);
}

constexpr int32_t kMaxDims = 64;

/// Strides of `from` over the dimensions of `to`: 0 where it is repeated. False: it cannot be.
bool broadcast_strides(const fl_tensor& from, const fl_tensor& to, int64_t* strides) {
  if (from.ndim > to.ndim || to.ndim > kMaxDims) return false;
  for (int32_t d = 0; d < to.ndim; ++d) {
    const int32_t s = d - (to.ndim - from.ndim);
    const int64_t size = s < 0 ? 1 : from.sizes[s];
    if (size != to.sizes[d] && size != 1) return false;
    strides[d] = size == 1 ? 0 : from.strides[s];
  }
  return true;
}

void copy_elements(char* to, const char* from, const fl_tensor& shape, const int64_t* strides, int32_t d,
                   int64_t bytes) {
  if (d == shape.ndim) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const int64_t n = shape.sizes[d], out = shape.strides[d] * bytes, in = strides[d] * bytes;
  if (d + 1 == shape.ndim && out == bytes && in == bytes) {
    std::memcpy(to, from, static_cast<size_t>(n * bytes));
    return;
  }
  for (int64_t i = 0; i < n; ++i) copy_elements(to + i * out, from + i * in, shape, strides, d + 1, bytes);
}

/// The caller's output is also an input that has to be read once the output has been started.
bool overwrites_an_input(const fl_call& call, const fl_tensor& source) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const fl_tensor* t = source_of(call, static_cast<int32_t>(i));
    if (t != nullptr && t != &source && t->address == call.outs[0]->address && t->numel > 0) return true;
  }
  return false;
}

}  // namespace

bool LibraryKernel::may_start(const fl_call& call, std::string* why) const {
  if (described_.starts_as < 0) return true;
  const fl_tensor* from = source_of(call, described_.starts_as);
  const fl_tensor* out = call.n_outs > 0 ? call.outs[0] : nullptr;
  int64_t strides[kMaxDims];
  if (from == nullptr || out == nullptr || from->dtype != out->dtype || dtype_bytes(out->dtype) == 0 ||
      !broadcast_strides(*from, *out, strides)) {
    *why = "the output cannot start as a copy of its argument: they differ in type, or one is absent";
    return false;
  }
  const bool dense = same_geometry(*from, *out) && (out->flags & FL_TENSOR_CONTIGUOUS) != 0;
  if (chip_.host_coherent() || dense) return true;
  *why = "the output cannot start as a copy of its argument in the chip's memory: they differ in shape";
  return false;
}

fl_status LibraryKernel::start_output(const fl_call& call, std::string* why) const {
  if (described_.starts_as < 0) return FL_OK;
  if (!may_start(call, why)) return FL_UNSUPPORTED;
  const fl_tensor& from = *source_of(call, described_.starts_as);
  const fl_tensor& out = *call.outs[0];
  if (overwrites_an_input(call, from)) {
    *why = "the output is an input that is read later";
    return FL_UNSUPPORTED;
  }
  if (out.numel == 0 || (from.address == out.address && same_geometry(from, out))) return FL_OK;
  const int64_t bytes = dtype_bytes(out.dtype);
  if (!chip_.host_coherent()) {
    const auto total = static_cast<uint64_t>(out.numel * bytes);
    const fl_status status = chip_.copy(call.device, out.address, from.address, total, FL_COPY_DEVICE_TO_DEVICE);
    if (status != FL_OK) *why = take_plugin_message();
    return status;
  }
  int64_t strides[kMaxDims];
  broadcast_strides(from, out, strides);
  copy_elements(static_cast<char*>(host_pointer(out.address)), static_cast<const char*>(host_pointer(from.address)),
                out, strides, 0, bytes);
  return FL_OK;
}

// ---- Results that are values ---------------------------------------------------------------------------------------
bool LibraryKernel::may_store(const BoundFunction& function, const fl_call& call, std::string* why) const {
  const CType declared = described_.call.result;
  if (declared != CType::Compute && declared != CType::Float && declared != CType::Double) return true;
  const fl_tensor* out = call.n_outs > 0 ? call.outs[0] : nullptr;
  const fl_dtype own = function.result() == CType::Float    ? fl_dtype{FL_FLOAT32}
                       : function.result() == CType::Double ? fl_dtype{FL_FLOAT64}
                                                            : call.compute_dtype;
  if (out != nullptr && out->numel == 1 && out->dtype == own) return true;
  *why = described_.call.symbol + " returns one number, but the output is no single element of that type";
  return false;
}

fl_status LibraryKernel::store(const BoundFunction& function, const CValue& result, const fl_call& call) const {
  std::string why;
  if (!may_store(function, call, &why)) return refuse(FL_UNSUPPORTED, why);
  const fl_tensor& out = *call.outs[0];
  const auto bytes = static_cast<uint64_t>(dtype_bytes(out.dtype));
  if (!chip_.host_coherent()) {
    return chip_.copy(call.device, out.address, reinterpret_cast<fl_address>(&result), bytes, FL_COPY_HOST_TO_DEVICE);
  }
  std::memcpy(host_pointer(out.address), &result, bytes);  // little-endian: the lower bytes of a widened integer
  return FL_OK;
}

// ---- The chip -----------------------------------------------------------------------------------------------------
LibraryChip::LibraryChip(const Described& d, void* library)
    : properties_(completed(d)),
      host_coherent_(d.host_coherent),
      status_(d.runtime.status),
      devices_(d.runtime.devices),
      count_(bind(d.runtime.count, library)),
      init_(bind(d.runtime.init, library)),
      alloc_(bind(d.runtime.alloc, library)),
      free_(bind(d.runtime.free, library)),
      copy_(bind(d.runtime.copy, library)),
      synchronize_(bind(d.runtime.synchronize, library)) {
  if (static_cast<bool>(alloc_) != static_cast<bool>(free_))
    throw Error(FL_INVALID_ARGUMENT, "alloc and free go together");
  if (alloc_ && !copy_ && !host_coherent_) {
    throw Error(FL_INVALID_ARGUMENT, "memory of the library's own needs a copy function, or must be host_coherent");
  }
  name = d.name;
  vendor = d.vendor;
  version = d.version;
  has_fill = host_coherent_ || !alloc_;
  has_info = !alloc_;
  for (const DescribedKernel& kernel : d.kernels) {
    if (!kernel.plain) continue;
    library_kernels_.push_back(std::make_unique<LibraryKernel>(*this, library, kernel));
    kernels.push_back(library_kernels_.back()->row());
  }
  for (const fl_kernel& row : native_rows(d.kernels, library)) kernels.push_back(row);
}

LibraryChip::RuntimeFunction LibraryChip::bind(const CFunction& function, void* library) const {
  RuntimeFunction bound{function, nullptr};
  if (function.symbol.empty()) return bound;
  if (depends_on_type(function)) throw Error(FL_INVALID_ARGUMENT, function.symbol + ": T has no meaning here");
  void* address = required_symbol(library, function.symbol, function.where);
  bound.bound = std::make_unique<BoundFunction>(address, function, FL_FLOAT32);
  return bound;
}

fl_status LibraryChip::meaning(const CFunction& function, CType type, const CValue& result) const {
  if (!is_integer(type)) return FL_OK;
  const int64_t code = integer_result(result, type);
  if (contains(status_.ok, code)) return FL_OK;
  const fl_status status = contains(status_.out_of_memory, code) ? fl_status{FL_OUT_OF_MEMORY}
                           : contains(status_.device_lost, code) ? fl_status{FL_DEVICE_LOST}
                                                                 : fl_status{FL_INTERNAL};
  return refuse(status, function.symbol + " returned " + std::to_string(code));
}

fl_status LibraryChip::call(const RuntimeFunction& f, std::initializer_list<int64_t> arguments, CValue* result) const {
  fl_value values[8];
  uint32_t n = 0;
  for (const int64_t argument : arguments) {
    fl_value& value = values[n++];
    value.kind = FL_INTEGER;
    value.count = 0;
    value.u.i = argument;
  }
  fl_call call{};
  call.struct_size = sizeof call;
  call.args = values;
  call.n_args = n;
  std::string why;
  CValue passed[kMaxParameters];
  if (!f.bound->arguments(f.function, call, passed, &why)) return refuse(FL_INVALID_ARGUMENT, why);
  *result = (*f.bound)(passed);
  return FL_OK;
}

namespace {

/// The handle of a device: its index, and no null pointer.
fl_device handle_of(int32_t index) { return reinterpret_cast<fl_device>(static_cast<intptr_t>(index) + 1); }

}  // namespace

int32_t LibraryChip::index_of(fl_device device) { return static_cast<int32_t>(reinterpret_cast<intptr_t>(device)) - 1; }

fl_status LibraryChip::count(int32_t* count) {
  *count = devices_;
  if (!count_) return FL_OK;
  int64_t slot = 0;
  CValue result;
  const fl_status status = call(count_, {reinterpret_cast<int64_t>(&slot)}, &result);
  if (status != FL_OK) return status;
  if (!uses_result_slot(count_.function, 0)) {
    *count = static_cast<int32_t>(integer_result(result, count_.function.result));
    return FL_OK;
  }
  *count = static_cast<int32_t>(slot);
  return meaning(count_.function, count_.function.result, result);
}

fl_status LibraryChip::properties(int32_t, fl_device_properties* properties) {
  const uint32_t size = properties->struct_size;
  std::memcpy(static_cast<void*>(properties), &properties_, std::min<size_t>(size, sizeof properties_));
  properties->struct_size = size;
  return FL_OK;
}

fl_status LibraryChip::open(int32_t index, fl_device* device) {
  *device = handle_of(index);
  if (!init_) return FL_OK;
  CValue result;
  const fl_status status = call(init_, {index}, &result);
  return status == FL_OK ? meaning(init_.function, init_.function.result, result) : status;
}

fl_status LibraryChip::synchronize(fl_device device) {
  if (!synchronize_) return FL_OK;
  CValue result;
  const fl_status status = call(synchronize_, {index_of(device)}, &result);
  return status == FL_OK ? meaning(synchronize_.function, synchronize_.function.result, result) : status;
}

fl_status LibraryChip::finish_kernel(fl_device device) {
  return host_coherent_ && synchronize_ ? synchronize(device) : fl_status{FL_OK};
}

fl_status LibraryChip::alloc(fl_device device, uint64_t bytes, fl_address* address) {
  if (alloc_) {
    fl_address slot = 0;
    CValue result;
    fl_status status =
        call(alloc_, {index_of(device), static_cast<int64_t>(bytes), reinterpret_cast<int64_t>(&slot)}, &result);
    if (status == FL_OK) status = meaning(alloc_.function, alloc_.function.result, result);
    if (status != FL_OK) return status;
    *address = alloc_.function.result == CType::Pointer ? reinterpret_cast<fl_address>(result.p) : slot;
    return *address != 0 ? fl_status{FL_OK} : refuse(FL_OUT_OF_MEMORY, alloc_.function.symbol + " gave no address");
  }
  const std::lock_guard lock(mutex_);
  if (bytes > properties_.total_memory || used_ > properties_.total_memory - bytes) {
    return refuse(FL_OUT_OF_MEMORY,
                  format_bytes(used_) + " of " + format_bytes(properties_.total_memory) + " are in use");
  }
  const uint64_t alignment = std::max<uint64_t>(properties_.alignment, kHostAlignment);
  void* memory = std::aligned_alloc(alignment, round_up(bytes, alignment));
  if (memory == nullptr) return refuse(FL_OUT_OF_MEMORY, "the host has no memory left");
  *address = reinterpret_cast<fl_address>(memory);
  allocated_[*address] = bytes;
  used_ += bytes;
  return FL_OK;
}

fl_status LibraryChip::free(fl_device device, fl_address address) {
  if (free_) {
    CValue result;
    const fl_status status = call(free_, {index_of(device), static_cast<int64_t>(address)}, &result);
    return status == FL_OK ? meaning(free_.function, free_.function.result, result) : status;
  }
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(address);
  if (found == allocated_.end()) return refuse(FL_INVALID_ARGUMENT, "an address that was not allocated here");
  used_ -= found->second;
  allocated_.erase(found);
  std::free(host_pointer(address));
  return FL_OK;
}

fl_status LibraryChip::copy(fl_device device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) {
  if (!copy_) {
    std::memmove(host_pointer(dst), host_pointer(src), bytes);
    return FL_OK;
  }
  CValue result;
  const fl_status status =
      call(copy_,
           {index_of(device), static_cast<int64_t>(bytes), kind, static_cast<int64_t>(dst), static_cast<int64_t>(src)},
           &result);
  return status == FL_OK ? meaning(copy_.function, copy_.function.result, result) : status;
}

fl_status LibraryChip::fill(fl_device, fl_address dst, const void* pattern, uint32_t pattern_bytes, uint64_t count) {
  char* to = static_cast<char*>(host_pointer(dst));
  if (pattern_bytes == 1) {
    std::memset(to, *static_cast<const unsigned char*>(pattern), count);
    return FL_OK;
  }
  for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * pattern_bytes, pattern, pattern_bytes);
  return FL_OK;
}

fl_status LibraryChip::info(fl_device, uint64_t* free_bytes, uint64_t* total_bytes) {
  const std::lock_guard lock(mutex_);
  *total_bytes = properties_.total_memory;
  *free_bytes = properties_.total_memory - used_;
  return FL_OK;
}

}  // namespace torch_fl::runtime
