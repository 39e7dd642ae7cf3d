// SPDX-License-Identifier: Apache-2.0
#include "modules.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "device.h"
#include "error.h"
#include "internal.h"

namespace torch_fl::runtime {
namespace {

// FNV-1a, 64 bit (Fowler, Noll, Vo): names files and finds damage; whether a file is the right one, its text says.
uint64_t hash_of(const std::string& text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

constexpr std::string_view kMagic = "torch-fl module 1\n";

void append(std::string& file, uint64_t word) { file.append(reinterpret_cast<const char*>(&word), sizeof(word)); }

// The file: magic, length of the key, key, length and hash of the binary, binary.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}
  bool skip(std::string_view expected) {
    if (file_.compare(at_, expected.size(), expected) != 0) return false;
    at_ += expected.size();
    return true;
  }
  bool word(uint64_t* value) {
    if (file_.size() - at_ < sizeof(*value)) return false;
    std::memcpy(value, file_.data() + at_, sizeof(*value));
    at_ += sizeof(*value);
    return true;
  }
  std::string rest() const { return file_.substr(at_); }

 private:
  const std::string& file_;
  size_t at_ = 0;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string module_folder() {
  const char* own = std::getenv("TORCH_FL_CACHE_DIR");
  if (own != nullptr) return *own == '\0' ? "" : std::string(own) + "/modules";
  const std::string base = variable("XDG_CACHE_HOME");
  if (!base.empty()) return base + "/torch-fl/modules";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/torch-fl/modules";
}

struct Modules::Key {
  std::string text;
  std::string path() const {
    const std::string folder = module_folder();
    if (folder.empty()) return "";
    std::array<char, 40> name{};
    std::snprintf(name.data(), name.size(), "/%016" PRIx64 "%016" PRIx64, hash_of(text), hash_of(text, 0x9e3779b9u));
    return folder + name.data() + ".bin";
  }
};

const std::string& Modules::identity() {
  if (identity_.empty()) {
    std::array<char, 4096> text{};
    device_.check(device_.chip.compiler.identity(device_.handle(), text.data(), text.size()),
                  "asking for the compiler's identity");
    identity_ = device_.chip.name + "\n" + text.data();
  }
  return identity_;
}

fl_module Modules::get(const std::string& source) {
  if (!device_.chip.has_compiler) throw Error(FL_UNSUPPORTED, device_.chip.name + " has no compiler");
  device_.handle();  // after a fork it refuses, and the lock may be held for ever
  std::promise<fl_module> promise;
  std::shared_future<fl_module> future;
  Key key;
  {
    const std::lock_guard lock(mutex_);
    key.text = identity() + "\n" + source;
    auto [at, fresh] = made_.try_emplace(key.text);
    if (!fresh) {
      future = at->second;
    } else {
      at->second = promise.get_future().share();
    }
  }
  if (future.valid()) return future.get();
  try {
    const fl_module module = make(key, source);
    promise.set_value(module);
    return module;
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);  // the next call tries again: a full disk or memory may have been the reason
    made_.erase(key.text);
    throw;
  }
}

fl_module Modules::make(const Key& key, const std::string& source) {
  const bool keeps = device_.chip.compiler.save != nullptr && device_.chip.compiler.load != nullptr;
  const std::string path = keeps ? key.path() : "";
  if (!path.empty()) {
    if (const fl_module module = from_disk(key, path)) return module;
  }
  const fl_module module = compile(source);
  if (!path.empty()) to_disk(key, path, module);
  return module;
}

fl_module Modules::compile(const std::string& source) {
  fl_compile_options options{};
  options.struct_size = sizeof(options);
  fl_module module = nullptr;
  device_.check(device_.chip.compiler.compile(device_.handle(), source.c_str(), &options, &module),
                "compiling a portable kernel");
  return module;
}

// Null: not there, damaged, another text's, or another driver's.
fl_module Modules::from_disk(const Key& key, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  std::ifstream stream(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  Reader reader(file);
  uint64_t length = 0, bytes = 0, hash = 0;
  if (!reader.skip(kMagic) || !reader.word(&length) || length != key.text.size() || !reader.skip(key.text)) {
    return nullptr;
  }
  if (!reader.word(&bytes) || !reader.word(&hash)) return nullptr;
  const std::string binary = reader.rest();
  if (binary.size() != bytes || hash_of(binary) != hash) {
    log(FL_LOG_WARNING, "the compiled module " + path + " is damaged; compiling again");
    return nullptr;
  }
  fl_module module = nullptr;
  const fl_status status = device_.chip.compiler.load(device_.handle(), binary.data(), binary.size(), &module);
  if (status == FL_OK) return module;
  log(FL_LOG_INFO, "the compiled module " + path + " does not load; compiling again: " + take_plugin_message());
  return nullptr;
}

// To a name of our own first: another process never sees half a file. A disk that fails costs the next process a
// compilation, and this one nothing.
void Modules::to_disk(const Key& key, const std::string& path, fl_module module) {
  const fl_compiler_api& compiler = device_.chip.compiler;
  uint64_t bytes = 0;
  if (compiler.save(module, nullptr, &bytes) != FL_OK) return;
  std::string binary(bytes, '\0');
  if (compiler.save(module, binary.data(), &bytes) != FL_OK) return;
  std::string file(kMagic);
  append(file, key.text.size());
  file += key.text;
  append(file, binary.size());
  append(file, hash_of(binary));
  file += binary;
  static std::atomic<uint64_t> serial{0};
  const std::string temporary = path + "." + std::to_string(getpid()) + "." + std::to_string(serial.fetch_add(1));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  bool written = false;
  {
    std::ofstream stream(temporary, std::ios::binary);
    written = stream.write(file.data(), static_cast<std::streamsize>(file.size())).good();
  }
  if (written) std::filesystem::rename(temporary, path, error);
  if (!written || error) {
    log(FL_LOG_INFO, "a compiled module could not be kept as " + path);
    std::filesystem::remove(temporary, error);
  }
}

}  // namespace torch_fl::runtime
