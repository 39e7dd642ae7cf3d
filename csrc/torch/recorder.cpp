// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "call_sites.h"
#include "copy.h"
#include "errors.h"
#include "frames.h"
#include "runtime/recorded.h"
#include "runtime/timeline.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

using runtime::Record;
using runtime::Records;
using runtime::Subject;

thread_local constinit Measured* g_measured = nullptr;
std::atomic<bool> g_sites{false};  ///< the recording wants call sites

// ---- Layers -------------------------------------------------------------------------------------------------------
struct LayerNames {
  std::mutex mutex;
  std::vector<std::string> names{""};
  std::unordered_map<std::string, uint32_t> numbers{{"", 0}};
};
LayerNames& layer_names() {
  static auto* names = new LayerNames();
  return *names;
}

uint32_t intern_layer(const std::string& name) {
  LayerNames& all = layer_names();
  const std::lock_guard lock(all.mutex);
  const auto [place, fresh] = all.numbers.emplace(name, static_cast<uint32_t>(all.names.size()));
  if (fresh) all.names.push_back(name);
  return place->second;
}

std::vector<uint32_t>& layers() {
  static thread_local std::vector<uint32_t> stack;
  return stack;
}
thread_local constinit uint32_t g_layer = 0;  ///< the innermost

void push_layer(uint32_t number) {
  layers().push_back(number);
  g_layer = number;
}

void erase_layer(uint32_t number, bool with_inner) {
  std::vector<uint32_t>& stack = layers();
  const auto last = std::find(stack.rbegin(), stack.rend(), number);
  if (last == stack.rend()) return;
  const auto place = std::prev(last.base());
  stack.erase(place, with_inner ? stack.end() : std::next(place));
  g_layer = stack.empty() ? 0 : stack.back();
}

// With what an exception left behind inside it.
void pop_layer(uint32_t number) { erase_layer(number, true); }

// That one alone.
void drop_layer(uint32_t number) { erase_layer(number, false); }

// ---- What calls of one plan have in common --------------------------------------------------------------------------
template <class F>
void each_tensor(const Call& call, F&& f) {
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind == Kind::Tensor) f(i, *a.u.tensor);
    if (a.kind != Kind::TensorList) continue;
    for (uint32_t k = 0; k < a.count; ++k) f(i, a.u.tensors[k]);
  }
}

void add_tensor(Subject& subject, const at::Tensor& t) {
  if (!t.defined()) return;
  subject.shapes.emplace_back(t.sizes().begin(), t.sizes().end());
  subject.dtypes.emplace_back(dtype_name(t.scalar_type()));
}

// "weight: float32 as channels_last". Empty: the kernel takes it as it is.
std::string adaptation(const std::string& name, const at::Tensor& t, const TensorPlan& plan) {
  if (plan.source != TensorPlan::Converted) return "";
  std::string text = name + ": " + dtype_name(t.scalar_type());
  if (plan.dtype != t.scalar_type()) text += std::string(" to ") + dtype_name(plan.dtype);
  if (t.device().is_cpu()) return text + " from the host";
  if (plan.format != at::MemoryFormat::Contiguous) return text + " as channels_last";
  return t.is_contiguous() ? text : text + " as contiguous";
}

void add_adapters(Subject& subject, const Call& call, const Plan& plan) {
  size_t k = 0;
  each_tensor(call, [&](uint32_t i, const at::Tensor& t) {
    if (k >= plan.tensors.size()) return;
    const std::string text = adaptation(call.entry.args[i].name, t, plan.tensors[k++]);
    if (!text.empty()) subject.adapters.push_back(text);
  });
  for (const OutPlan& out : plan.outs) {
    if (!out.temporary || out.absent) continue;
    subject.adapters.push_back(std::string("result: computed as ") + dtype_name(out.dtype) + " and copied");
  }
  if (plan.alignment != 0) subject.adapters.push_back("aligned to " + std::to_string(plan.alignment) + " bytes");
}

void set_route(Subject& subject, const Plan& plan) {
  subject.route = route_name(plan.route);
  subject.reason = plan.reason;
}

Subject subject_of(const Call& call, const Plan& plan) {
  Subject subject;
  subject.op = call.entry.op_name;
  subject.overload = call.entry.overload;
  subject.chip = call.device->chip.name;
  subject.device = call.device->index;
  set_route(subject, plan);
  each_tensor(call, [&](uint32_t, const at::Tensor& t) { add_tensor(subject, t); });
  if (plan.kernel != nullptr) add_adapters(subject, call, plan);
  return subject;
}

// ---- Autograd -------------------------------------------------------------------------------------------------------
void note_autograd(Record& record) {
  const auto node = torch::autograd::get_current_node();
  if (!node) {
    record.sequence = static_cast<int64_t>(at::sequence_number::peek()) - 1;
    return;
  }
  record.flags |= Record::kBackward;
  record.forward_thread = static_cast<uint32_t>(node->thread_id());
  const uint64_t sequence = node->sequence_nr();
  record.sequence = sequence < (uint64_t{1} << 62) ? static_cast<int64_t>(sequence) : -1;  // leaves have the largest
}

template <class Small>
Small capped(uint64_t value) {
  return static_cast<Small>(std::min<uint64_t>(value, std::numeric_limits<Small>::max()));
}

uint64_t load(const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); }

}  // namespace

Measured* measured() noexcept { return g_measured; }

void wait_for_earlier_work(runtime::Device& device, runtime::StreamId stream) {
  if (C10_LIKELY(g_measured == nullptr)) return;
  const Measure waited(&Measured::wait_ns);
  device.synchronize_stream(stream);
}

// ---- One call -------------------------------------------------------------------------------------------------------
ObservedCall::ObservedCall(runtime::Device& device)
    : device_(device), id_(runtime::next_call_id()), correlation_(id_), recording_(Records::get().running()) {
  outer_ = std::exchange(g_measured, recording_ != 0 ? &measured_ : nullptr);
  if (recording_ == 0) return;
  if (g_sites.load(std::memory_order_relaxed)) site_ = call_site(recording_);
  start_ns_ = runtime::now_ns();
}

void ObservedCall::about(const Call& call, Plan& plan) {
  if (recording_ == 0) return;
  if (plan.recording != recording_) {
    plan.subject = Records::get().intern(recording_, subject_of(call, plan));
    plan.recording = recording_;
  }
  subject_ = plan.subject;
  plan_ = &plan;
  before_.bytes = load(plan.bytes);
  before_.syncs = load(plan.syncs);
  before_.conversions = load(plan.conversions);
}

void ObservedCall::about(Subject subject) {
  if (recording_ != 0) subject_ = Records::get().intern(recording_, std::move(subject));
}

// Counters can be reset meanwhile.
uint64_t ObservedCall::counted(const std::atomic<uint64_t>& counter, uint64_t before) const {
  const uint64_t now = load(counter);
  return now >= before ? now - before : now;
}

void ObservedCall::served_by(const Plan& plan) {
  if (recording_ == 0) return;
  if (&plan != plan_) {
    subject_ = Records::get().rerouted(recording_, subject_, route_name(plan.route), plan.reason);
    before_ = Measured();
  }
  measured_.bytes += counted(plan.bytes, before_.bytes);
  measured_.syncs += counted(plan.syncs, before_.syncs);
  measured_.conversions += counted(plan.conversions, before_.conversions);
}

ObservedCall::~ObservedCall() {
  g_measured = outer_;
  if (recording_ == 0) return;
  Record record{};
  record.id = id_;
  record.start_ns = start_ns_;
  record.host_ns = runtime::now_ns() - start_ns_;
  const uint64_t parent = correlation_.parent();
  record.parent = parent == 0 ? 0 : capped<uint32_t>(id_ - parent);
  record.subject = subject_;
  record.site = site_;
  record.layer = g_layer;
  record.wait_ns = static_cast<float>(measured_.wait_ns);
  record.copy_in_ns = static_cast<float>(measured_.copy_in_ns);
  record.compute_ns = static_cast<float>(measured_.compute_ns);
  record.copy_out_ns = static_cast<float>(measured_.copy_out_ns);
  record.bytes = measured_.bytes;
  record.syncs = capped<uint16_t>(measured_.syncs);
  record.conversions = capped<uint16_t>(measured_.conversions);
  record.stream = capped<uint16_t>(static_cast<uint64_t>(runtime::current_stream(device_.index)));
  record.allocated_bytes = static_cast<uint64_t>(device_.allocator().stats().allocated_bytes.current);
  record.flags = failed_ ? Record::kFailed : 0;
  note_autograd(record);
  Records::get().add(record, recording_, static_cast<uint32_t>(at::RecordFunction::currentThreadId()));
}

// ---- Copies ---------------------------------------------------------------------------------------------------------
namespace {

bool on_fl(const at::Tensor& t) { return t.defined() && t.device().type() == c10::kPrivateUse1; }

const char* direction(const at::Tensor& source, const at::Tensor& target) {
  if (!on_fl(source)) return "host to device";
  if (!on_fl(target)) return "device to host";
  return source.device() == target.device() ? "within the device" : "between devices";
}

}  // namespace

void ObservedCopy::begin(const char* op, const at::Tensor& source, const at::Tensor& target, const char* reason) {
  runtime::Device& device = runtime_device(on_fl(target) ? target : source);
  call_.emplace(device);
  if (!call_->recorded()) return;
  Subject subject;
  const std::string_view name(op);
  const size_t dot = name.find('.');
  subject.op = name.substr(0, dot);
  if (dot != std::string_view::npos) subject.overload = name.substr(dot + 1);
  subject.chip = device.chip.name;
  subject.device = device.index;
  subject.route = "copy";
  subject.reason = reason != nullptr ? reason : direction(source, target);
  for (const at::Tensor* t : {&source, &target}) add_tensor(subject, *t);
  const at::Tensor& moved = source.defined() ? source : target;
  call_->measured().bytes = static_cast<uint64_t>(moved.numel()) * moved.dtype().itemsize();
  call_->about(std::move(subject));
}

// ---- Python
// -----------------------------------------------------------------------------------------------------------
namespace {

/// Device events of the recording that runs, in little space; beyond the capacity the oldest go.
class Events {
 public:
  explicit Events(size_t capacity) : capacity_(capacity) {
    runtime::TimelineListener::Options options;
    options.sink = [this](const runtime::DeviceEvent* events, size_t count) { take(events, count); };
    listener_ = std::make_unique<runtime::TimelineListener>(std::move(options));
  }

  void finish(runtime::Context& context) {
    runtime::TimelineListener::Result rest = listener_->stop();
    take(rest.events.data(), rest.events.size());
    context.dropped_events = dropped_ + rest.dropped;
    context.events = std::move(events_);
    context.notes.insert(context.notes.end(), rest.problems.begin(), rest.problems.end());
  }

 private:
  void take(const runtime::DeviceEvent* events, size_t count) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) events_.push_back(runtime::small(events[i]));
    while (events_.size() > capacity_) {
      events_.pop_front();
      ++dropped_;
    }
  }

  const size_t capacity_;
  std::mutex mutex_;
  std::deque<runtime::SmallEvent> events_;
  uint64_t dropped_ = 0;
  std::unique_ptr<runtime::TimelineListener> listener_;
};

std::unique_ptr<Events>& events() {  // guarded by the interpreter's lock
  static auto* running = new std::unique_ptr<Events>();
  return *running;
}

std::unique_ptr<Events> listen(size_t calls) {
  const py::gil_scoped_release release;
  return std::make_unique<Events>(std::max(calls, 2 * calls));
}

// How far autograd had numbered nodes when the recording began, and on which thread: guarded by the GIL.
uint32_t g_start_thread = 0;
int64_t g_start_sequence = 0;

void start_recording(size_t capacity, bool sites, bool device_events) {
  guarded([&] {
    prepare_call_sites();
    std::unique_ptr<Events> listener = device_events ? listen(capacity) : nullptr;
    Records::get().start(capacity, [&](uint32_t recording) {
      begin_call_sites(recording);
      g_sites.store(sites && frames_unknown() == nullptr);
    });
    g_start_thread = static_cast<uint32_t>(at::RecordFunction::currentThreadId());
    g_start_sequence = static_cast<int64_t>(at::sequence_number::peek());
    events() = std::move(listener);
  });
}

/// A recording, and what Python has seen of it: texts are made once.
struct Rows {
  explicit Rows(runtime::Recorded&& all) : recorded(std::move(all)) {}
  runtime::Recorded recorded;
  std::unordered_map<const Subject*, py::tuple> subjects;
  std::unordered_map<const std::string*, py::str> texts;

  const py::str& text(const std::string& value) {
    auto& known = texts[&value];
    if (known.ptr() == nullptr || py::len(known) == 0) known = decoded(value);
    return known;
  }

  // Names of chips, kernels and files may hold what is no UTF-8.
  static py::str decoded(std::string_view value) {
    return py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace"));
  }

  // (op, overload, chip, device), (route, reason, adapters), (shapes, dtypes)
  const py::tuple& subject(const Subject& s) {
    const auto known = subjects.find(&s);
    if (known != subjects.end()) return known->second;
    py::tuple adapters(s.adapters.size()), dtypes(s.dtypes.size());
    for (size_t i = 0; i < s.adapters.size(); ++i) adapters[i] = decoded(s.adapters[i]);
    for (size_t i = 0; i < s.dtypes.size(); ++i) dtypes[i] = decoded(s.dtypes[i]);
    return subjects
        .emplace(&s, py::make_tuple(decoded(s.op), decoded(s.overload), decoded(s.chip), s.device, decoded(s.route),
                                    decoded(s.reason), adapters, shapes(s), dtypes))
        .first->second;
  }

  static py::tuple shapes(const Subject& s) {
    py::tuple all(s.shapes.size());
    for (size_t i = 0; i < s.shapes.size(); ++i) {
      py::tuple one(s.shapes[i].size());
      for (size_t d = 0; d < s.shapes[i].size(); ++d) one[d] = s.shapes[i][d];
      all[i] = one;
    }
    return all;
  }
};

int64_t whole(double ns) { return static_cast<int64_t>(ns + 0.5); }

// The fields of torch_fl.profiler.Record, in their order.
py::tuple row(Rows& rows, size_t i) {
  const runtime::Recorded& all = rows.recorded;
  const Record& r = all[i];
  const py::tuple& s = rows.subject(all.subject(r));
  return py::make_tuple(r.id, r.parent == 0 ? 0 : r.id - r.parent, s[0], s[1], s[2], s[3], r.stream, s[4], s[5], s[6],
                        r.conversions, s[7], s[8], r.bytes, r.syncs, r.start_ns, r.host_ns, all.self_host_ns(i),
                        whole(r.wait_ns), whole(r.copy_in_ns), whole(r.compute_ns), whole(r.copy_out_ns),
                        whole(r.device_ns), r.allocated_bytes, (r.flags & Record::kFailed) != 0,
                        (r.flags & Record::kBackward) != 0, all.thread(i), r.sequence, rows.text(all.site(r.site)),
                        rows.text(all.layer(r.layer)));
}

py::list record_rows(Rows& rows, size_t start, size_t stop) {
  py::list list;
  for (size_t i = start; i < std::min(stop, rows.recorded.size()); ++i) list.append(row(rows, i));
  return list;
}

py::list event_rows(const Rows& rows, size_t start, size_t stop) {
  py::list list;
  const auto& all = rows.recorded.events();
  for (size_t i = start; i < std::min(stop, all.size()); ++i) {
    const runtime::SmallEvent& e = all[i];
    list.append(py::make_tuple(runtime::kind_name(e.kind), Rows::decoded(e.name), e.device, e.stream, e.correlation,
                               e.thread, e.start_ns, e.end_ns, e.bytes));
  }
  return list;
}

constexpr const char* kGroupFields[] = {"op",     "overload", "chip",  "device",   "route",
                                        "reason", "site",     "layer", "backward", "shapes"};

py::object group_field(Rows& rows, const runtime::CallGroup& group, size_t field) {
  const py::tuple& s = rows.subject(*group.subject);
  switch (1u << field) {
    case runtime::kBySite:
      return rows.text(rows.recorded.site(group.site));
    case runtime::kByLayer:
      return rows.text(rows.recorded.layer(group.layer));
    case runtime::kByBackward:
      return py::bool_(group.backward);
    case runtime::kByShapes:
      return s[7];
    default:
      return s[field];
  }
}

py::list group_rows(Rows& rows, const std::vector<std::string>& by) {
  uint32_t bits = 0;
  for (size_t i = 0; i < std::size(kGroupFields); ++i) {
    if (std::find(by.begin(), by.end(), kGroupFields[i]) != by.end()) bits |= 1u << i;
  }
  py::list list;
  for (const runtime::CallGroup& g : rows.recorded.groups(bits)) {
    py::list one;
    for (size_t i = 0; i < std::size(kGroupFields); ++i) {
      if ((bits >> i & 1) != 0) one.append(group_field(rows, g, i));
    }
    for (const uint64_t count : {g.calls, g.failed, g.bytes, g.syncs, g.conversions}) one.append(count);
    for (const int64_t ns :
         {g.host_ns, g.self_host_ns, whole(g.wait_ns), whole(g.copy_ns), whole(g.compute_ns), whole(g.device_ns)}) {
      one.append(ns);
    }
    list.append(py::tuple(one));
  }
  return list;
}

py::list memory_rows(const Rows& rows, size_t points) {
  py::list list;
  for (const auto& sample : rows.recorded.memory(points)) {
    list.append(py::make_tuple(sample.time_ns, sample.device, sample.allocated_bytes));
  }
  return list;
}

std::unique_ptr<Rows> stop_recording() {
  runtime::Context context;
  context.start_thread = g_start_thread;
  context.start_sequence = g_start_sequence;
  Records::Result result = Records::get().stop();
  g_sites.store(false);
  const std::unique_ptr<Events> listened = std::move(events());
  context.sites = end_call_sites(context.notes);
  if (frames_unknown() != nullptr) context.notes.emplace_back(frames_unknown());
  {
    LayerNames& names = layer_names();
    const std::lock_guard lock(names.mutex);
    context.layers = names.names;
  }
  const py::gil_scoped_release release;
  if (listened != nullptr) listened->finish(context);
  return std::make_unique<Rows>(runtime::Recorded(std::move(result), std::move(context)));
}

void write(void (runtime::Recorded::*to)(const std::string&) const, const Rows& rows, const std::string& path) {
  const py::gil_scoped_release release;
  guarded([&] { (rows.recorded.*to)(path); });
}

}  // namespace

void bind_recorder(py::module_& m) {
  py::class_<Rows>(m, "Recorded")
      .def_property_readonly("count", [](const Rows& r) { return r.recorded.size(); })
      .def_property_readonly("event_count", [](const Rows& r) { return r.recorded.events().size(); })
      .def_property_readonly("dropped", [](const Rows& r) { return r.recorded.dropped(); })
      .def_property_readonly("dropped_events", [](const Rows& r) { return r.recorded.dropped_events(); })
      .def_property_readonly("start_ns", [](const Rows& r) { return r.recorded.start_ns(); })
      .def_property_readonly("end_ns", [](const Rows& r) { return r.recorded.end_ns(); })
      .def_property_readonly("notes", [](const Rows& r) { return r.recorded.notes(); })
      .def("rows", &record_rows, py::arg("start"), py::arg("stop"))
      .def("events", &event_rows, py::arg("start"), py::arg("stop"))
      .def("groups", &group_rows, py::arg("by"))
      .def("memory", &memory_rows, py::arg("points"))
      .def("export_json_lines",
           [](const Rows& r, const std::string& path) { write(&runtime::Recorded::write_json_lines, r, path); })
      .def("export_chrome_trace",
           [](const Rows& r, const std::string& path) { write(&runtime::Recorded::write_chrome_trace, r, path); });
  m.def("start_recording", &start_recording, py::arg("capacity"), py::arg("sites"), py::arg("device_events"));
  m.def("stop_recording", &stop_recording);
  m.def("intern_layer", &intern_layer, py::arg("name"));
  m.def("push_layer", &push_layer, py::arg("number"));
  m.def("pop_layer", &pop_layer, py::arg("number"));
  m.def("drop_layer", &drop_layer, py::arg("number"));
}

}  // namespace torch_fl::glue
