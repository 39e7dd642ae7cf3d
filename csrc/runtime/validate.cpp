// SPDX-License-Identifier: Apache-2.0
// Checks of everything a plugin declares, before anything of it is used. What passes is copied into structs of the
// host's size, in which fields that the plugin does not know are zero.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "internal.h"
#include "loader.h"

namespace torch_fl::runtime {
namespace {

constexpr size_t kMaxText = 255, kMaxName = 63;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr uint32_t kKnownKernelFlags = (FL_KERNEL_CHANNELS_LAST_ONLY << 1) - 1;

/// Asks the kernel whether memory can be read, once a page, so that a garbage pointer is a message and not a crash.
class Readable {
 public:
  bool operator()(const void* pointer, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    if (begin == 0 || begin + bytes < begin) return false;
    for (uintptr_t page = begin / kPage; page <= (begin + bytes - 1) / kPage; ++page) {
      if (!known_.count(page) && !probe(std::max(begin, page * kPage))) return false;
      known_.insert(page);
    }
    return true;
  }

 private:
  static constexpr uintptr_t kPage = 4096;
  static bool probe(uintptr_t address) {
    char byte;
    iovec local{&byte, 1}, remote{reinterpret_cast<void*>(address), 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || errno != EFAULT;
  }
  std::unordered_set<uintptr_t> known_;
};

bool is_utf8_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xC2 && lead < 0xE0 ? 2
                          : (lead & 0xF0) == 0xE0       ? 3
                          : lead >= 0xF0 && lead < 0xF5 ? 4
                                                        : 0;
    if (length == 0 || i + length > text.size() || lead < 0x20 || lead == 0x7F) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

bool is_identifier(std::string_view text, bool may_start_with_digit) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || (!may_start_with_digit && digit(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || digit(c); });
}

/// ns::name[.overload]
bool is_operator_name(std::string_view op) {
  const size_t colons = op.find("::");
  if (colons == std::string_view::npos || !is_identifier(op.substr(0, colons), false)) return false;
  const std::string_view rest = op.substr(colons + 2);
  const size_t dot = rest.find('.');
  if (!is_identifier(rest.substr(0, dot), false)) return false;
  return dot == std::string_view::npos || is_identifier(rest.substr(dot + 1), true);
}

bool is_chip_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), [](char c) {
    return is_identifier(std::string_view(&c, 1), true) || c == '-';
  });
}

class Validator {
 public:
  LoadedPlugin run(const fl_plugin* given);

 private:
  template <typename T>
  T copy(const T* given, uint32_t least, const std::string& what);
  template <typename T>
  bool copy_optional(const T* given, uint32_t least, const char* what, T& copied);
  std::string text(const char* given, size_t longest, const std::string& what);

  struct Function {
    const char* name;
    bool present;
  };
  static void require(const char* table, std::initializer_list<Function> functions);
  static void all_or_none(const char* table, std::initializer_list<Function> functions);

  void check_version(const fl_plugin* given);
  void read_device_table();
  void read_memory_table();
  void read_stream_table();
  void check_compiler();
  void check_profiler();
  void check_later_tables();
  void read_kernels();
  void read_kernel(uint32_t row, const fl_kernel* given);
  void read_devices();
  fl_device_properties read_properties(int32_t index);
  void check_properties(fl_device_properties& p, const std::string& what);

  Readable readable_;
  fl_plugin plugin_{};
  LoadedPlugin loaded_;
  std::unordered_set<std::string> ops_;
};

template <typename T>
T Validator::copy(const T* given, uint32_t least, const std::string& what) {
  if (given == nullptr) throw Refused(what + " is null, but every plugin must have it");
  if (reinterpret_cast<uintptr_t>(given) % alignof(T) != 0 || !readable_(given, sizeof given->struct_size)) {
    throw Refused(what + " is a pointer to no readable memory");
  }
  const uint32_t size = given->struct_size;
  if (size < least || size > kMaxStructSize) {
    throw Refused(what + ".struct_size is " + std::to_string(size) + ", but " + std::to_string(least) + " to " +
                  std::to_string(kMaxStructSize) + " was expected");
  }
  if (!readable_(given, size)) {
    throw Refused(what + " declares " + std::to_string(size) + " bytes, but its memory ends before that");
  }
  T copied{};
  std::memcpy(static_cast<void*>(&copied), given, std::min<size_t>(size, sizeof copied));
  copied.struct_size = std::min<uint32_t>(size, sizeof copied);
  return copied;
}

template <typename T>
bool Validator::copy_optional(const T* given, uint32_t least, const char* what, T& copied) {
  if (given == nullptr) return false;
  copied = copy(given, least, what);
  return true;
}

/// A NUL-terminated, printable text of at most `longest` bytes.
std::string Validator::text(const char* given, size_t longest, const std::string& what) {
  if (given == nullptr) throw Refused(what + " is null, but a text was expected");
  std::string copied;
  for (; copied.size() <= longest; copied.push_back(*given++)) {
    if (!readable_(given, 1)) throw Refused(what + " is a pointer to no readable memory");
    if (*given == '\0') {
      if (!is_utf8_text(copied)) throw Refused(what + " holds bytes that are no printable UTF-8 text");
      return copied;
    }
  }
  throw Refused(what + " has no end within " + std::to_string(longest) + " bytes");
}

void Validator::require(const char* table, std::initializer_list<Function> functions) {
  for (const Function& function : functions) {
    if (!function.present) {
      throw Refused(std::string("the function ") + table + "." + function.name +
                    " is null, but fl_plugin.h does not mark it optional");
    }
  }
}

void Validator::all_or_none(const char* table, std::initializer_list<Function> functions) {
  const auto present = [](const Function& f) { return f.present; };
  if (std::none_of(functions.begin(), functions.end(), present)) return;
  const auto missing = std::find_if_not(functions.begin(), functions.end(), present);
  if (missing == functions.end()) return;
  const auto found = std::find_if(functions.begin(), functions.end(), present);
  throw Refused(std::string("the table ") + table + " has " + found->name + " but not " + missing->name +
                ": expected both or neither");
}

#define FL_FUNCTION(table, name) {#name, (table).name != nullptr}

void Validator::check_version(const fl_plugin* given) {
  constexpr size_t kVersionBytes = offsetof(fl_plugin, abi_minor) + sizeof given->abi_minor;
  if (reinterpret_cast<uintptr_t>(given) % alignof(fl_plugin) != 0 || !readable_(given, kVersionBytes)) {
    throw Refused(FL_PLUGIN_ENTRY " returned a pointer to no readable memory");
  }
  // Before the size: another major may lay the rest out differently.
  if (given->struct_size >= kVersionBytes && given->abi_major != FL_ABI_MAJOR) {
    throw Refused("it was built for ABI " + std::to_string(given->abi_major) + "." + std::to_string(given->abi_minor) +
                  ", but this host speaks ABI " + std::to_string(FL_ABI_MAJOR) + "." + std::to_string(FL_ABI_MINOR) +
                  ": expected the major version " + std::to_string(FL_ABI_MAJOR) + ", found " +
                  std::to_string(given->abi_major) + "; rebuild the plugin with this host's fl_plugin.h");
  }
}

LoadedPlugin Validator::run(const fl_plugin* given) {
  check_version(given);
  plugin_ = copy(given, abi_1_0::kPlugin, "fl_plugin");
  loaded_.chip = std::make_unique<Chip>();
  Chip& chip = *loaded_.chip;
  chip.name = text(plugin_.name, kMaxText, "fl_plugin.name");
  if (!is_chip_name(chip.name)) {
    throw Refused("the chip's name is \"" + chip.name + "\", but 1 to 63 letters, digits, '_' and '-' were expected");
  }
  chip.vendor = text(plugin_.vendor, kMaxText, "fl_plugin.vendor");
  chip.version = text(plugin_.version, kMaxText, "fl_plugin.version");
  chip.abi_minor = plugin_.abi_minor;
  read_device_table();
  read_memory_table();
  read_stream_table();
  check_compiler();
  check_profiler();
  check_later_tables();
  read_kernels();
  read_devices();
  return std::move(loaded_);
}

void Validator::read_device_table() {
  fl_device_api& d = loaded_.chip->device_api;
  d = copy(plugin_.device, abi_1_0::kDeviceApi, "the table device");
  require("device",
          {FL_FUNCTION(d, count), FL_FUNCTION(d, properties), FL_FUNCTION(d, open), FL_FUNCTION(d, synchronize)});
}

void Validator::read_memory_table() {
  fl_memory_api& m = loaded_.chip->memory;
  m = copy(plugin_.memory, abi_1_0::kMemoryApi, "the table memory");
  require("memory", {FL_FUNCTION(m, alloc), FL_FUNCTION(m, free), FL_FUNCTION(m, copy)});
  all_or_none("memory", {FL_FUNCTION(m, host_alloc), FL_FUNCTION(m, host_free)});
  all_or_none("memory", {FL_FUNCTION(m, host_register), FL_FUNCTION(m, host_unregister)});
  all_or_none("memory", {FL_FUNCTION(m, map), FL_FUNCTION(m, unmap)});
}

void Validator::read_stream_table() {
  Chip& chip = *loaded_.chip;
  fl_stream_api& s = chip.stream;
  chip.has_streams = copy_optional(plugin_.stream, abi_1_0::kStreamApi, "the table stream", s);
  if (!chip.has_streams) return;
  require("stream",
          {FL_FUNCTION(s, create), FL_FUNCTION(s, destroy), FL_FUNCTION(s, synchronize), FL_FUNCTION(s, query),
           FL_FUNCTION(s, event_create), FL_FUNCTION(s, event_destroy), FL_FUNCTION(s, event_record),
           FL_FUNCTION(s, event_wait), FL_FUNCTION(s, event_synchronize), FL_FUNCTION(s, event_query)});
}

void Validator::check_compiler() {
  Chip& chip = *loaded_.chip;
  fl_compiler_api& c = chip.compiler;
  chip.has_compiler = copy_optional(plugin_.compiler, abi_1_0::kCompilerApi, "the table compiler", c);
  if (!chip.has_compiler) return;
  text(c.dialect, kMaxText, "compiler.dialect");
  require("compiler",
          {FL_FUNCTION(c, identity), FL_FUNCTION(c, compile), FL_FUNCTION(c, release), FL_FUNCTION(c, launch)});
  all_or_none("compiler", {FL_FUNCTION(c, save), FL_FUNCTION(c, load)});
}

void Validator::check_profiler() {
  Chip& chip = *loaded_.chip;
  fl_profiler_api& p = chip.profiler;
  chip.has_profiler = copy_optional(plugin_.profiler, abi_1_0::kProfilerApi, "the table profiler", p);
  if (!chip.has_profiler) return;
  require("profiler", {FL_FUNCTION(p, start), FL_FUNCTION(p, stop), FL_FUNCTION(p, set_correlation),
                       FL_FUNCTION(p, flush), FL_FUNCTION(p, clock)});
}

/// Tables that this host does not call yet are checked all the same, so that a mistake is seen early.
void Validator::check_later_tables() {
  fl_graph_api g{};
  if (copy_optional(plugin_.graph, abi_1_0::kGraphApi, "the table graph", g)) {
    require("graph", {FL_FUNCTION(g, begin), FL_FUNCTION(g, end), FL_FUNCTION(g, launch), FL_FUNCTION(g, destroy)});
    all_or_none("graph", {FL_FUNCTION(g, claim), FL_FUNCTION(g, build), FL_FUNCTION(g, run)});
  }
  fl_collectives_api c{};
  if (copy_optional(plugin_.collectives, abi_1_0::kCollectivesApi, "the table collectives", c)) {
    require("collectives", {FL_FUNCTION(c, make_id), FL_FUNCTION(c, init), FL_FUNCTION(c, destroy),
                            FL_FUNCTION(c, all_reduce), FL_FUNCTION(c, broadcast), FL_FUNCTION(c, all_gather),
                            FL_FUNCTION(c, reduce_scatter), FL_FUNCTION(c, send), FL_FUNCTION(c, recv)});
    all_or_none("collectives", {FL_FUNCTION(c, group_begin), FL_FUNCTION(c, group_end)});
  }
  fl_tuning_api t{};
  if (copy_optional(plugin_.tuning, abi_1_0::kTuningApi, "the table tuning", t)) {
    require("tuning", {FL_FUNCTION(t, candidates), FL_FUNCTION(t, choose)});
  }
}

#undef FL_FUNCTION

void Validator::read_kernels() {
  const uint32_t n = plugin_.n_kernels;
  if (n > kMaxKernels) {
    throw Refused("fl_plugin.n_kernels is " + std::to_string(n) + ", but at most " + std::to_string(kMaxKernels) +
                  " was expected");
  }
  if (n == 0) return;
  if (!readable_(plugin_.kernels, n * sizeof plugin_.kernels[0])) {
    throw Refused("fl_plugin.kernels is a pointer to less readable memory than its " + std::to_string(n) +
                  " rows need");
  }
  loaded_.chip->kernels.reserve(n);
  for (uint32_t row = 0; row < n; ++row) read_kernel(row, plugin_.kernels[row]);
}

void Validator::read_kernel(uint32_t row, const fl_kernel* given) {
  const std::string where = "row " + std::to_string(row) + " of the kernel table";
  fl_kernel kernel = copy(given, abi_1_0::kKernel, where);
  const std::string op = text(kernel.op, kMaxText, where + ", op");
  if (!is_operator_name(op)) {
    throw Refused(where + " names the operator \"" + op + "\", but ns::name or ns::name.overload was expected");
  }
  if (kernel.run == nullptr) throw Refused(where + " (" + op + ") has no run function");
  if (!ops_.insert(op).second) throw Refused(where + " names the operator " + op + " for the second time");
  const uint32_t unknown = kernel.flags & ~kKnownKernelFlags;
  if (unknown != 0 && plugin_.abi_minor <= FL_ABI_MINOR) {
    throw Refused(where + " (" + op + ") has flags that ABI " + std::to_string(FL_ABI_MAJOR) + "." +
                  std::to_string(FL_ABI_MINOR) + " does not know: " + std::to_string(unknown));
  }
  if (unknown != 0) {
    return log(FL_LOG_INFO, "chip " + loaded_.chip->name + ": the kernel of " + op +
                                " asks for what only a newer host can do; it is left out");
  }
  loaded_.chip->kernels.push_back(kernel);
}

void Validator::read_devices() {
  int32_t count = -1;
  take_plugin_message();
  const fl_status status = loaded_.chip->device_api.count(&count);
  if (status != FL_OK) {
    throw Refused(std::string("counting its devices failed: ") + status_name(status) + ": " + take_plugin_message());
  }
  if (count < 0 || count > kMaxDevices) {
    throw Refused("it claims to have " + std::to_string(count) + " devices, but 0 to " + std::to_string(kMaxDevices) +
                  " was expected");
  }
  loaded_.note = take_plugin_message();
  if (count == 0) throw Refused("it works, but found no device of the chip " + loaded_.chip->name);
  for (int32_t i = 0; i < count; ++i) loaded_.devices.push_back(read_properties(i));
}

fl_device_properties Validator::read_properties(int32_t index) {
  // A plugin that ignores struct_size would write beyond: that lands in the guard.
  struct {
    fl_device_properties properties;
    unsigned char guard[4096];
  } space{};
  space.properties.struct_size = sizeof space.properties;
  const std::string what = "the properties of device " + std::to_string(index);
  const fl_status status = loaded_.chip->device_api.properties(index, &space.properties);
  if (status != FL_OK) {
    throw Refused("reading " + what + " failed: " + status_name(status) + ": " + take_plugin_message());
  }
  if (std::any_of(std::begin(space.guard), std::end(space.guard), [](unsigned char c) { return c != 0; })) {
    throw Refused(what + " were written beyond the struct_size of " + std::to_string(sizeof space.properties) +
                  " bytes that the host had set");
  }
  space.properties.struct_size = sizeof space.properties;
  check_properties(space.properties, what);
  char* name = space.properties.name;
  if (*name == '\0') {
    std::snprintf(name, sizeof space.properties.name, "%s %d", loaded_.chip->name.c_str(), static_cast<int>(index));
  }
  return space.properties;
}

void Validator::check_properties(fl_device_properties& p, const std::string& what) {
  const auto check_text = [&](const char* text, size_t capacity, const char* field) {
    const size_t length = strnlen(text, capacity);
    if (length == capacity) throw Refused(what + ": " + field + " has no terminating NUL");
    if (!is_utf8_text({text, length})) throw Refused(what + ": " + field + " is no printable UTF-8 text");
  };
  const auto check_range = [&](uint64_t value, uint64_t most, const char* field) {
    if (value > most) {
      throw Refused(what + ": " + field + " is " + std::to_string(value) + ", but at most " + std::to_string(most) +
                    " was expected");
    }
  };
  check_text(p.name, sizeof p.name, "name");
  check_text(p.driver_version, sizeof p.driver_version, "driver_version");
  if (p.total_memory == 0) throw Refused(what + ": total_memory is 0");
  check_range(p.total_memory, uint64_t{1} << 60, "total_memory");
  check_range(p.max_allocation, uint64_t{1} << 60, "max_allocation");
  check_range(p.alignment, kMaxAlignment, "alignment");
  check_range(p.size_granularity, kMaxAlignment, "size_granularity");
  check_range(p.padding, kMaxAlignment, "padding");
  if (p.alignment != 0 && !std::has_single_bit(p.alignment)) {
    throw Refused(what + ": alignment is " + std::to_string(p.alignment) + ", but a power of two was expected");
  }
  const Chip& chip = *loaded_.chip;
  const auto drop = [&](uint32_t capability, bool possible, const char* needs) {
    if ((p.capabilities & capability) == 0 || possible) return;
    p.capabilities &= ~capability;
    log(FL_LOG_WARNING,
        "chip " + chip.name + ": " + what + " claim a capability that needs " + needs + ", which is null; ignored");
  };
  drop(FL_CAP_PEER_COPY, chip.memory.copy_peer != nullptr, "memory.copy_peer");
  drop(FL_CAP_TIMED_EVENTS, chip.stream.event_elapsed != nullptr, "stream.event_elapsed");
}

}  // namespace

LoadedPlugin validate_plugin(const fl_plugin* plugin) { return Validator().run(plugin); }

}  // namespace torch_fl::runtime
