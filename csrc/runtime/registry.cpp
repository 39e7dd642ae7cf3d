// SPDX-License-Identifier: Apache-2.0
// Which chips were loaded, and the table of all their devices.
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "chip_slots.h"
#include "described.h"
#include "internal.h"
#include "library_chip.h"
#include "loader.h"

namespace torch_fl::runtime {
namespace {

std::vector<std::string> libraries_in(const std::string& folder) {
  std::vector<std::string> paths;
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) throw Refused(std::string("the folder cannot be read: ") + std::strerror(errno));
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0) paths.push_back(folder + "/" + name);
  }
  closedir(directory);
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Registry& Registry::get() {
  // Never destroyed: tensors may be freed after every static object is gone.
  static Registry* registry = new Registry;
  return *registry;
}

Registry::Registry() {
  chips_.reserve(kMaxDevices);  // each has a device, so it never moves under a reader
  pthread_atfork(nullptr, nullptr, &Registry::after_fork_in_child);
}

void Registry::load(const std::vector<Candidate>& candidates) {
  const std::lock_guard lock(mutex_);
  for (const Candidate& candidate : candidates) {
    struct stat status;
    if (stat(candidate.path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      load_folder(candidate);
    } else {
      load_file(candidate);
    }
  }
}

void Registry::load_folder(const Candidate& candidate) {
  try {
    const std::vector<std::string> paths = libraries_in(candidate.path);
    if (paths.empty()) throw Refused("expected a folder with plugins, found no file whose name ends in .so");
    for (const std::string& path : paths) load_file({path, candidate.source});
  } catch (const Refused& refused) {
    reports_.push_back({candidate.path, candidate.source, false, refused.what(), ""});
  }
}

/// Runs `load`, which fills in what it loaded, and keeps what became of the candidate.
template <typename Load>
void Registry::report(const Candidate& candidate, Load&& load) {
  PluginReport report{candidate.path, candidate.source, false, "", ""};
  try {
    load(report);
    report.loaded = true;
  } catch (const std::exception& refused) {
    report.reason = refused.what();
    report.chip.clear();
    log(FL_LOG_INFO, "the plugin " + candidate.path + " (" + candidate.source + ") is skipped: " + report.reason);
  }
  reports_.push_back(std::move(report));
}

void Registry::load_file(const Candidate& candidate) {
  report(candidate, [&](PluginReport& report) {
    struct stat status{};
    const bool exists = stat(candidate.path.c_str(), &status) == 0;
    const std::pair<uint64_t, uint64_t> identity(status.st_dev, status.st_ino);
    if (exists && loaded_files_.count(identity) != 0) throw Refused("the same file has been loaded already");
    add_reported(load_plugin(candidate.path), report);
    loaded_files_.insert(identity);
  });
}

namespace {

/// The tables of a chip in a slot, which it leaves again unless it is kept.
class Hosted {
 public:
  explicit Hosted(std::unique_ptr<HostedChip> chip) : chip_(std::move(chip)) {}
  ~Hosted() {
    if (chip_ != nullptr) leave_slot(*chip_);
  }
  Hosted(const Hosted&) = delete;
  LoadedPlugin load(const std::string& path) {
    LoadedPlugin plugin = validate_plugin(take_slot(*chip_));
    plugin.chip->path = path;
    return plugin;
  }
  void keep() { chip_.release(); }  // for as long as the process lives, like a library

 private:
  std::unique_ptr<HostedChip> chip_;
};

}  // namespace

void Registry::add_reported(LoadedPlugin plugin, PluginReport& report) {
  report.chip = plugin.chip->name;
  report.reason = std::move(plugin.note);
  add(std::move(plugin.chip), plugin.devices);
}

void Registry::load_hosted(std::unique_ptr<HostedChip> chip, const Candidate& candidate) {
  const std::lock_guard lock(mutex_);
  report(candidate, [&](PluginReport& report) {
    Hosted hosted(std::move(chip));
    add_reported(hosted.load(candidate.path), report);
    hosted.keep();
  });
}

void Registry::load_described(const Described& description, const Candidate& candidate) {
  const std::lock_guard lock(mutex_);
  report(candidate, [&](PluginReport& report) {
    void* library = open_described(description);
    const auto identity = identity_of(library);
    const bool known = identity.second != 0;
    if (known && loaded_files_.count(identity) != 0) {
      throw Refused("its library " + description.library + " has been loaded already");
    }
    if (is_plugin(library)) {
      add_reported(load_plugin_described(description, library, candidate.path), report);
    } else {
      Hosted hosted(std::make_unique<LibraryChip>(description, library));
      LoadedPlugin plugin = hosted.load(candidate.path);
      attach_description(description, library, plugin);
      add_reported(std::move(plugin), report);
      hosted.keep();
    }
    if (known) loaded_files_.insert(identity);
  });
}

void Registry::skip(const Candidate& candidate, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  report(candidate, [&](PluginReport&) { throw Refused(reason); });
}

void Registry::add(std::unique_ptr<Chip> chip, const std::vector<fl_device_properties>& devices) {
  for (const auto& other : chips_) {
    if (other->name == chip->name) {
      throw Refused("a chip named " + chip->name + " has been loaded already, from " + other->path);
    }
  }
  const int32_t first = device_count();
  const auto added = static_cast<int32_t>(devices.size());
  if (first + added > kMaxDevices) {
    throw Refused("its " + std::to_string(added) + " devices would make " + std::to_string(first + added) +
                  " in all, but at most " + std::to_string(kMaxDevices) + " can be used");
  }
  for (int32_t i = 0; i < added; ++i) {
    chip->devices.push_back(std::make_unique<Device>(*chip, i, first + i, devices[static_cast<size_t>(i)]));
    table_[first + i] = chip->devices.back().get();
  }
  chips_.push_back(std::move(chip));
  count_.store(first + added, std::memory_order_release);
}

void Registry::renumber(const std::vector<int32_t>& order, const std::string& why) {
  const std::lock_guard lock(mutex_);
  std::vector<Device*> chosen;
  for (const int32_t index : order) chosen.push_back(&device(index));
  for (const auto& chip : chips_) {
    for (const auto& device : chip->devices) {
      if (device->opened()) throw Error(FL_INVALID_ARGUMENT, "the devices cannot be renumbered: one is in use");
      device->index = -1;
    }
  }
  std::fill(std::begin(table_), std::end(table_), nullptr);
  for (size_t i = 0; i < chosen.size(); ++i) {
    table_[i] = chosen[i];
    table_[i]->index = static_cast<int32_t>(i);
  }
  count_.store(static_cast<int32_t>(chosen.size()), std::memory_order_release);
  hide_chips(why);
}

/// Of what a hidden chip's plugin knows, threads of its own may still hold something: it stays in memory.
void Registry::hide_chips(const std::string& why) {
  for (auto& chip : chips_) {
    const auto visible = [](const auto& device) { return device->index >= 0; };
    if (std::any_of(chip->devices.begin(), chip->devices.end(), visible)) continue;
    for (PluginReport& report : reports_) {
      if (report.chip == chip->name) report.reason = why;
    }
    hidden_.push_back(std::move(chip));
  }
  std::erase(chips_, nullptr);
}

const std::vector<PluginReport>& Registry::reports() const { return reports_; }

Device& Registry::device(int32_t index) {
  const int32_t count = device_count();
  if (index >= 0 && index < count) return at(index);
  std::string found =
      "there are " + std::to_string(count) + " fl devices (fl:0 to fl:" + std::to_string(count - 1) + ")";
  if (count == 1) found = "there is 1 fl device (fl:0)";
  if (count == 0) found = "there are no fl devices, because no chip's plugin was loaded (python -m torch_fl shows why)";
  throw Error(FL_INVALID_ARGUMENT, "invalid device index " + std::to_string(index) + ": " + found);
}

bool Registry::in_bad_fork() const noexcept { return bad_fork.load(std::memory_order_acquire); }

void Registry::after_fork_in_child() noexcept {
  Registry& registry = get();
  for (int32_t i = 0, count = registry.device_count(); i < count; ++i) {
    Device& device = registry.at(i);
    if (!device.opened()) continue;
    bad_fork.store(true, std::memory_order_release);
    device.ready_.store(false, std::memory_order_release);
  }
}

void Registry::shutdown() noexcept {
  if (in_bad_fork()) return;
  for (int32_t i = 0, count = device_count(); i < count; ++i) at(i).close();
}

}  // namespace torch_fl::runtime
