// SPDX-License-Identifier: Apache-2.0
#include "call_sites.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "frames.h"
#include "interpreter.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

enum class Owner : uint32_t { Unknown, Library, User };

/// Code and offset -> a number, by open addressing. What is not there is 0.
class Table {
 public:
  uint32_t find(const void* code, int32_t offset) const noexcept {
    if (slots_.empty()) return 0;
    for (size_t i = start(code, offset);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.value == 0 || (slot.code == code && slot.offset == offset)) return slot.value;
    }
  }
  void insert(const void* code, int32_t offset, uint32_t value) {
    if (2 * ++used_ > slots_.size()) grow();
    place({code, offset, value});
  }
  void clear() {
    slots_.clear();
    used_ = 0;
  }

 private:
  struct Slot {
    const void* code = nullptr;
    int32_t offset = 0;
    uint32_t value = 0;
  };
  size_t start(const void* code, int32_t offset) const noexcept {
    const size_t word = reinterpret_cast<uintptr_t>(code) ^ static_cast<size_t>(static_cast<uint32_t>(offset)) << 40;
    return word * 0x9E3779B97F4A7C15ull >> 32;
  }
  void place(const Slot& slot) {
    size_t i = start(slot.code, slot.offset);
    while (slots_[i & (slots_.size() - 1)].value != 0) ++i;
    slots_[i & (slots_.size() - 1)] = slot;
  }
  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 64 : 2 * slots_.size()));
    for (const Slot& slot : old) {
      if (slot.value != 0) place(slot);
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

// A program that makes code as it runs has no end of it, and what is known is kept alive.
constexpr size_t kMostCodes = 1 << 14, kMostSites = 1 << 16;

constexpr int32_t kWhole = -1;  // "offset" of what a thread knows of a code object: its Owner

/// What all threads share. Who takes the interpreter's lock takes it before this one.
struct Shared {
  std::mutex mutex;
  uint32_t recording = 0;
  std::vector<std::string> folders;  ///< of libraries, whose frames are passed over
  std::unordered_map<const void*, Owner> codes;
  std::map<std::pair<const void*, int32_t>, uint32_t> numbers;
  std::vector<std::pair<const void*, int32_t>> sites;
  bool full = false;  ///< there were more
};
Shared& shared() {
  static auto* all = new Shared();
  return *all;
}

// File names may hold what is no Unicode.
std::string text_of(const py::handle& object) {
  const auto encoded =
      py::reinterpret_steal<py::object>(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "backslashreplace"));
  if (!encoded) {
    PyErr_Clear();
    return "?";
  }
  return encoded.cast<std::string>();
}

Owner owner_of(const std::string& file) {
  if (file.starts_with("<frozen ")) return Owner::Library;
  for (const std::string& folder : shared().folders) {
    if (file.starts_with(folder)) return Owner::Library;
  }
  return Owner::User;
}

/// Keeps the code object until the recording ends. Unknown: the recording is over, or there are too many.
Owner intern_code(const void* code, uint32_t recording) {
  Shared& all = shared();
  {
    const std::lock_guard lock(all.mutex);
    const auto known = all.codes.find(code);
    if (all.recording != recording || known != all.codes.end()) {
      return all.recording == recording ? known->second : Owner::Unknown;
    }
    if (all.codes.size() >= kMostCodes) {
      all.full = true;
      return Owner::Unknown;
    }
  }
  if (interpreter_gone()) return Owner::Unknown;
  const py::gil_scoped_acquire gil;
  const py::handle object(static_cast<PyObject*>(const_cast<void*>(code)));
  const Owner owner = owner_of(text_of(object.attr("co_filename")));
  const std::lock_guard lock(all.mutex);
  if (all.recording != recording) return Owner::Unknown;
  if (all.codes.emplace(code, owner).second) object.inc_ref();
  return owner;
}

uint32_t intern_site(const PythonFrame& frame, uint32_t recording) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  if (all.recording != recording) return 0;
  const std::pair site(frame.code, frame.offset);
  if (const auto known = all.numbers.find(site); known != all.numbers.end()) return known->second;
  if (all.sites.size() >= kMostSites) {
    all.full = true;
    return 0;
  }
  all.sites.push_back(site);
  return all.numbers[site] = static_cast<uint32_t>(all.sites.size());
}

struct ThreadsOwn {
  uint32_t recording = 0;
  Table table;
};

uint32_t find_site(uint32_t recording) {
  static thread_local ThreadsOwn own;
  if (own.recording != recording) {
    own.table.clear();
    own.recording = recording;
  }
  FrameWalk walk;
  PythonFrame frame{};
  while (walk.next(frame)) {
    auto owner = static_cast<Owner>(own.table.find(frame.code, kWhole));
    if (owner == Owner::Unknown) {
      owner = intern_code(frame.code, recording);
      if (owner == Owner::Unknown) return 0;
      own.table.insert(frame.code, kWhole, static_cast<uint32_t>(owner));
    }
    if (owner == Owner::Library) continue;
    uint32_t site = own.table.find(frame.code, frame.offset);
    if (site == 0) {
      site = intern_site(frame, recording);
      if (site != 0) own.table.insert(frame.code, frame.offset, site);
    }
    return site;
  }
  return 0;
}

std::string describe(const std::pair<const void*, int32_t>& site) {
  auto* code = static_cast<PyObject*>(const_cast<void*>(site.first));
  const int line = PyCode_Addr2Line(reinterpret_cast<PyCodeObject*>(code), site.second);
  const py::handle object(code);
  const py::object name = py::getattr(object, "co_qualname", object.attr("co_name"));
  return text_of(object.attr("co_filename")) + ":" + std::to_string(line) + " (" + text_of(name) + ")";
}

std::string folder_of(const char* package) {
  const std::string file = text_of(py::module_::import(package).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

}  // namespace

void prepare_call_sites() {
  std::vector<std::string> folders{folder_of("torch"), folder_of("torch_fl")};
  const std::lock_guard lock(shared().mutex);
  shared().folders = std::move(folders);
}

void begin_call_sites(uint32_t recording) {
  const std::lock_guard lock(shared().mutex);
  shared().recording = recording;
}

uint32_t call_site(uint32_t recording) noexcept {
  try {
    return find_site(recording);
  } catch (const std::exception&) {
    return 0;  // out of memory, or a code object that Python code made up
  }
}

std::vector<std::string> end_call_sites(std::vector<std::string>& notes) {
  Shared& all = shared();
  std::unordered_map<const void*, Owner> codes;
  std::vector<std::pair<const void*, int32_t>> sites;
  {
    const std::lock_guard lock(all.mutex);
    all.recording = 0;
    if (std::exchange(all.full, false)) {
      notes.push_back("calls were made from more than " + std::to_string(kMostCodes) + " code objects or " +
                      std::to_string(kMostSites) + " places: later places are not kept");
    }
    codes.swap(all.codes);
    sites.swap(all.sites);
    all.numbers.clear();
  }
  std::vector<std::string> texts{""};
  for (const auto& site : sites) texts.push_back(describe(site));
  for (const auto& [code, owner] : codes) Py_DECREF(static_cast<PyObject*>(const_cast<void*>(code)));
  return texts;
}

}  // namespace torch_fl::glue
