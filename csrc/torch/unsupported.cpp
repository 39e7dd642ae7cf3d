// SPDX-License-Identifier: Apache-2.0
#include "unsupported.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <sstream>

namespace torch_fl::glue {
namespace {

std::atomic<void*> g_class{nullptr};

void describe_tensor(std::ostream& out, const at::Tensor& t) {
  if (!t.defined()) {
    out << "None";
    return;
  }
  out << t.device() << " " << dtype_name(t.scalar_type()) << t.sizes();
}

}  // namespace

void set_unsupported_error(void* python_class) { g_class.store(python_class); }

std::string describe_call(const Call& call) {
  std::ostringstream out;
  out << call.entry.name << "(";
  bool first = true;
  for (uint32_t i = 0; i < call.n_args; ++i) {
    const PackedArg& a = call.args[i];
    if (a.kind != Kind::Tensor && a.kind != Kind::TensorList) continue;
    out << (first ? "" : ", ") << call.entry.args[i].name << ": ";
    first = false;
    if (a.kind == Kind::Tensor) {
      describe_tensor(out, *a.u.tensor);
      continue;
    }
    out << "[";
    for (uint32_t k = 0; k < a.count; ++k) {
      if (k > 0) out << ", ";
      describe_tensor(out, a.u.tensors[k]);
    }
    out << "]";
  }
  out << ")";
  return out.str();
}

void throw_unsupported(const Call& call, const std::string& reason) {
  std::ostringstream out;
  out << call.entry.name << " cannot run on chip '" << call.device->chip.name << "' (fl:" << call.device->index
      << "): " << reason << ".\n  call: " << describe_call(call) << "\n  The fallback policy is 'deny'"
      << (choose_policy(call.entry, call.device->chip).by_chip ? ", as the chip's descriptor says" : "")
      << ". To let this operator run on the host, call torch_fl.set_config(\"fallback." << call.entry.op_name
      << "\", \"allow\"), or set TORCH_FL_FALLBACK=allow for all operators.";
  auto* python_class = static_cast<PyObject*>(g_class.load());
  if (python_class == nullptr || Py_IsInitialized() == 0) TORCH_CHECK_NOT_IMPLEMENTED(false, out.str());
  python_error error;
  {
    pybind11::gil_scoped_acquire gil;
    PyErr_SetString(python_class, out.str().c_str());
    error.persist();
  }
  throw error;
}

}  // namespace torch_fl::glue
