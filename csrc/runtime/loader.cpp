// SPDX-License-Identifier: Apache-2.0
// Loading the file of one plugin: what it is, before the dynamic linker sees it; then its entry point.
#include "loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "internal.h"

namespace torch_fl::runtime {
namespace {

constexpr size_t kMaxProgramHeaders = 4096;

std::string machine_name(unsigned machine) {
  switch (machine) {
    case EM_386:
      return "x86 (32 bits)";
    case EM_X86_64:
      return "x86-64";
    case EM_ARM:
      return "ARM (32 bits)";
    case EM_AARCH64:
      return "AArch64";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "PowerPC64";
    case EM_S390:
      return "S/390";
    case EM_LOONGARCH:
      return "LoongArch";
    default:
      return "machine number " + std::to_string(machine);
  }
}

std::string describe_start(const std::string& start) {
  if (start.empty()) return "an empty file";
  const bool text = std::all_of(start.begin(), start.end(), [](char c) {
    return std::isprint(static_cast<unsigned char>(c)) != 0 || std::isspace(static_cast<unsigned char>(c)) != 0;
  });
  if (text) return "a text file that starts with \"" + start.substr(0, start.find_first_of("\r\n")) + "\"";
  char hex[8];
  std::string bytes = "a file that starts with the bytes";
  for (size_t i = 0; i < start.size() && i < 4; ++i) {
    std::snprintf(hex, sizeof hex, " %02x", static_cast<unsigned char>(start[i]));
    bytes += hex;
  }
  return bytes;
}

/// The part of the ELF header whose layout is the same for every class.
struct ElfStart {
  unsigned char ident[EI_NIDENT];
  uint16_t type, machine;
};

/// What the running process is made of, so that no list of architectures is needed.
const ElfStart& own_elf() {
  static const ElfStart own = [] {
    ElfStart start{};
    std::ifstream("/proc/self/exe", std::ios::binary).read(reinterpret_cast<char*>(&start), sizeof start);
    return start;
  }();
  return own;
}

void check_architecture(const ElfStart& found) {
  const ElfStart& own = own_elf();
  if (own.ident[EI_CLASS] == 0) return;  // unknown: the dynamic linker will tell
  if (found.ident[EI_CLASS] != own.ident[EI_CLASS]) {
    const auto bits = [](const ElfStart& elf) { return elf.ident[EI_CLASS] == ELFCLASS64 ? "64" : "32"; };
    throw Refused(std::string("expected a library of ") + bits(own) + " bits, found one of " + bits(found) + " bits");
  }
  if (found.ident[EI_DATA] != own.ident[EI_DATA]) {
    throw Refused("expected a library with the byte order of this machine, found one with the other");
  }
  if (found.machine != own.machine) {
    throw Refused("expected a library for " + machine_name(own.machine) + ", found one for " +
                  machine_name(found.machine));
  }
  if (found.type != ET_DYN)
    throw Refused("expected a shared library, found another kind of ELF file (type " + std::to_string(found.type) +
                  ")");
}

/// A file that was cut short would bring the process down with SIGBUS when the dynamic linker touches what is missing.
void check_complete(std::ifstream& file, uint64_t file_size) {
  ElfW(Ehdr) header;
  file.clear();
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) {
    throw Refused("the file is cut short: it ends within its ELF header, after " + std::to_string(file_size) +
                  " bytes");
  }
  if (header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum == 0 || header.e_phnum > kMaxProgramHeaders) {
    throw Refused("the file's ELF header is damaged: it declares " + std::to_string(header.e_phnum) +
                  " program headers of " + std::to_string(header.e_phentsize) + " bytes");
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const bool read = static_cast<bool>(file.read(reinterpret_cast<char*>(&segment), sizeof segment));
    if (!read || segment.p_offset > file_size || segment.p_filesz > file_size - segment.p_offset) {
      throw Refused("the file is cut short: it has " + std::to_string(file_size) +
                    " bytes, but its ELF program headers reach beyond");
    }
  }
}

void check_file(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) throw Refused(std::string("cannot be opened: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Refused("expected a regular file, found something else");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Refused(std::string("cannot be read: ") + std::strerror(errno));
  std::string start(32, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  if (start.compare(0, SELFMAG, ELFMAG) != 0) {
    throw Refused("expected a shared library (ELF), found " + describe_start(start));
  }
  if (start.size() < sizeof(ElfStart)) throw Refused("the file is cut short: it ends within its ELF header");
  ElfStart elf;
  std::memcpy(&elf, start.data(), sizeof elf);
  check_architecture(elf);
  check_complete(file, static_cast<uint64_t>(status.st_size));
}

/// dlopen runs the library's constructors, which may throw. It is declared not to, so the compiler would drop the
/// handler around a direct call.
void* call_dlopen(const std::string& name) {
  void* (*volatile open)(const char*, int) = &dlopen;
  void* library = open(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    throw Refused(std::string("the dynamic linker refused it: ") + (error != nullptr ? error : "no reason given"));
  }
  return library;
}

/// `what` calls into the library, whose exceptions become Refused.
template <typename Function>
auto without_exceptions(const char* what, const char* advice, Function&& function) {
  try {
    return function();
  } catch (const Refused&) {
    throw;
  } catch (const std::exception& error) {
    throw Refused(std::string(what) + " threw a C++ exception: " + error.what() + advice);
  } catch (...) {
    throw Refused(std::string(what) + " threw a C++ exception of an unknown type" + advice);
  }
}

// An exception that leaves dlopen leaves the dynamic linker's lock with this thread.
constexpr char kRemoveIt[] =
    "; remove this file: until then other threads of this process may hang when they load libraries";

void* open_file(const std::string& path) {
  check_file(path);
  // Without a slash dlopen searches the system's folders.
  const std::string name = path.find('/') == std::string::npos ? "./" + path : path;
  return without_exceptions("loading it", kRemoveIt, [&] { return call_dlopen(name); });
}

const fl_plugin* call_entry(void* library) {
  void* symbol = dlsym(library, FL_PLUGIN_ENTRY);
  if (symbol == nullptr) {
    throw Refused("it is no Torch-FL plugin: expected an exported function " FL_PLUGIN_ENTRY ", found none");
  }
  take_plugin_message();
  const fl_plugin* plugin = reinterpret_cast<fl_plugin_get_fn>(symbol)(&host_services());
  if (plugin != nullptr) return plugin;
  const std::string said = take_plugin_message();
  throw Refused(FL_PLUGIN_ENTRY " returned null: " + (said.empty() ? "the plugin gave no reason" : said));
}

}  // namespace

void* open_library(const std::string& path_or_name) {
  if (path_or_name.find('/') != std::string::npos) return open_file(path_or_name);
  return without_exceptions("loading it", kRemoveIt, [&] { return call_dlopen(path_or_name); });
}

bool is_plugin(void* library) { return dlsym(library, FL_PLUGIN_ENTRY) != nullptr; }

LoadedPlugin plugin_of(void* library, const std::string& path) {
  const fl_plugin* plugin = without_exceptions(FL_PLUGIN_ENTRY, "", [&] { return call_entry(library); });
  LoadedPlugin loaded = without_exceptions("one of its functions", "", [&] { return validate_plugin(plugin); });
  loaded.chip->path = path;
  return loaded;
}

LoadedPlugin load_plugin(const std::string& path) { return plugin_of(open_file(path), path); }

std::string file_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr) return "";
  return map->l_name;
}

}  // namespace torch_fl::runtime
