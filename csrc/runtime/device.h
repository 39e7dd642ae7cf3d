// SPDX-License-Identifier: Apache-2.0
// Chips and devices: what was loaded, and the operations on one device. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator.h"
#include "error.h"
#include "modules.h"
#include "rules.h"
#include "torch_fl/fl_plugin.h"

namespace torch_fl::runtime {

class Device;

/// A loaded plugin. The api structs are host-sized copies of the plugin's own: fields that the plugin does not know are
/// zero. Immutable after loading; lives as long as the process.
struct Chip {
  std::string name, vendor, version, path;
  uint32_t abi_minor = 0;
  fl_device_api device_api{};
  fl_memory_api memory{};
  fl_stream_api stream{};
  bool has_streams = false;
  fl_compiler_api compiler{};
  bool has_compiler = false;
  std::vector<fl_kernel> kernels;   ///< host-sized copies of the rows
  std::vector<fl_kernel> portable;  ///< rows of the portable kernels, where it has a compiler; set once, after loading

  // From its descriptor, if it has one.
  std::string device_type;                                ///< the vendor's name for its devices ("npu"), or empty
  std::unordered_map<std::string, OpRules> rules;         ///< by operator, as in the rows of `kernels`
  std::vector<fl_kernel> overrides;                       ///< functions of the plugin, tried after the portable kernels
  std::unordered_map<std::string, OpFallback> fallbacks;  ///< by operator, of one overload or of all
  std::string policy;                                     ///< for leaving the chip; empty: the process's

  std::vector<std::unique_ptr<Device>> devices;

  fl_profiler_api profiler{};
  bool has_profiler = false;
};

class Device {
 public:
  Device(Chip& chip, int32_t local_index, int32_t index, const fl_device_properties& properties);
  ~Device();
  Device(const Device&) = delete;

  Chip& chip;
  const int32_t local_index;  ///< within its chip
  int32_t index;              ///< global: fl:<index>; settled once all chips are loaded; -1: hidden
  const fl_device_properties properties;
  const bool host_coherent;
  const bool unified;

  /// Opens the device on first use. Throws Error if that fails, if the device is lost, or after fork in the child.
  fl_device handle() {
    if (ready_.load(std::memory_order_acquire)) return handle_;
    return open();
  }
  bool opened() const { return opened_.load(std::memory_order_acquire); }
  /// Open and able to work: not lost, not closed at exit, not inherited through fork.
  bool usable() const { return ready_.load(std::memory_order_acquire); }

  /// Throws Error(status) with a message "<chip> device fl:<index>: <what> failed: <status name>: <plugin's message>".
  /// FL_DEVICE_LOST poisons the device: every later handle() throws until the process ends.
  void check(fl_status status, const char* what) {
    if (status != FL_OK) fail(status, what);
  }
  [[noreturn]] void fail(fl_status status, const char* what);
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // Streams. Ids are small: 0 is the default stream, others index a table that only grows.
  fl_stream stream(StreamId id);                ///< its plugin handle (null for the default stream)
  StreamId find_stream(fl_stream handle);       ///< -1: none that the host knows
  StreamId stream_from_pool(int32_t priority);  ///< round robin over 32 per priority class (negative / >= 0)
  StreamId new_stream(int32_t priority);
  StreamId external_stream(fl_stream handle);  ///< (already made by someone else)
  int32_t stream_priority(StreamId id);
  int32_t stream_count() const;  ///< ids 0 .. count-1 exist
  void synchronize_stream(StreamId id);
  bool query_stream(StreamId id);
  void synchronize();  ///< whole device

  // Events. Owned by the caller; null events never occur. Without a stream table they are trivially complete.
  fl_event event_create(bool timed);
  void event_destroy(fl_event event) noexcept;
  void event_record(fl_event event, StreamId stream);
  void event_wait(fl_event event, StreamId stream);
  void event_synchronize(fl_event event);
  bool event_query(fl_event event);
  int64_t event_elapsed_ns(fl_event start, fl_event end);

  // Memory movement. bytes == 0 is a no-op. Asynchronous with respect to the host where the chip is.
  void copy(StreamId stream, fl_address dst, fl_address src, uint64_t bytes, fl_copy_kind kind);
  void fill(StreamId stream, fl_address dst, const void* pattern, uint32_t pattern_bytes, uint64_t count);
  bool can_fill() const { return chip.memory.fill != nullptr; }
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes);

  Allocator& allocator() { return *allocator_; }
  PinnedPool& pinned() { return *pinned_; }
  Modules& modules() { return modules_; }

 private:
  friend class Registry;
  fl_device open();
  [[noreturn]] void refuse();  ///< why handle() gives none
  void close() noexcept;
  std::atomic<bool> ready_{false}, opened_{false}, lost_{false}, closed_{false};
  fl_device handle_ = nullptr;
  std::string lost_reason_;  ///< guarded by mutex_
  std::mutex mutex_;
  struct Streams;
  std::unique_ptr<Streams> streams_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<PinnedPool> pinned_;
  Modules modules_;
};

/// Copy between two devices. Uses copy_peer where the chip has it; otherwise through pinned host memory. Ordered after
/// the work so far on both streams; later work on both streams is ordered after it.
void copy_between(Device& dst_device, StreamId dst_stream, fl_address dst, Device& src_device, StreamId src_stream,
                  fl_address src, uint64_t bytes);

// ---- The calling thread's state --------------------------------------------------------------------------------
int32_t current_device() noexcept;
void set_current_device(int32_t index) noexcept;   ///< unchecked; see Registry::device for the checked one
StreamId current_stream(int32_t device) noexcept;  ///< of the calling thread; 0 unless set
void set_current_stream(int32_t device, StreamId stream) noexcept;

// ---- Loading ----------------------------------------------------------------------------------------------------
/// What became of one candidate file: kept for `list_plugins()` and doctor.
struct PluginReport {
  std::string path, source;  ///< where it was looked for: "TORCH_FL_PLUGIN_PATH", "built-in", ...
  bool loaded = false;
  std::string reason;  ///< when skipped: what was expected and found; when loaded: what of it does not work
  std::string chip;    ///< when loaded
};

struct Candidate {
  std::string path, source;
};

class HostedChip;     // chip_slots.h
struct LoadedPlugin;  // loader.h
struct Described;     // description.h

class Registry {
 public:
  static Registry& get();
  /// Loads the plugins at these paths, in order (a folder means every *.so in it, sorted by name), and appends their
  /// devices to the table. Never throws for a bad plugin: it is reported and skipped. A file already loaded (same
  /// device and inode) or a chip of a name already taken is skipped with that reason.
  void load(const std::vector<Candidate>& candidates);
  /// A chip of this process; `path` names it in reports. Never throws for a bad chip: it is reported and skipped.
  void load_hosted(std::unique_ptr<HostedChip> chip, const Candidate& candidate);
  /// The chip of a descriptor, whose file the candidate names. Never throws for a bad one: it is reported and skipped.
  void load_described(const Described& description, const Candidate& candidate);
  /// A candidate that got no further than this.
  void skip(const Candidate& candidate, const std::string& reason);
  const std::vector<PluginReport>& reports() const;
  /// After loading, before any device is used: fl:i becomes the device that was order[i]; others cannot be reached any
  /// more, and the reports of chips that lose all of theirs say `why`.
  void renumber(const std::vector<int32_t>& order, const std::string& why);
  int32_t device_count() const noexcept { return count_.load(std::memory_order_acquire); }
  /// Throws Error(FL_INVALID_ARGUMENT) "invalid device index 7: there are 2 fl devices (fl:0 to fl:1)".
  Device& device(int32_t index);
  /// Unchecked.
  Device& at(int32_t index) noexcept { return *table_[static_cast<size_t>(index)]; }
  const std::vector<std::unique_ptr<Chip>>& chips() const { return chips_; }
  /// Fork guard: called in the child (pthread_atfork). Every handle() then throws "cannot use fl devices in a forked
  /// process; use the spawn start method", if any device had been opened in the parent.
  bool in_bad_fork() const noexcept;
  /// At exit: synchronise and close devices that are open and not lost. Idempotent, never throws.
  void shutdown() noexcept;

 private:
  Registry();
  void load_file(const Candidate& candidate);
  template <typename Load>
  void report(const Candidate& candidate, Load&& load);
  void add_reported(LoadedPlugin plugin, PluginReport& report);
  void load_folder(const Candidate& candidate);
  void hide_chips(const std::string& why);
  void add(std::unique_ptr<Chip> chip, const std::vector<fl_device_properties>& devices);
  static void after_fork_in_child() noexcept;
  std::vector<std::unique_ptr<Chip>> chips_, hidden_;
  std::vector<PluginReport> reports_;
  std::set<std::pair<uint64_t, uint64_t>> loaded_files_;  ///< device and inode
  Device* table_[64] = {};
  std::atomic<int32_t> count_{0};
  std::mutex mutex_;
};

/// The services every plugin gets.
const fl_host& host_services();
/// Log sink and level; default: stderr, warnings and worse. `sink` null restores it.
void set_log_sink(void (*sink)(fl_log_level, const char*));
void log(fl_log_level level, const std::string& message);

}  // namespace torch_fl::runtime
