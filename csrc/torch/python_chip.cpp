// SPDX-License-Identifier: Apache-2.0
#include "python_chip.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd_threads.h"
#include "dtypes.h"
#include "errors.h"
#include "interpreter.h"
#include "register.h"
#include "router.h"
#include "runtime/chip_slots.h"
#include "runtime/lock.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

class PythonChip;
using Names = std::vector<std::string>;

// ---- The interpreter ----------------------------------------------------------------------------------------------

/// The exception behind the last failure that this thread reported as a status. Left alone at the thread's end, when
/// there may be no interpreter that could release it.
thread_local constinit python_error* g_cause = nullptr;

void set_cause(python_error* cause) {
  delete g_cause;
  g_cause = cause;
}

python_error taken_error(py::error_already_set& error) {
  error.restore();
  python_error taken;
  taken.persist();
  return taken;
}

std::string described(const python_error& error) {
  const std::string type = py::cast<std::string>(py::handle(error.type).attr("__name__"));
  return error.message.empty() ? type : type + ": " + error.message;
}

fl_status no_interpreter() {
  runtime::set_plugin_message(FL_INTERNAL, "the Python interpreter is shutting down");
  return FL_INTERNAL;
}

/// No garbage is collected meanwhile: it may hold tensors, whose memory cannot be freed under the allocator's lock.
class NoCollection {
 public:
  NoCollection() : was_(PyGC_Disable()) {}
  ~NoCollection() {
    if (was_ != 0) PyGC_Enable();
  }

 private:
  const int was_;
};

/// Calls the chip's Python code for the runtime, which wants a status.
template <typename Body>
fl_status in_python(Body&& body) {
  if (interpreter_gone()) return no_interpreter();
  const py::gil_scoped_acquire gil;
  const py::error_scope error_of_the_caller;
  try {
    body();
    return FL_OK;
  } catch (py::error_already_set& error) {
    const fl_status status = error.matches(PyExc_MemoryError) ? FL_OUT_OF_MEMORY : FL_INTERNAL;
    auto* cause = new python_error(taken_error(error));
    set_cause(cause);
    runtime::set_plugin_message(status, described(*cause).c_str());
    return status;
  }
}

/// The same, under a lock of the runtime's.
template <typename Body>
fl_status in_python_locked(Body&& body) {
  return in_python([&] {
    const NoCollection pause;
    body();
  });
}

const runtime::OuterLock kInterpreterLock{
    +[]() -> void* { return Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
    +[](void* left) { PyEval_RestoreThread(static_cast<PyThreadState*>(left)); }};

// ---- What Python gets to see of a call ----------------------------------------------------------------------------

/// Made once, kept for ever.
PyObject* kept_text(const std::string& text) { return PyUnicode_InternFromString(text.c_str()); }

py::object dtype_text(fl_dtype dtype) {
  static const auto* const texts = [] {
    auto* list = new std::array<PyObject*, 64>();
    list->fill(nullptr);
    for (const DtypeRow& row : kDtypes) (*list)[static_cast<size_t>(row.fl)] = kept_text(row.name);
    return list;
  }();
  PyObject* text = (*texts)[static_cast<size_t>(dtype)];
  return text != nullptr ? py::reinterpret_borrow<py::object>(text) : py::str("unknown");
}

py::tuple integers(const int64_t* values, size_t count) {
  py::tuple tuple(count);
  for (size_t i = 0; i < count; ++i) PyTuple_SET_ITEM(tuple.ptr(), i, PyLong_FromLongLong(values[i]));
  return tuple;
}

/// (name, dtype, shape, strides, address, value of a number)
py::tuple tensor_row(py::handle name, const fl_tensor& t) {
  const auto ndim = static_cast<size_t>(t.ndim);
  return py::make_tuple(name, dtype_text(t.dtype), integers(t.sizes, ndim), integers(t.strides, ndim), t.address,
                        py::none());
}

py::object number(const fl_value& v) {
  switch (v.kind) {
    case FL_BOOLEAN:
      return py::bool_(v.u.i != 0);
    case FL_INTEGER:
      return py::int_(v.u.i);
    case FL_REAL:
      return py::float_(v.u.d);
    case FL_COMPLEX:
      return py::reinterpret_steal<py::object>(PyComplex_FromDoubles(v.u.c[0], v.u.c[1]));
    default:
      return py::none();
  }
}

template <typename T, typename Make>
py::list listed(const T* values, uint32_t count, Make make) {
  py::list list;
  for (uint32_t i = 0; i < count; ++i) list.append(make(values[i]));
  return list;
}

py::object parameter(const fl_value& v) {
  switch (v.kind) {
    case FL_STRING:
      return py::str(v.u.s);
    case FL_INTEGERS:
      return listed(v.u.ints, v.count, [](int64_t i) { return py::int_(i); });
    case FL_REALS:
      return listed(v.u.reals, v.count, [](double d) { return py::float_(d); });
    case FL_BOOLEANS:
      return listed(v.u.bools, v.count, [](uint8_t b) { return py::bool_(b != 0); });
    case FL_VALUES:
      return listed(v.u.values, v.count, [](const fl_value& n) { return number(n); });
    case FL_DTYPE:
      return dtype_text(static_cast<fl_dtype>(v.u.i));
    default:
      return number(v);
  }
}

// ---- Operators ----------------------------------------------------------------------------------------------------

/// What a row's user_data points to. Lives as long as the process.
struct Operator {
  Operator(PythonChip& owner, const Entry& entry);
  PythonChip& chip;
  const std::string name;
  PyObject* const py_name;
  std::vector<PyObject*> arguments;  ///< names
  std::vector<bool> tensors;         ///< which of them are tensors
  const bool random;
};

struct Arguments {
  py::list tensors, outs;
  py::dict params;

  void add(py::handle name, bool is_tensor, const fl_value& v, fl_dtype compute) {
    switch (v.kind) {
      case FL_TENSOR:
        return tensors.append(tensor_row(name, *v.u.tensor));
      case FL_TENSORS:
        for (uint32_t i = 0; i < v.count; ++i) {
          if (v.u.tensors[i] != nullptr) tensors.append(tensor_row(name, *v.u.tensors[i]));
        }
        return;
      case FL_OPAQUE:
        return;
      default:
        if (is_tensor && v.kind != FL_NONE) {
          tensors.append(py::make_tuple(name, dtype_text(compute), py::tuple(), py::tuple(), 0, number(v)));
        } else {
          params[name] = parameter(v);
        }
    }
  }
};

Arguments arguments_of(const Operator& op, const fl_call& call) {
  Arguments made;
  for (uint32_t i = 0; i < call.n_args && i < op.arguments.size(); ++i) {
    made.add(op.arguments[i], op.tensors[i], call.args[i], call.compute_dtype);
  }
  for (uint32_t i = 0; i < call.n_outs; ++i) {
    const fl_tensor* out = call.outs[i];
    made.outs.append(out == nullptr ? py::object(py::none()) : py::object(tensor_row(py::str("out"), *out)));
  }
  if (op.random) {
    made.params["philox_seed"] = call.philox_seed;
    made.params["philox_offset"] = call.philox_offset;
  }
  return made;
}

/// How deep dispatch() is inside itself, on this thread: the C stack ends before Python's own limit is reached.
thread_local constinit int g_depth = 0;
constexpr int kMaxDepth = 32;

struct Depth {
  explicit Depth(const Operator& op) {
    if (++g_depth <= kMaxDepth) return;
    --g_depth;
    throw runtime::Error(FL_INVALID_ARGUMENT, "dispatch() calls itself without end: " + std::to_string(kMaxDepth) +
                                                  " calls are inside each other, the last of " + op.name);
  }
  ~Depth() { --g_depth; }
};

fl_status run_kernel(const fl_call* call);
fl_status supports_call(const fl_call* call);

// ---- The chip -----------------------------------------------------------------------------------------------------

struct DeviceState {
  PythonChip* chip;
  int32_t index;
};

/// What Python says of itself when it registers (torch_fl/chips/python_backend/).
struct Description {
  std::vector<fl_device_properties> devices;
  bool supports = false, pinned = false, coherent = true;
};

class PythonChip final : public runtime::HostedChip {
 public:
  PythonChip(Description description, py::list adapters);

  fl_status count(int32_t* count) override {
    *count = static_cast<int32_t>(description_.devices.size());
    return FL_OK;
  }
  fl_status properties(int32_t index, fl_device_properties* properties) override {
    *properties = description_.devices[static_cast<size_t>(index)];
    return FL_OK;
  }
  fl_status open(int32_t index, fl_device* device) override;
  fl_status alloc(fl_device device, uint64_t bytes, fl_address* address) override;
  fl_status free(fl_device device, fl_address address) override;
  fl_status copy(fl_device device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) override;
  fl_status fill(fl_device, fl_address dst, const void* pattern, uint32_t pattern_bytes, uint64_t count) override;
  fl_status host_alloc(fl_device device, uint64_t bytes, void** pointer) override;
  fl_status host_free(fl_device device, void* pointer) override;

  void add_row(const Entry& entry, uint64_t dtypes);
  void ask_for_everything() { asks_for_everything_ = true; }
  const fl_kernel* row_on_demand(const Entry& entry);
  py::handle adapter(int32_t index) const { return adapters_[static_cast<size_t>(index)]; }
  int32_t first_device = 0;  ///< global index
  fl_device_properties properties_now(int32_t index);

 private:
  static const DeviceState& state(fl_device device) { return *reinterpret_cast<const DeviceState*>(device); }
  py::handle adapter(fl_device device) const { return adapter(state(device).index); }
  fl_kernel make_row(const Entry& entry, uint64_t dtypes);
  void describe(int32_t index, const py::dict& said);

  Description description_;
  std::vector<PyObject*> adapters_;
  std::vector<DeviceState> states_;
  std::deque<Operator> operators_;
  bool asks_for_everything_ = false;
  std::mutex mutex_;                                      ///< guards what follows, operators_ and the descriptions
  std::unordered_map<std::string, fl_kernel> on_demand_;  ///< a node never moves
};

bool is_tensor(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  const auto optional = type->cast<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::TensorType;
}

Operator::Operator(PythonChip& owner, const Entry& entry)
    : chip(owner), name(entry.name), py_name(kept_text(entry.name)), random(entry.random) {
  for (const ArgInfo& argument : entry.args) {
    arguments.push_back(kept_text(argument.name));
    tensors.push_back(is_tensor(argument.type));
  }
}

PythonChip::PythonChip(Description description, py::list adapters) : description_(std::move(description)) {
  has_fill = description_.coherent;
  has_pinned = description_.pinned;
  for (const py::handle adapter : adapters) adapters_.push_back(adapter.inc_ref().ptr());  // for ever
  for (int32_t i = 0; i < static_cast<int32_t>(adapters_.size()); ++i) states_.push_back({this, i});
}

fl_status PythonChip::open(int32_t index, fl_device* device) {
  const fl_status status = in_python([&] {
    const py::object said = adapter(index).attr("open")();
    if (!said.is_none()) describe(index, said.cast<py::dict>());
    const py::gil_scoped_release no_gil;
    ensure_autograd_thread(first_device + index);
  });
  *device = reinterpret_cast<fl_device>(&states_[static_cast<size_t>(index)]);
  return status;
}

void set_text(char* to, size_t capacity, const std::string& text) {
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

/// The keys were checked in Python.
void read_description(const py::dict& from, fl_device_properties& to) {
  for (const auto& [key_object, value] : from) {
    const auto key = key_object.cast<std::string>();
    if (key == "name") set_text(to.name, sizeof to.name, value.cast<std::string>());
    if (key == "driver_version") set_text(to.driver_version, sizeof to.driver_version, value.cast<std::string>());
    if (key == "total_memory") to.total_memory = value.cast<uint64_t>();
    if (key == "max_allocation") to.max_allocation = value.cast<uint64_t>();
    if (key == "alignment") to.alignment = value.cast<uint64_t>();
    if (key == "compute_units") to.compute_units = value.cast<uint32_t>();
    if (key == "clock_mhz") to.clock_mhz = value.cast<uint32_t>();
    if (key == "peak_flops") to.peak_flops = value.cast<double>();
    if (key == "peak_bandwidth") to.peak_bandwidth = value.cast<double>();
  }
}

void PythonChip::describe(int32_t index, const py::dict& said) {
  const std::lock_guard lock(mutex_);
  read_description(said, description_.devices[static_cast<size_t>(index)]);
}

fl_device_properties PythonChip::properties_now(int32_t index) {
  const std::lock_guard lock(mutex_);
  return description_.devices[static_cast<size_t>(index)];
}

fl_status PythonChip::alloc(fl_device device, uint64_t bytes, fl_address* address) {
  return in_python_locked([&] { *address = adapter(device).attr("allocate")(bytes).cast<fl_address>(); });
}

fl_status PythonChip::free(fl_device device, fl_address address) {
  return in_python_locked([&] { adapter(device).attr("free")(address); });
}

fl_status PythonChip::copy(fl_device device, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind) {
  if (description_.coherent) {
    std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes);
    return FL_OK;
  }
  static constexpr const char* kFunctions[] = {"copy_in", "copy_out", "copy_within"};
  return in_python([&] { adapter(device).attr(kFunctions[kind])(dst, src, bytes); });
}

fl_status PythonChip::fill(fl_device, fl_address dst, const void* pattern, uint32_t pattern_bytes, uint64_t count) {
  auto* to = reinterpret_cast<char*>(dst);
  for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * pattern_bytes, pattern, pattern_bytes);
  return FL_OK;
}

fl_status PythonChip::host_alloc(fl_device device, uint64_t bytes, void** pointer) {
  return in_python(
      [&] { *pointer = reinterpret_cast<void*>(adapter(device).attr("allocate_pinned")(bytes).cast<uintptr_t>()); });
}

fl_status PythonChip::host_free(fl_device device, void* pointer) {
  return in_python_locked([&] { adapter(device).attr("free_pinned")(reinterpret_cast<uintptr_t>(pointer)); });
}

fl_kernel PythonChip::make_row(const Entry& entry, uint64_t dtypes) {
  const Operator& op = operators_.emplace_back(*this, entry);
  fl_kernel row{};
  row.struct_size = sizeof row;
  row.op = op.name.c_str();
  row.run = &run_kernel;
  row.supports = description_.supports || asks_for_everything_ ? &supports_call : nullptr;
  row.user_data = const_cast<Operator*>(&op);
  row.dtypes = dtypes;
  if (entry.op.hasTag(at::Tag::pointwise)) row.flags |= FL_KERNEL_PROMOTE | FL_KERNEL_BROADCAST;
  if (entry.random) row.flags |= FL_KERNEL_RANDOM;
  // Elements that lie apart could be reached only one by one.
  if (!description_.coherent) row.flags |= FL_KERNEL_CONTIGUOUS_INPUTS | FL_KERNEL_CONTIGUOUS_OUTPUTS;
  return row;
}

void PythonChip::add_row(const Entry& entry, uint64_t dtypes) { kernels.push_back(make_row(entry, dtypes)); }

const fl_kernel* PythonChip::row_on_demand(const Entry& entry) {
  // Random numbers are the same on every chip unless a class lists the operators that draw its own.
  if (!asks_for_everything_ || entry.random) return nullptr;
  const auto handle = find_overload(entry.kernel_name);
  if (!handle.has_value()) return nullptr;
  const Entry& functional = entry_for(*handle);
  if (functional.random || !functional.tensor_returns || interpreter_gone()) return nullptr;
  const py::gil_scoped_acquire gil;  // before the mutex, as everywhere
  const std::lock_guard lock(mutex_);
  const auto found = on_demand_.find(functional.name);
  if (found != on_demand_.end()) return &found->second;
  return &on_demand_.emplace(functional.name, make_row(functional, 0)).first->second;
}

// ---- The rows' functions ------------------------------------------------------------------------------------------

fl_status declined(const std::string& reason) {
  runtime::set_plugin_message(FL_UNSUPPORTED, reason.c_str());
  return FL_UNSUPPORTED;
}

/// Ask the adapter, whose answer `status` reads. Its exceptions leave as they are: they name the backend and the
/// operator, and have their cause.
template <class Status>
fl_status ask(const fl_call* call, const char* method, Status status) {
  const Operator& op = *static_cast<const Operator*>(call->kernel->user_data);
  if (interpreter_gone()) return no_interpreter();
  const Depth depth(op);
  const py::gil_scoped_acquire gil;
  const py::error_scope error_of_the_caller;
  try {
    Arguments a = arguments_of(op, *call);
    return status(
        op.chip.adapter(call->device_index).attr(method)(py::handle(op.py_name), a.tensors, a.params, a.outs));
  } catch (py::error_already_set& error) {
    throw taken_error(error);
  }
}

fl_status run_kernel(const fl_call* call) {
  return ask(call, "run", [](const py::object& done) {
    return done.ptr() == Py_True ? FL_OK : declined("dispatch() returned None");
  });
}

fl_status supports_call(const fl_call* call) {
  return ask(call, "supports",
             [](const py::object& reason) { return reason.is_none() ? FL_OK : declined(reason.cast<std::string>()); });
}

// ---- Registering --------------------------------------------------------------------------------------------------

/// Chips are immutable once loaded, and few.
std::mutex g_chips_mutex;
std::unordered_map<const runtime::Chip*, PythonChip*>& python_chips() {
  static auto* map = new std::unordered_map<const runtime::Chip*, PythonChip*>();
  return *map;
}
std::atomic<bool> g_any_chip{false};

PythonChip* find_python_chip(const runtime::Chip& chip) {
  if (!g_any_chip.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(g_chips_mutex);
  const auto found = python_chips().find(&chip);
  return found == python_chips().end() ? nullptr : found->second;
}

uint64_t dtype_mask(const Names& names) {
  uint64_t mask = 0;
  for (const std::string& name : names) {
    const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& r) { return name == r.name; });
    if (row == kDtypes.end()) throw py::value_error("there is no element type '" + name + "'");
    mask |= FL_DTYPE_BIT(row->fl);
  }
  return mask;
}

void add_operator(PythonChip& chip, const std::string& name, const Names& dtypes) {
  const auto handle = find_overload(name);
  if (!handle.has_value()) throw py::key_error(name);
  const Entry& entry = entry_for(*handle);
  if (entry.kernel_name != name && !entry.random) {  // operators that draw numbers are listed as they are called
    throw py::value_error("the operator " + name + " is a form of " + entry.kernel_name +
                          "; list that one, of which the in-place and out= forms follow");
  }
  if (!entry.tensor_returns) throw py::value_error("the operator " + name + " does not return tensors only");
  chip.add_row(entry, dtype_mask(dtypes));
}

/// Throws ValueError; KeyError for an operator that does not exist.
void register_python_chip(const py::dict& spec, const py::list& adapters) {
  Description description;
  description.supports = spec["supports"].cast<bool>();
  description.pinned = spec["pinned"].cast<bool>();
  description.coherent = spec["host_coherent"].cast<bool>();
  const uint64_t dtypes = dtype_mask(spec["dtypes"].cast<Names>());
  for (const py::handle device : spec["devices"]) {
    fl_device_properties properties{};
    properties.struct_size = sizeof properties;
    read_description(device.cast<py::dict>(), properties);
    properties.dtypes = dtypes;
    if (description.coherent) properties.capabilities |= FL_CAP_HOST_COHERENT;
    description.devices.push_back(properties);
  }
  auto chip = std::make_unique<PythonChip>(std::move(description), adapters);
  PythonChip& made = *chip;
  made.name = spec["name"].cast<std::string>();
  made.vendor = spec["vendor"].cast<std::string>();
  made.version = "Python";
  if (spec["operators"].is_none()) made.ask_for_everything();
  for (const auto& [op, types] : spec["operators"].is_none() ? py::dict() : spec["operators"].cast<py::dict>()) {
    add_operator(made, op.cast<std::string>(), types.cast<Names>());
  }
  auto& registry = runtime::Registry::get();
  made.first_device = registry.device_count();
  const auto source = spec["source"].cast<std::string>();
  const std::string name = made.name;
  {
    const py::gil_scoped_release no_gil;
    registry.load_hosted(std::move(chip), {source, "register_backend"});
  }
  const runtime::PluginReport& report = registry.reports().back();
  if (!report.loaded) throw py::value_error(report.reason);
  runtime::Chip& loaded = **std::find_if(registry.chips().begin(), registry.chips().end(),
                                         [&](const auto& chip) { return chip->name == name; });
  loaded.device_type = spec["device_type"].cast<std::string>();
  {
    const std::lock_guard lock(g_chips_mutex);
    python_chips().emplace(&loaded, &made);
  }
  g_any_chip.store(true, std::memory_order_release);
  runtime::outer_lock.store(&kInterpreterLock, std::memory_order_release);
  enable_chip_kernels();
}

py::object host_memory(uintptr_t address, py::ssize_t bytes, bool writable) {
  auto* memory = PyMemoryView_FromMemory(reinterpret_cast<char*>(address), bytes, writable ? PyBUF_WRITE : PyBUF_READ);
  if (memory == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(memory);
}

}  // namespace

const fl_kernel* python_row(const runtime::Chip& chip, const Entry& entry) {
  PythonChip* python = find_python_chip(chip);
  return python == nullptr ? nullptr : python->row_on_demand(entry);
}

fl_device_properties described_properties(const runtime::Device& device) {
  PythonChip* python = find_python_chip(device.chip);
  return python == nullptr ? device.properties : python->properties_now(device.local_index);
}

void throw_python_cause(const runtime::Error& error) {
  if (g_cause == nullptr || interpreter_gone()) return;
  const std::unique_ptr<python_error> cause(std::exchange(g_cause, nullptr));
  const py::gil_scoped_acquire gil;
  if (std::string_view(error.what()).find(described(*cause)) == std::string_view::npos) return;
  if (PyErr_GivenExceptionMatches(cause->type, PyExc_Exception) == 0) throw *cause;  // KeyboardInterrupt and the like
  if (error.status() == FL_OUT_OF_MEMORY) return;  // PyTorch's own exception, which programs look for
  PyErr_NormalizeException(&cause->type, &cause->value, &cause->traceback);
  if (cause->traceback != nullptr) PyException_SetTraceback(cause->value, cause->traceback);
  const py::object effect = py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(error.what());
  PyException_SetCause(effect.ptr(), py::reinterpret_borrow<py::object>(cause->value).release().ptr());
  PyErr_SetObject(PyExc_RuntimeError, effect.ptr());
  python_error chained;
  chained.persist();
  throw chained;
}

void bind_python_chips(py::module_& m) {
  m.def("register_python_chip", &register_python_chip, py::arg("spec"), py::arg("adapters"));
  m.def("host_memory", &host_memory, py::arg("address"), py::arg("bytes"), py::arg("writable"));
}

}  // namespace torch_fl::glue
