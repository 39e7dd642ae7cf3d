// SPDX-License-Identifier: Apache-2.0
#include "packed.h"

namespace torch_fl::glue {
namespace {

template <class T>
const T* keep_copy(std::vector<std::vector<T>>& lists, std::vector<T> list) {
  lists.push_back(std::move(list));
  return lists.back().data();
}

void pack_list(PackedArg& p, PackStore& s, const c10::IValue& v, const c10::TypePtr& element) {
  if (element->kind() == c10::TypeKind::TensorType || element->kind() == c10::TypeKind::OptionalType) {
    const auto list = v.toListRef();
    auto tensors = std::make_unique<at::Tensor[]>(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].isTensor()) tensors[i] = list[i].toTensor();
    }
    p.kind = Kind::TensorList;
    p.count = static_cast<uint32_t>(list.size());
    p.u.tensors = s.keep(std::move(tensors));
    return;
  }
  const auto list = v.toListRef();
  p.count = static_cast<uint32_t>(list.size());
  switch (element->kind()) {
    case c10::TypeKind::BoolType: {
      auto bools = std::make_unique<bool[]>(list.size());
      for (size_t i = 0; i < list.size(); ++i) bools[i] = list[i].toBool();
      p.kind = Kind::BoolList;
      s.bools.push_back(std::move(bools));
      p.u.bools = s.bools.back().get();
      break;
    }
    case c10::TypeKind::FloatType: {
      p.kind = Kind::RealList;
      p.u.reals = keep_copy(s.reals, v.toDoubleVector());
      break;
    }
    case c10::TypeKind::NumberType: {
      std::vector<at::Scalar> scalars;
      for (const auto& x : list) scalars.push_back(x.toScalar());
      p.kind = Kind::ScalarList;
      p.u.scalars = keep_copy(s.scalars, std::move(scalars));
      break;
    }
    default: {
      std::vector<int64_t> ints;
      for (const auto& x : list) ints.push_back(x.isSymInt() ? x.toSymInt().guard_int(__FILE__, __LINE__) : x.toInt());
      p.kind = Kind::IntList;
      p.u.ints = keep_copy(s.ints, std::move(ints));
    }
  }
}

}  // namespace

void pack_ivalue(PackedArg& p, LazyStore& s, const c10::IValue& v, const c10::TypePtr& type) {
  if (v.isNone()) return;
  if (type->kind() == c10::TypeKind::OptionalType) {
    return pack_ivalue(p, s, v, type->expectRef<c10::OptionalType>().getElementType());
  }
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return pack(p, s, v.toTensor());
    case c10::TypeKind::ListType:
      return pack_list(p, s.get(), v, type->expectRef<c10::ListType>().getElementType());
    case c10::TypeKind::NumberType:
      s.get().scalar.push_back(std::make_unique<at::Scalar>(v.toScalar()));
      return pack(p, s, *s.get().scalar.back());
    case c10::TypeKind::BoolType:
      return pack(p, s, v.toBool());
    case c10::TypeKind::FloatType:
      return pack(p, s, v.toDouble());
    case c10::TypeKind::StringType:
      return pack(p, s, std::string_view(v.toStringRef()));
    case c10::TypeKind::DeviceObjType:
      return pack(p, s, v.toDevice());
    case c10::TypeKind::GeneratorType:
      p.kind = Kind::Generator;  // read from the stack where it matters
      p.u.generator = nullptr;
      return;
    default:
      break;
  }
  if (v.isInt() || v.isSymInt()) {
    const int64_t value = v.isSymInt() ? v.toSymInt().guard_int(__FILE__, __LINE__) : v.toInt();
    if (type->kind() == c10::TypeKind::ScalarTypeType) return pack(p, s, static_cast<at::ScalarType>(value));
    if (type->kind() == c10::TypeKind::LayoutType || type->kind() == c10::TypeKind::MemoryFormatType) {
      return pack_enum(p, value);
    }
    return pack(p, s, value);
  }
  pack_enum(p, -1);
}

}  // namespace torch_fl::glue
