// SPDX-License-Identifier: Apache-2.0
// The arguments of one operator call as an array of tagged values on the stack. Borrowed: lives during the call.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace torch_fl::glue {

enum class Kind : uint8_t {
  None,
  Tensor,      // u.tensor; a defined tensor
  TensorList,  // u.tensors, count; elements may be undefined
  Scalar,      // u.scalar
  ScalarList,  // u.scalars, count
  Int,
  Bool,
  Real,
  IntList,
  RealList,
  BoolList,
  String,
  DType,      // u.i
  Enum,       // u.i: layout, memory format, device (kept for the signature only)
  Generator,  // u.generator
};

struct PackedArg {
  Kind kind = Kind::None;
  uint32_t count = 0;
  union {
    const at::Tensor* tensor;
    const at::Tensor* tensors;
    const at::Scalar* scalar;
    const at::Scalar* scalars;
    int64_t i;
    double d;
    const int64_t* ints;
    const double* reals;
    const bool* bools;
    const char* s;
    const at::Generator* generator;
  } u{};
};

/// Memory for what cannot be borrowed from the caller's arguments: lists that are not contiguous tensors.
struct PackStore {
  std::vector<std::unique_ptr<at::Tensor[]>> tensors;
  std::vector<std::vector<int64_t>> ints;
  std::vector<std::vector<double>> reals;
  std::vector<std::unique_ptr<bool[]>> bools;
  std::vector<std::vector<at::Scalar>> scalars;
  std::vector<std::unique_ptr<at::Scalar>> scalar;

  const at::Tensor* keep(std::unique_ptr<at::Tensor[]> list) {
    tensors.push_back(std::move(list));
    return tensors.back().get();
  }
};

// PackStore has five vectors; it is made only for the calls that need one.
class LazyStore {
 public:
  PackStore& get() {
    if (!store_) store_ = std::make_unique<PackStore>();
    return *store_;
  }

 private:
  std::unique_ptr<PackStore> store_;
};

inline void pack(PackedArg& p, LazyStore&, const at::Tensor& v) {
  if (!v.defined()) return;
  p.kind = Kind::Tensor;
  p.u.tensor = &v;
}
inline void pack(PackedArg& p, LazyStore& s, const std::optional<at::Tensor>& v) {
  if (v.has_value()) pack(p, s, *v);
}
inline void pack(PackedArg& p, LazyStore&, const at::Scalar& v) {
  p.kind = Kind::Scalar;
  p.u.scalar = &v;
}
inline void pack(PackedArg& p, LazyStore&, int64_t v) {
  p.kind = Kind::Int;
  p.u.i = v;
}
inline void pack(PackedArg& p, LazyStore&, bool v) {
  p.kind = Kind::Bool;
  p.u.i = v;
}
inline void pack(PackedArg& p, LazyStore&, double v) {
  p.kind = Kind::Real;
  p.u.d = v;
}
inline void pack(PackedArg& p, LazyStore& s, const c10::SymInt& v) { pack(p, s, v.guard_int(__FILE__, __LINE__)); }
inline void pack(PackedArg& p, LazyStore&, at::IntArrayRef v) {
  p.kind = Kind::IntList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.ints = v.data();
}
inline void pack(PackedArg& p, LazyStore& s, c10::SymIntArrayRef v) { pack(p, s, C10_AS_INTARRAYREF_SLOW(v)); }
inline void pack(PackedArg& p, LazyStore& s, at::OptionalIntArrayRef v) {
  if (v.has_value()) pack(p, s, *v);
}
inline void pack(PackedArg& p, LazyStore& s, at::OptionalSymIntArrayRef v) {
  if (v.has_value()) pack(p, s, *v);
}
inline void pack(PackedArg& p, LazyStore&, at::ArrayRef<double> v) {
  p.kind = Kind::RealList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.reals = v.data();
}
inline void pack(PackedArg& p, LazyStore&, at::TensorList v) {
  p.kind = Kind::TensorList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.tensors = v.data();
}
inline void pack(PackedArg& p, LazyStore& s, const at::ITensorListRef& v) {
  if (v.isUnboxed()) return pack(p, s, v.toUnboxed());
  auto list = std::make_unique<at::Tensor[]>(v.size());
  size_t i = 0;
  for (const auto& t : v) list[i++] = t;
  p.kind = Kind::TensorList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.tensors = s.get().keep(std::move(list));
}
inline void pack(PackedArg& p, LazyStore& s, const c10::List<std::optional<at::Tensor>>& v) {
  auto list = std::make_unique<at::Tensor[]>(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    std::optional<at::Tensor> t = v.get(i);
    if (t.has_value()) list[i] = *t;
  }
  p.kind = Kind::TensorList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.tensors = s.get().keep(std::move(list));
}
inline void pack(PackedArg& p, LazyStore&, at::ArrayRef<at::Scalar> v) {
  p.kind = Kind::ScalarList;
  p.count = static_cast<uint32_t>(v.size());
  p.u.scalars = v.data();
}
template <size_t N>
inline void pack(PackedArg& p, LazyStore&, const std::array<bool, N>& v) {
  p.kind = Kind::BoolList;
  p.count = N;
  p.u.bools = v.data();
}
inline void pack(PackedArg& p, LazyStore&, std::string_view v) {
  p.kind = Kind::String;
  p.count = static_cast<uint32_t>(v.size());
  p.u.s = v.data();
}
inline void pack(PackedArg& p, LazyStore&, at::ScalarType v) {
  p.kind = Kind::DType;
  p.u.i = static_cast<int64_t>(v);
}
inline void pack_enum(PackedArg& p, int64_t v) {
  p.kind = Kind::Enum;
  p.u.i = v;
}
inline void pack(PackedArg& p, LazyStore&, at::Layout v) { pack_enum(p, static_cast<int64_t>(v)); }
inline void pack(PackedArg& p, LazyStore&, at::MemoryFormat v) { pack_enum(p, static_cast<int64_t>(v)); }
inline void pack(PackedArg& p, LazyStore&, at::Device v) {
  pack_enum(p, (static_cast<int64_t>(v.type()) << 8) | static_cast<uint8_t>(v.index()));
}
inline void pack(PackedArg& p, LazyStore&, const at::Generator& v) {
  if (!v.defined()) return;
  p.kind = Kind::Generator;
  p.u.generator = &v;
}
template <class T>
inline void pack(PackedArg& p, LazyStore& s, const std::optional<T>& v) {
  if (v.has_value()) pack(p, s, *v);
}

/// The boxed form: from an IValue of the stack, with the type its schema gives.
void pack_ivalue(PackedArg& p, LazyStore& s, const c10::IValue& v, const c10::TypePtr& type);

}  // namespace torch_fl::glue
