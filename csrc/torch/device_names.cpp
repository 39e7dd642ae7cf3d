// SPDX-License-Identifier: Apache-2.0
#include "device_names.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <mutex>
#include <string_view>

#include "runtime/device.h"

namespace torch_fl::glue {
namespace {

// ---- What a name means ----
struct Name {
  std::string name;
  std::vector<int32_t> devices;
};
using Names = std::vector<Name>;

// Readers take no lock, so a table that was replaced is kept for ever: there are few.
std::atomic<const Names*> g_names{nullptr};

int32_t only_device(const Name& name) {
  const int32_t current = runtime::current_device();
  const bool ours = std::find(name.devices.begin(), name.devices.end(), current) != name.devices.end();
  return ours ? current : name.devices.front();
}

// PyTorch's own form: digits without leading zeros.
bool parse_index(std::string_view text, int32_t* index) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *index);
  return error == std::errc() && end == text.data() + text.size() && *index >= 0;
}

c10::Device meant_by(const Name& name, const std::string& text) {
  // All there are: as with PyTorch's own names, no index means whichever is current when it is used.
  const bool all = static_cast<int32_t>(name.devices.size()) == runtime::Registry::get().device_count();
  if (text.size() == name.name.size()) {
    return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(all ? -1 : only_device(name))};
  }
  int32_t index = 0;
  TORCH_CHECK(parse_index(std::string_view(text).substr(name.name.size() + 1), &index), "Invalid device string: '",
              text, "': expected ", name.name, " or ", name.name, ":<index>");
  TORCH_CHECK(
      static_cast<size_t>(index) < name.devices.size(), "invalid device index ", index, " of '", text, "': ",
      name.devices.size() == 1 ? "there is 1 device" : "there are " + std::to_string(name.devices.size()) + " devices",
      " of that name (the fl devices of the chips whose descriptor says device_type: ", name.name, ")");
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(name.devices[static_cast<size_t>(index)])};
}

// Stands in for c10::Device::Device(const std::string&).
void read_device(c10::Device* self, const std::string& text) {
  if (const Names* names = g_names.load(std::memory_order_acquire)) {
    const std::string_view type = std::string_view(text).substr(0, text.find(':'));
    for (const Name& name : *names) {
      if (name.name == type) {
        new (self) c10::Device(meant_by(name, text));
        return;
      }
    }
  }
  new (self) c10::Device(text);
}

// ---- Where PyTorch reads names ----
constexpr const char* kConstructor = "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  struct Table {
    const ElfW(Rela) * rows = nullptr;
    size_t count = 0;
  } plt, rela;
};

// The dynamic linker relocated these addresses, on the systems with glibc that PyTorch's wheels are for.
Dynamic read_dynamic(const dl_phdr_info& library) {
  Dynamic found;
  size_t plt_bytes = 0, rela_bytes = 0;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) found.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) found.strings = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_JMPREL) found.plt.rows = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_PLTRELSZ) plt_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) found.rela.rows = reinterpret_cast<const ElfW(Rela)*>(address);
      if (entry->d_tag == DT_RELASZ) rela_bytes = entry->d_un.d_val;
    }
  }
  found.plt.count = plt_bytes / sizeof(ElfW(Rela));
  found.rela.count = rela_bytes / sizeof(ElfW(Rela));
  return found;
}

bool in_relro(const dl_phdr_info& library, ElfW(Addr) slot) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = library.dlpi_phdr[i];
    if (segment.p_type != PT_GNU_RELRO) continue;
    const ElfW(Addr) begin = library.dlpi_addr + segment.p_vaddr;
    if (slot >= begin && slot < begin + segment.p_memsz) return true;
  }
  return false;
}

bool redirect_slot(const dl_phdr_info& library, ElfW(Addr) slot) {
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  void* begin = reinterpret_cast<void*>(slot / page * page);
  const bool read_only = in_relro(library, slot);
  if (read_only && mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
  auto* target = reinterpret_cast<void (**)(c10::Device*, const std::string&)>(slot);
  __atomic_store_n(target, &read_device, __ATOMIC_RELEASE);
  if (read_only) mprotect(begin, page, PROT_READ);
  return true;
}

unsigned symbol_of(const ElfW(Rela) & row) {
  return sizeof(void*) == 8 ? static_cast<unsigned>(ELF64_R_SYM(row.r_info))
                            : static_cast<unsigned>(ELF32_R_SYM(row.r_info));
}

int redirect_library(const dl_phdr_info& library) {
  const Dynamic dynamic = read_dynamic(library);
  if (dynamic.symbols == nullptr || dynamic.strings == nullptr) return 0;
  int redirected = 0;
  for (const Dynamic::Table& table : {dynamic.plt, dynamic.rela}) {
    for (size_t i = 0; table.rows != nullptr && i < table.count; ++i) {
      const unsigned symbol = symbol_of(table.rows[i]);
      if (symbol == 0 || std::string_view(dynamic.strings + dynamic.symbols[symbol].st_name) != kConstructor) continue;
      redirected += redirect_slot(library, library.dlpi_addr + table.rows[i].r_offset) ? 1 : 0;
    }
  }
  return redirected;
}

bool is_pytorch(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.rfind("libtorch_python.so", 0) == 0 || file.rfind("libtorch_cpu.so", 0) == 0;
}

/// Redirects the calls of c10::Device's constructor from text in PyTorch's own libraries to read_device(). This is the
/// one place that changes something of PyTorch's: it has no hook for what a device's name means, and the constructor is
/// where all of its code, Python's argument parser included, reads one. Done once; returns the number of libraries.
int redirect_device_names() {
  static const int redirected = [] {
    int libraries = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* count) {
          if (library->dlpi_name != nullptr && is_pytorch(library->dlpi_name) && redirect_library(*library) > 0) {
            ++*static_cast<int*>(count);
          }
          return 0;
        },
        &libraries);
    return libraries;
  }();
  return redirected;
}

}  // namespace

int name_devices(const std::string& name, const std::vector<int32_t>& devices) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const Names* old = g_names.load(std::memory_order_relaxed);
  auto names = std::make_unique<Names>(old == nullptr ? Names{} : *old);
  std::erase_if(*names, [&](const Name& n) { return n.name == name; });
  if (!devices.empty()) names->push_back({name, devices});
  g_names.store(names.release(), std::memory_order_release);
  return redirect_device_names();
}

}  // namespace torch_fl::glue
