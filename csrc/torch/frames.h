// SPDX-License-Identifier: Apache-2.0
// The calling thread's Python frames, read without the interpreter's lock: they cannot change while the thread is in a
// call. Apart, because it needs headers of the interpreter's inside.
#pragma once

#include <cstdint>

namespace torch_fl::glue {

/// Why this Python's frames cannot be read; null: they can.
const char* frames_unknown() noexcept;

struct PythonFrame {
  const void* code;  ///< a code object, which the frame keeps alive
  int32_t offset;    ///< of the instruction in it, in bytes
};

/// From the innermost frame outwards. Ends at once in threads that have never been Python's.
class FrameWalk {
 public:
  FrameWalk() noexcept;
  bool next(PythonFrame& frame) noexcept;

 private:
  void* frame_;
};

}  // namespace torch_fl::glue
