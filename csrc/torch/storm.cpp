// SPDX-License-Identifier: Apache-2.0
#include "storm.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <mutex>

#include "interpreter.h"
#include "plan.h"
#include "runtime/records.h"

namespace py = pybind11;

namespace torch_fl::glue {

constexpr uint64_t kFirstLook = 1000;
std::atomic<uint64_t> g_host_calls{0}, g_next_look{kFirstLook};

namespace {

constexpr size_t kWorst = 5;

struct Thresholds {
  std::atomic<double> share{0.1};
  std::atomic<uint64_t> calls{kFirstLook};  ///< on the host, at least
  std::atomic<uint64_t> nanoseconds{100'000'000};
};
Thresholds g_thresholds;
std::atomic<bool> g_warned{false};
const int64_t g_loaded_ns = runtime::now_ns();

struct Totals {
  uint64_t calls = 0, host_calls = 0, host_ns = 0;
  std::vector<CounterRow> worst;  ///< most time first
  double call_share() const { return calls > 0 ? static_cast<double>(host_calls) / static_cast<double>(calls) : 0; }
  /// Of the time since the library was loaded: too small where the program did something else first, never too large.
  double time_share() const {
    const auto passed = static_cast<double>(runtime::now_ns() - g_loaded_ns);
    return std::min(1.0, static_cast<double>(host_ns) / passed);
  }
};

Totals totals() {
  Totals all;
  for (CounterRow& row : collect_counters()) {
    all.calls += row.calls;
    if (row.route != Route::Host) continue;
    all.host_calls += row.calls;
    all.host_ns += row.nanoseconds;
    all.worst.push_back(std::move(row));
  }
  std::sort(all.worst.begin(), all.worst.end(),
            [](const CounterRow& a, const CounterRow& b) { return a.nanoseconds > b.nanoseconds; });
  if (all.worst.size() > kWorst) all.worst.resize(kWorst);
  return all;
}

void warn(const Totals& all) {
  if (interpreter_gone()) return;
  const py::gil_scoped_acquire gil;
  py::list worst;
  for (const CounterRow& row : all.worst) {
    const std::string name = row.overload.empty() ? row.op : row.op + "." + row.overload;
    worst.append(py::make_tuple(name, row.chip, row.device, row.calls, row.nanoseconds, row.reason));
  }
  try {
    py::module_::import("torch_fl.observe.storm").attr("warn")(all.call_share(), all.time_share(), worst);
  } catch (py::error_already_set& error) {
    error.restore();
    python_error raised;
    raised.persist();
    throw raised;
  }
}

void look_again_after(uint64_t calls) { g_next_look.store(calls, std::memory_order_relaxed); }

/// With thresholds that have just been changed.
void plan_next_look() {
  const bool off = g_thresholds.share.load() <= 0 || g_warned.load();
  look_again_after(off ? 0 : std::max(g_thresholds.calls.load(), g_host_calls.load() + 1));
}

}  // namespace

void look_for_storm() {
  if (g_next_look.exchange(0) == 0) return;  // another thread looks
  const Totals all = totals();
  const double share = g_thresholds.share.load();
  const bool enough = all.host_calls >= g_thresholds.calls.load() && all.host_ns >= g_thresholds.nanoseconds.load();
  if (!enough || std::max(all.call_share(), all.time_share()) <= share) {
    // Ever more seldom: a look costs as much as there are plans.
    return look_again_after(g_host_calls.load() * 5 / 4 + 1);
  }
  look_again_after(0);
  if (!g_warned.exchange(true)) warn(all);
}

void bind_storm(py::module_& m) {
  m.def("set_storm_share", [](double share) {
    g_thresholds.share.store(share);
    plan_next_look();
  });
  m.def("set_storm_minimum_calls", [](uint64_t calls) {
    g_thresholds.calls.store(calls);
    plan_next_look();
  });
  m.def("set_storm_minimum_ms", [](uint64_t milliseconds) {
    g_thresholds.nanoseconds.store(milliseconds * 1'000'000);
    plan_next_look();
  });
}

}  // namespace torch_fl::glue
