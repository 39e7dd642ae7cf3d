// SPDX-License-Identifier: Apache-2.0
// The system's C compiler, run as a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "internal.h"

namespace simchip {

/// A folder of our own under $TMPDIR, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  bool exists() const { return exists_; }
  const std::string& path() const { return path_; }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool exists_;
};

bool write_file(const std::string& path, std::string_view bytes);
/// At most `limit` bytes; "" where there is no such file.
std::string read_file(const std::string& path, size_t limit);

/// FNV-1a, 64 bits: recognises damage and difference, not intent.
uint64_t hash(std::string_view bytes, uint64_t seed = 0xcbf29ce484222325u);

struct Cpu {
  std::string name;
  uint64_t features;  ///< hash of all that -march=native looks at
};
const Cpu& cpu();

/// Compiles `source` into the file `object` of the folder.
simResult compile_source(const TemporaryFolder& folder, const char* source, const std::vector<std::string>& options,
                         const std::string& object);
simResult compiler_identity(std::string* text);

}  // namespace simchip
