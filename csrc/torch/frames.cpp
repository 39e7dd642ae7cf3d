// SPDX-License-Identifier: Apache-2.0
// Each Python has its own layout; those below were compared with their headers. For others: no frames.
#define Py_BUILD_CORE 1
#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#include <internal/pycore_frame.h>
#elif PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#else
#define FL_NO_FRAMES
#endif

#include "frames.h"

namespace torch_fl::glue {

#ifdef FL_NO_FRAMES

const char* frames_unknown() noexcept {
  return "no call sites: frames of Python " PY_VERSION
         " cannot be read without its lock; Python 3.10 to 3.13 tells them";
}
FrameWalk::FrameWalk() noexcept : frame_(nullptr) {}
bool FrameWalk::next(PythonFrame&) noexcept { return false; }

#else

namespace {

#if PY_VERSION_HEX < 0x030B0000

using Frame = PyFrameObject;
Frame* innermost(PyThreadState* state) { return state->frame; }
Frame* outer(Frame* frame) { return frame->f_back; }
const void* code_of(Frame* frame) { return frame->f_code; }
int32_t offset_of(Frame* frame) { return frame->f_lasti * static_cast<int32_t>(sizeof(_Py_CODEUNIT)); }

#else

using Frame = _PyInterpreterFrame;
Frame* outer(Frame* frame) { return frame->previous; }
int32_t offset_of(Frame* frame) {
  return _PyInterpreterFrame_LASTI(frame) * static_cast<int32_t>(sizeof(_Py_CODEUNIT));
}
#if PY_VERSION_HEX >= 0x030D0000
Frame* innermost(PyThreadState* state) { return state->current_frame; }
#else
Frame* innermost(PyThreadState* state) { return state->cframe->current_frame; }
#endif
// C code that runs Python has a frame of its own, with nothing in it.
const void* code_of(Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return frame->owner == FRAME_OWNED_BY_CSTACK ? nullptr : frame->f_executable;
#elif PY_VERSION_HEX >= 0x030C0000
  return frame->owner == FRAME_OWNED_BY_CSTACK ? nullptr : frame->f_code;
#else
  return frame->f_code;
#endif
}

#endif

}  // namespace

const char* frames_unknown() noexcept { return nullptr; }

FrameWalk::FrameWalk() noexcept : frame_(nullptr) {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (state != nullptr) frame_ = innermost(state);
}

bool FrameWalk::next(PythonFrame& frame) noexcept {
  for (auto* at = static_cast<Frame*>(frame_); at != nullptr; at = outer(at)) {
    const void* code = code_of(at);
    if (code == nullptr) continue;
    frame = {code, offset_of(at)};
    frame_ = outer(at);
    return true;
  }
  frame_ = nullptr;
  return false;
}

#endif

}  // namespace torch_fl::glue
