// SPDX-License-Identifier: Apache-2.0
// Questions about calls that nobody runs: which route would one take, and why not the others. Arguments have no memory.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "adapt.h"
#include "device_allocator.h"
#include "entry.h"
#include "errors.h"
#include "planner.h"
#include "register.h"

namespace py = pybind11;

namespace torch_fl::glue {
namespace {

// A tensor of a device without memory. `base`: it shares that one's storage.
at::Tensor phantom(int32_t device, at::ScalarType dtype, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides, int64_t offset, uint64_t bytes,
                   const std::optional<at::Tensor>& base) {
  const c10::Device where(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(checked_device(device).index));
  auto storage = base.has_value() ? base->storage()
                                  : c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, where),
                                                 device_allocator(), false);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  t.unsafeGetTensorImpl()->set_storage_offset(offset);
  return t;
}

bool is_mask(const at::Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
}

// What a route depends on beyond metadata.
bool looks_at_values(const Call& call) {
  if (call.entry.reads_values) return true;
  if (call.entry.indices < 0) return false;
  const PackedArg& a = call.args[call.entry.indices];
  return a.kind == Kind::TensorList && std::any_of(a.u.tensors, a.u.tensors + a.count, is_mask);
}

// (route, reason, [(route, why not), ...])
py::tuple probe(const std::string& name, const std::string& overload, int32_t device, bool kernels_only,
                const py::args& args, const py::kwargs& kwargs) {
  Entry& entry = entry_for(name.c_str(), overload.c_str());
  const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
  Stack stack = torch::jit::createStackForSchema(entry.op.schema(), args, kwargs, std::nullopt);
  std::vector<PackedArg> packed(stack.size());
  LazyStore store;
  for (size_t i = 0; i < stack.size(); ++i) pack_ivalue(packed[i], store, stack[i], entry.args[i].type);
  Call call{entry, packed.data(), static_cast<uint32_t>(packed.size()), store};
  call.stack = &stack;
  call.device = &checked_device(device);
  py::list refusals;
  if (looks_at_values(call)) return py::make_tuple(py::none(), "its route depends on values", refusals);
  std::vector<std::pair<Route, std::string>> refused;
  PlanRequest request;
  request.probe = true;
  request.kernels_only = kernels_only;
  request.refusals = &refused;
  Signature signature;
  const auto plan = guarded([&] { return make_plan(call, signature, request); });
  for (const auto& [route, why] : refused) refusals.append(py::make_tuple(route_name(route), why));
  return py::make_tuple(route_name(plan->route), plan->reason, refusals);
}

// Whether the chip itself can copy between these types, which changing strides takes as well.
bool has_copy(int32_t device, at::ScalarType from, at::ScalarType to) {
  const runtime::Chip& chip = checked_device(device).chip;
  const uint64_t both = FL_DTYPE_BIT(to_fl_dtype(from)) | FL_DTYPE_BIT(to_fl_dtype(to));
  const auto takes = [&](const fl_kernel* row) {
    return row != nullptr && (row->dtypes == 0 || (row->dtypes & both) == both);
  };
  return takes(find_kernel(chip, "aten::copy")) || takes(find_portable(chip, "aten::copy"));
}

py::dict stats() {
  const AdapterStats s = adapter_stats();
  py::dict row;
  row["conversions"] = s.conversions;
  row["reuses"] = s.reuses;
  row["kept"] = s.kept;
  row["kept_bytes"] = s.kept_bytes;
  row["limit_bytes"] = s.limit_bytes;
  return row;
}

}  // namespace

void bind_probe(py::module_& m) {
  m.def("phantom", &phantom, py::arg("device"), py::arg("dtype"), py::arg("sizes"), py::arg("strides"),
        py::arg("offset"), py::arg("bytes"), py::arg("base"));
  m.def("probe", &probe);
  m.def("has_copy", &has_copy, py::arg("device"), py::arg("from"), py::arg("to"));
  m.def("can_fill", [](int32_t device) { return checked_device(device).can_fill(); });
  m.def("adapter_stats", &stats);
  m.def("set_adapter_cache_mb", [](uint64_t megabytes) { set_adapter_cache_bytes(megabytes << 20); });
}

}  // namespace torch_fl::glue
