// SPDX-License-Identifier: Apache-2.0
// A recording that is over: its records by start, joined with device events, summed, and written to files. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "records.h"
#include "timeline.h"

namespace torch_fl::runtime {

/// A DeviceEvent, as small as a million of them have to be.
struct SmallEvent {
  int64_t start_ns, end_ns;
  uint64_t correlation, bytes;
  const char* name;
  uint32_t thread;
  int16_t stream;
  int8_t device;
  EventKind kind;
};
static_assert(sizeof(SmallEvent) <= 48);
SmallEvent small(const DeviceEvent& event);

/// What a recording needs besides its records. Texts are counted from 1: number 0 is none.
struct Context {
  std::vector<std::string> sites{""}, layers{""};
  std::deque<SmallEvent> events;
  uint64_t dropped_events = 0;
  std::vector<std::string> notes;  ///< what is not known, and why
  uint32_t start_thread = 0;       ///< autograd's number of the thread that began the recording
  int64_t start_sequence = 0;      ///< what autograd had numbered so far on it
};

/// By what calls are put together.
enum GroupBy : uint32_t {
  kByOp = 1u << 0,
  kByOverload = 1u << 1,
  kByChip = 1u << 2,
  kByDevice = 1u << 3,
  kByRoute = 1u << 4,
  kByReason = 1u << 5,
  kBySite = 1u << 6,
  kByLayer = 1u << 7,
  kByBackward = 1u << 8,
  kByShapes = 1u << 9
};

struct CallGroup {
  const Subject* subject;  ///< of one of the calls
  uint32_t site, layer;
  bool backward;
  uint64_t calls = 0, failed = 0, bytes = 0, syncs = 0, conversions = 0;
  int64_t host_ns = 0, self_host_ns = 0;
  double wait_ns = 0, copy_ns = 0, compute_ns = 0, device_ns = 0;
};

struct MemorySample {
  int64_t time_ns;
  int32_t device;
  uint64_t allocated_bytes;
};

class Recorded {
 public:
  Recorded(Records::Result result, Context context);

  size_t size() const { return order_.size(); }
  const Record& operator[](size_t i) const { return chunk_of(i).records[order_[i] % RecordChunk::kSize]; }
  uint64_t thread(size_t i) const { return chunk_of(i).thread; }
  const char* thread_name(size_t i) const { return chunk_of(i).thread_name; }
  int64_t self_host_ns(size_t i) const { return self_[i]; }
  const Subject& subject(const Record& record) const { return result_.subjects[record.subject]; }
  const std::string& site(uint32_t number) const { return text(context_.sites, number); }
  const std::string& layer(uint32_t number) const { return text(context_.layers, number); }
  const std::deque<SmallEvent>& events() const { return context_.events; }
  const std::vector<std::string>& notes() const { return context_.notes; }
  uint64_t dropped() const { return result_.dropped; }
  uint64_t dropped_events() const { return context_.dropped_events; }
  int64_t start_ns() const { return result_.start_ns; }
  int64_t end_ns() const { return result_.end_ns; }

  /// `by`: GroupBy bits.
  std::vector<CallGroup> groups(uint32_t by) const;
  /// By time; at most `points` for each device, the highest of each stretch; 0: all.
  std::vector<MemorySample> memory(size_t points) const;

  /// Throw Error(FL_INVALID_ARGUMENT) where the file cannot be written.
  void write_json_lines(const std::string& path) const;
  void write_chrome_trace(const std::string& path) const;

 private:
  static constexpr size_t kNowhere = static_cast<size_t>(-1);
  static const std::string& text(const std::vector<std::string>& texts, uint32_t number) {
    return number < texts.size() ? texts[number] : texts[0];
  }
  RecordChunk& chunk_of(size_t i) const { return *result_.chunks[order_[i] / RecordChunk::kSize].chunk; }
  Record& at(size_t i) { return chunk_of(i).records[order_[i] % RecordChunk::kSize]; }
  size_t find(uint64_t id) const;
  void sort();
  void merge_sites();
  void subtract_inner_calls();
  void add_device_times();
  void follow_backward();

  Records::Result result_;
  Context context_;
  std::vector<uint32_t> order_;  ///< by start: chunk * RecordChunk::kSize + position
  std::vector<int64_t> self_;
};

const char* kind_name(EventKind kind);

}  // namespace torch_fl::runtime
