// SPDX-License-Identifier: Apache-2.0
#include "unboxed.h"

#include <string>
#include <tuple>
#include <utility>

namespace torch_fl::glue {
namespace {

using at::OptionalIntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

// How one C++ parameter is spelt in a key, and read from an argument.
template <class T>
struct Parameter;

template <>
struct Parameter<Tensor&> {
  static constexpr char letter = 'M';
  static Tensor& read(const UnboxedArgument& a) { return *a.host; }
};
template <>
struct Parameter<const Tensor&> {
  static constexpr char letter = 'T';
  static const Tensor& read(const UnboxedArgument& a) {
    static const Tensor undefined;
    if (a.host != nullptr) return *a.host;
    return a.packed->kind == Kind::Tensor ? *a.packed->u.tensor : undefined;
  }
};
template <>
struct Parameter<const Scalar&> {
  static constexpr char letter = 'S';
  static const Scalar& read(const UnboxedArgument& a) { return *a.packed->u.scalar; }
};
template <>
struct Parameter<int64_t> {
  static constexpr char letter = 'I';
  static int64_t read(const UnboxedArgument& a) { return a.packed->u.i; }
};
template <>
struct Parameter<bool> {
  static constexpr char letter = 'B';
  static bool read(const UnboxedArgument& a) { return a.packed->u.i != 0; }
};
template <>
struct Parameter<double> {
  static constexpr char letter = 'D';
  static double read(const UnboxedArgument& a) { return a.packed->u.d; }
};
template <>
struct Parameter<at::IntArrayRef> {
  static constexpr char letter = 'L';
  static at::IntArrayRef read(const UnboxedArgument& a) { return {a.packed->u.ints, a.packed->count}; }
};
template <>
struct Parameter<OptionalIntArrayRef> {
  static constexpr char letter = 'l';
  static OptionalIntArrayRef read(const UnboxedArgument& a) {
    if (a.packed->kind == Kind::None) return std::nullopt;
    return OptionalIntArrayRef(at::IntArrayRef(a.packed->u.ints, a.packed->count));
  }
};
template <>
struct Parameter<std::optional<ScalarType>> {
  static constexpr char letter = 'Y';
  static std::optional<ScalarType> read(const UnboxedArgument& a) {
    if (a.packed->kind == Kind::None) return std::nullopt;
    return static_cast<ScalarType>(a.packed->u.i);
  }
};

char letter_of(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.real_type();
  const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  const auto of_list = [](const c10::Type& list, char letter) {
    return list.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::IntType ? letter : '?';
  };
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return written ? 'M' : 'T';
    case c10::TypeKind::NumberType:
      return 'S';
    case c10::TypeKind::IntType:
      return 'I';
    case c10::TypeKind::BoolType:
      return 'B';
    case c10::TypeKind::FloatType:
      return 'D';
    case c10::TypeKind::ListType:
      return of_list(*type, 'L');
    case c10::TypeKind::OptionalType: {
      const c10::TypePtr& inner = type->expectRef<c10::OptionalType>().getElementType();
      if (inner->kind() == c10::TypeKind::ListType) return of_list(*inner, 'l');
      return inner->kind() == c10::TypeKind::ScalarTypeType ? 'Y' : '?';
    }
    default:
      return '?';
  }
}

template <class Function>
class Unboxed;
template <class R, class... A>
class Unboxed<R(A...)> final : public UnboxedKernel {
 public:
  explicit Unboxed(const c10::OperatorHandle& op) : op_(op.typed<R(A...)>()) {}
  static std::string key() { return {Parameter<A>::letter...}; }
  void call(const UnboxedArgument* arguments) const override { call(arguments, std::index_sequence_for<A...>()); }

 private:
  template <size_t... I>
  void call(const UnboxedArgument* arguments, std::index_sequence<I...>) const {
    op_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), Parameter<A>::read(arguments[I])...);
  }
  c10::TypedOperatorHandle<R(A...)> op_;
};

template <class... Function>
std::unique_ptr<UnboxedKernel> first_of(const c10::OperatorHandle& op, const std::string& key) {
  std::unique_ptr<UnboxedKernel> made;
  (void)((key == Unboxed<Function>::key() && (made = std::make_unique<Unboxed<Function>>(op), true)) || ...);
  return made;
}

}  // namespace

std::unique_ptr<UnboxedKernel> UnboxedKernel::make(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  std::string key;
  for (const c10::Argument& argument : schema.arguments()) key += letter_of(argument);
  using T = const Tensor&;
  using S = const Scalar&;
  using L = at::IntArrayRef;
  using M = Tensor&;
  using MM = std::tuple<Tensor&, Tensor&>;
  if (schema.returns().size() == 2) {
    return first_of<MM(T, int64_t, bool, M, M), MM(T, M, M), MM(T, L, M, M)>(op, key);
  }
  if (schema.returns().size() != 1) return nullptr;
  return first_of<
      // in-place
      M(M), M(M, T), M(M, S), M(M, T, S), M(M, T, T), M(M, T, T, S), M(M, T, T, S, S), M(M, S, S), M(M, int64_t),
      M(M, int64_t, T), M(M, int64_t, T, T), M(M, int64_t, T, S),
      // out=
      M(T, M), M(T, T, M), M(T, T, T, M), M(T, S, M), M(T, T, S, M), M(T, S, S, M), M(T, T, S, S, M), M(T, T, T, S, M),
      M(T, T, T, S, S, M), M(T, int64_t, M), M(T, int64_t, bool, M), M(T, T, int64_t, M), M(T, int64_t, T, M),
      M(T, int64_t, T, T, M), M(T, int64_t, std::optional<ScalarType>, M), M(T, L, M), M(T, T, L, M), M(T, L, bool, M),
      M(T, OptionalIntArrayRef, bool, M), M(T, OptionalIntArrayRef, bool, std::optional<ScalarType>, M),
      M(T, T, int64_t, double, M)>(op, key);
}

}  // namespace torch_fl::glue
