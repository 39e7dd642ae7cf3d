// SPDX-License-Identifier: Apache-2.0
// Modules: shared objects from the system's C compiler, and the launches of their entries.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "compiler.h"

namespace simchip {
namespace {

constexpr char kPrefix[] = "module:";
constexpr size_t kPrefixLength = sizeof kPrefix - 1;
constexpr char kMagic[8] = {'S', 'I', 'M', 'M', 'O', 'D', '0', '1'};
constexpr double kOperationsPerNs = 20;  // of a core, in the units of simParallelRun()

// In front of a saved module's shared object.
struct Header {
  char magic[8];
  uint64_t bytes;     // of the shared object
  uint64_t checksum;  // of the rest of the header, then the shared object
  uint64_t cpu;
  char identity[480];  // for people
};

struct Entry {
  const char* name;  // with the prefix; lives as long as the process
  simEntry function;
  Entry* next;
  std::atomic<float> item_ns{0};  // what a work item took the last time; 0: not yet known
};

uint64_t checksum(const Header& header, std::string_view object) {
  const std::string_view head(reinterpret_cast<const char*>(&header.cpu), sizeof header - offsetof(Header, cpu));
  return hash(object, hash(head, header.bytes));
}

}  // namespace
}  // namespace simchip

using namespace simchip;

struct simModuleState {
  ~simModuleState() {
    for (Entry* entry = entries.load(); entry;) delete std::exchange(entry, entry->next);
    if (library) dlclose(library);
  }
  void* library = nullptr;
  std::string object;  // the shared object's bytes, for simModuleSave()
  std::string identity;
  std::mutex adding;
  std::atomic<Entry*> entries{nullptr};  // grows at its head only: readers take no lock
};

namespace simchip {
namespace {

// A launch's name must outlive its module.
const char* interned(const char* entry) {
  static std::mutex& mutex = *new std::mutex();
  static std::set<std::string>& names = *new std::set<std::string>();
  std::lock_guard<std::mutex> lock(mutex);
  return names.insert(std::string(kPrefix) + entry).first->c_str();
}

// dlsym() also finds what the C library exports.
simEntry own_symbol(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  Dl_info info;
  link_map* map = nullptr;
  if (!symbol || !dladdr(symbol, &info) || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  return reinterpret_cast<uintptr_t>(info.dli_fbase) == map->l_addr ? reinterpret_cast<simEntry>(symbol) : nullptr;
}

Entry* known_entry(simModule module, const char* name) {
  for (Entry* entry = module->entries.load(std::memory_order_acquire); entry; entry = entry->next)
    if (std::strcmp(entry->name + kPrefixLength, name) == 0) return entry;
  return nullptr;
}

Entry* find_entry(simModule module, const char* name) {
  if (Entry* entry = known_entry(module, name)) return entry;
  std::lock_guard<std::mutex> lock(module->adding);
  if (Entry* entry = known_entry(module, name)) return entry;
  const simEntry function = own_symbol(module->library, name);
  if (!function) return nullptr;
  auto* entry = new Entry{interned(name), function, module->entries.load()};
  module->entries.store(entry, std::memory_order_release);
  return entry;
}

// A launch's packet: this, the pointers to its arguments' values, the addresses, and all other values.
struct Work {
  Entry* entry;
  uint64_t range[3];
  uint32_t n_args;
  uint32_t n_addresses;
  void** args() { return reinterpret_cast<void**>(this + 1); }
  uint64_t* values() { return reinterpret_cast<uint64_t*>(args() + n_args); }
};

uint64_t words_of(uint32_t bytes) { return (bytes + 7u) / 8u; }

struct Layout {
  uint32_t n_addresses = 0;
  uint64_t words = 0;  // of values, addresses included
  size_t packet_bytes(uint32_t n_args) const { return sizeof(Work) + n_args * sizeof(void*) + words * 8; }
};

simResult lay_out(const char* entry, uint32_t n_args, const void* const* args, const uint32_t* sizes, Layout* layout) {
  if (n_args > SIM_MAX_ARGUMENTS || (n_args && (!args || !sizes)))
    return fail(SIM_ERROR_INVALID_VALUE, "%s: %u arguments, of which args and sizes tell; expected 0 to %d", entry,
                n_args, SIM_MAX_ARGUMENTS);
  for (uint32_t i = 0; i < n_args; ++i) {
    if (!args[i] || sizes[i] > SIM_MAX_ARGUMENT_BYTES)
      return fail(SIM_ERROR_INVALID_VALUE, "%s: argument %u is null or has %u bytes; expected at most %d", entry, i,
                  sizes[i], SIM_MAX_ARGUMENT_BYTES);
    const bool address = sizes[i] == SIM_ARGUMENT_ADDRESS;
    layout->n_addresses += address;
    layout->words += address ? 1 : words_of(sizes[i]);
  }
  return SIM_SUCCESS;
}

void fill(Work& work, const void* const* args, const uint32_t* sizes) {
  uint64_t* address = work.values();
  uint64_t* value = address + work.n_addresses;
  for (uint32_t i = 0; i < work.n_args; ++i) {
    if (sizes[i] == SIM_ARGUMENT_ADDRESS) {
      std::memcpy(address, args[i], sizeof *address);
      work.args()[i] = address++;
    } else {
      std::memcpy(value, args[i], sizes[i]);
      work.args()[i] = value;
      value += words_of(sizes[i]);
    }
  }
}

void translate(simDevice device, Work& work) {
  uint64_t* addresses = work.values();
  for (uint32_t i = 0; i < work.n_addresses; ++i) {
    if (device->checked && addresses[i]) simCheckRange(device, addresses[i], 1, work.entry->name);
    addresses[i] = reinterpret_cast<uintptr_t>(simTranslate(device, addresses[i]));
  }
}

struct Boxes {
  Work* work;
  int dimension;
  int64_t count;
};

void run_box(const void* memory, int64_t i) {
  const auto& boxes = *static_cast<const Boxes*>(memory);
  const uint64_t* range = boxes.work->range;
  uint64_t begin[3] = {0, 0, 0}, end[3] = {range[0], range[1], range[2]};
  // The first boxes take one item more each until the rest is spread.
  const auto count = static_cast<uint64_t>(boxes.count), k = static_cast<uint64_t>(i);
  const uint64_t each = range[boxes.dimension] / count, rest = range[boxes.dimension] % count;
  begin[boxes.dimension] = k * each + std::min(k, rest);
  end[boxes.dimension] = begin[boxes.dimension] + each + (k < rest ? 1 : 0);
  boxes.work->entry->function(boxes.work->args(), begin, end);
}

simResult run_module(simDevice device, void* packet) {
  auto& work = *static_cast<Work*>(packet);
  translate(device, work);
  int dimension = 2;
  while (dimension > 0 && work.range[dimension] == 1) --dimension;
  Boxes boxes{&work, dimension, 1};
  if (work.range[dimension] == 1) return run_box(&boxes, 0), SIM_SUCCESS;
  // How much an item does is the source's secret; but it tends to be what it was the last time.
  Entry& entry = *work.entry;
  const double items =
      static_cast<double>(work.range[0]) * static_cast<double>(work.range[1]) * static_cast<double>(work.range[2]);
  const double operations = entry.item_ns.load(std::memory_order_relaxed) * items * kOperationsPerNs;
  const int32_t width = simParallelWidth(operations);
  if (width > 1) boxes.count = static_cast<int64_t>(std::min<uint64_t>(work.range[dimension], 2u * width));
  const int64_t start = now_ns();
  const int32_t threads = simParallelRun(boxes.count, operations, run_box, &boxes);
  entry.item_ns.store(static_cast<float>(static_cast<double>((now_ns() - start) * threads) / items),
                      std::memory_order_relaxed);
  return SIM_SUCCESS;
}

simResult open_object(const std::string& path, simModule module, simResult otherwise) {
  module->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module->library) return SIM_SUCCESS;
  return fail(otherwise, "the module cannot be loaded: %s", dlerror());
}

simResult check_binary(const Header& header, std::string_view object) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(SIM_ERROR_BINARY, "the bytes are no module of this version of simchip");
  if (header.bytes != object.size() || header.checksum != checksum(header, object))
    return fail(SIM_ERROR_BINARY,
                "the module is damaged: %llu bytes follow its head, which speaks of %llu; checksum %s",
                static_cast<unsigned long long>(object.size()), static_cast<unsigned long long>(header.bytes),
                header.bytes == object.size() ? "wrong" : "not looked at");
  if (header.cpu != cpu().features)
    return fail(SIM_ERROR_BINARY, "the module is for another CPU: made by \"%.*s\", and this is %s",
                static_cast<int>(sizeof header.identity), header.identity, cpu().name.c_str());
  return SIM_SUCCESS;
}

}  // namespace
}  // namespace simchip

simResult simCompilerIdentity(char* text, uint64_t capacity) {
  std::string identity;
  if (const simResult result = compiler_identity(&identity)) return result;
  if (!text || capacity <= identity.size())
    return fail(SIM_ERROR_INVALID_VALUE, "simCompilerIdentity: room for %llu bytes, but %zu are needed",
                static_cast<unsigned long long>(text ? capacity : 0), identity.size() + 1);
  std::memcpy(text, identity.c_str(), identity.size() + 1);
  return SIM_SUCCESS;
}

simResult simModuleCompile(simDevice device, const char* source, const char* const* options, uint32_t n_options,
                           simModule* module) {
  SIM_ENTER(device);
  if (!source || !module || (n_options && !options))
    return fail(SIM_ERROR_INVALID_VALUE, "simModuleCompile: source, options or module is null");
  if (as_device(device).lost.load()) return as_device(device).check();
  auto made = std::make_unique<simModuleState>();
  if (const simResult result = compiler_identity(&made->identity)) return result;
  const TemporaryFolder folder;
  const std::string object = folder.file("module.so");
  if (const simResult result = compile_source(folder, source, {options, options + n_options}, object)) return result;
  made->object = read_file(object, SIZE_MAX);
  if (const simResult result = open_object(object, made.get(), SIM_ERROR_COMPILER)) return result;
  *module = made.release();
  return SIM_SUCCESS;
}

simResult simModuleSave(simModule module, void* binary, uint64_t* bytes) {
  if (!module || !bytes) return fail(SIM_ERROR_INVALID_VALUE, "simModuleSave: module or bytes is null");
  const uint64_t size = sizeof(Header) + module->object.size();
  const uint64_t room = std::exchange(*bytes, size);
  if (!binary) return SIM_SUCCESS;
  if (room < size)
    return fail(SIM_ERROR_INVALID_VALUE, "simModuleSave: room for %llu bytes, but %llu are needed",
                static_cast<unsigned long long>(room), static_cast<unsigned long long>(size));
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.bytes = module->object.size();
  header.cpu = cpu().features;
  std::snprintf(header.identity, sizeof header.identity, "%s", module->identity.c_str());
  header.checksum = checksum(header, module->object);
  std::memcpy(binary, &header, sizeof header);
  std::memcpy(static_cast<char*>(binary) + sizeof header, module->object.data(), module->object.size());
  return SIM_SUCCESS;
}

simResult simModuleLoad(simDevice device, const void* binary, uint64_t bytes, simModule* module) {
  SIM_ENTER(device);
  if (!binary || !module) return fail(SIM_ERROR_INVALID_VALUE, "simModuleLoad: binary or module is null");
  if (as_device(device).lost.load()) return as_device(device).check();
  Header header;
  if (bytes < sizeof header) return fail(SIM_ERROR_BINARY, "%llu bytes are no module", (unsigned long long)bytes);
  std::memcpy(&header, binary, sizeof header);
  const std::string_view object(static_cast<const char*>(binary) + sizeof header, bytes - sizeof header);
  if (const simResult result = check_binary(header, object)) return result;
  auto made = std::make_unique<simModuleState>();
  made->object = object;
  made->identity.assign(header.identity, strnlen(header.identity, sizeof header.identity));
  const TemporaryFolder folder;
  const std::string path = folder.file("module.so");
  if (!folder.exists() || !write_file(path, object))
    return fail(SIM_ERROR_COMPILER, "cannot write to the temporary folder %s", folder.path().c_str());
  if (const simResult result = open_object(path, made.get(), SIM_ERROR_BINARY)) return result;
  *module = made.release();
  return SIM_SUCCESS;
}

simResult simModuleRelease(simModule module) {
  if (!module) return fail(SIM_ERROR_INVALID_VALUE, "simModuleRelease: module is null");
  delete module;
  return SIM_SUCCESS;
}

simResult simModuleLaunch(simDevice device, simStream stream, simModule module, const char* entry,
                          const uint64_t range[3], uint32_t n_args, const void* const* args, const uint32_t* sizes) {
  SIM_ENTER(device);
  if (!module || !entry || !range)
    return fail(SIM_ERROR_INVALID_VALUE, "simModuleLaunch: module, entry or range is null");
  Entry* found = find_entry(module, entry);
  if (!found) return fail(SIM_ERROR_INVALID_VALUE, "the module has no entry \"%s\"", entry);
  Layout layout;
  if (const simResult result = lay_out(found->name, n_args, args, sizes, &layout)) return result;
  if (range[0] == 0 || range[1] == 0 || range[2] == 0) return as_device(device).check();
  const size_t bytes = layout.packet_bytes(n_args);
  const bool queued = (simMode(device) & SIM_MODE_QUEUED) != 0;
  alignas(16) char local[1024];
  std::unique_ptr<void, decltype(&std::free)> large(nullptr, std::free);
  void* packet = local;
  if (queued)
    packet = simPacketCreate(bytes);
  else if (bytes > sizeof local)
    large.reset(packet = std::malloc(bytes));
  if (!packet) return fail(SIM_ERROR_OUT_OF_MEMORY, "%s: the host has no memory for a packet", found->name);
  auto* work = new (packet) Work{found, {range[0], range[1], range[2]}, n_args, layout.n_addresses};
  fill(*work, args, sizes);
  return queued ? simPacketSubmit(device, stream, found->name, run_module, packet)
                : launch_inline(as_device(device), stream, found->name, run_module, packet);
}
