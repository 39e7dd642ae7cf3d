// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic and selection.
#include <iterator>

#include "loops.h"

namespace fl_sim::FL_SIM_ISA {
namespace {

FL_SIM_FN2(Eq, { return a == b; });
FL_SIM_FN2(Ne, { return a != b; });
FL_SIM_FN2(Lt, { return a < b; });
FL_SIM_FN2(Le, { return a <= b; });
FL_SIM_FN2(Gt, { return a > b; });
FL_SIM_FN2(Ge, { return a >= b; });
FL_SIM_FN2(LogicalAnd, { return a != T(0) && b != T(0); });
FL_SIM_FN2(LogicalOr, { return a != T(0) || b != T(0); });
FL_SIM_FN2(LogicalXor, { return (a != T(0)) != (b != T(0)); });
FL_SIM_FN1(LogicalNot, { return a == T(0); });
FL_SIM_FN1(IsNan, { return a != a; });
FL_SIM_FN1(IsInf, {
  if constexpr (kFloating<T>)
    return std::isinf(a);
  else if constexpr (kComplex<T>)
    return std::isinf(a.real()) || std::isinf(a.imag());
  else
    return false;
});
FL_SIM_FN1(IsPosInf, {
  if constexpr (kFloating<T>)
    return a == std::numeric_limits<T>::infinity();
  else
    return false;
});
FL_SIM_FN1(IsNegInf, {
  if constexpr (kFloating<T>)
    return a == -std::numeric_limits<T>::infinity();
  else
    return false;
});
FL_SIM_FN1(Signbit, {
  if constexpr (kFloating<T>)
    return std::signbit(a);
  else if constexpr (std::is_same_v<T, int64_t>)
    return a < 0;
  else
    return false;
});

// ins[0] is the mask.
template <class T, class>
void select(int64_t n, void* const* outs, const void* const* ins, const Params&) {
  auto* out = static_cast<T*>(outs[0]);
  auto* mask = static_cast<const bool*>(ins[0]);
  auto* a = static_cast<const T*>(ins[1]);
  auto* b = static_cast<const T*>(ins[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = mask[i] ? a[i] : b[i];
}

constexpr Kind N = kNoKind;
#define COMPARE(op, loops) {"aten::" op, 2, 1, {0, 1}, {N, N, N, N}, Out::kBool, true, false, nullptr, loops, nullptr}
#define TEST(op, loops) {"aten::" op, 1, 1, {0}, {N, N, N, N}, Out::kBool, false, false, nullptr, loops, nullptr}
#define EQUALITY(F) FL_SIM_ALL(map2, F)
#define ORDER(F) FL_SIM_ALL_REAL(map2, F)

const Pointwise kRows[] = {
    COMPARE("eq.Tensor", EQUALITY(Eq)),
    COMPARE("eq.Scalar", EQUALITY(Eq)),
    COMPARE("ne.Tensor", EQUALITY(Ne)),
    COMPARE("ne.Scalar", EQUALITY(Ne)),
    COMPARE("lt.Tensor", ORDER(Lt)),
    COMPARE("lt.Scalar", ORDER(Lt)),
    COMPARE("le.Tensor", ORDER(Le)),
    COMPARE("le.Scalar", ORDER(Le)),
    COMPARE("gt.Tensor", ORDER(Gt)),
    COMPARE("gt.Scalar", ORDER(Gt)),
    COMPARE("ge.Tensor", ORDER(Ge)),
    COMPARE("ge.Scalar", ORDER(Ge)),
    COMPARE("logical_and", EQUALITY(LogicalAnd)),
    COMPARE("logical_or", EQUALITY(LogicalOr)),
    COMPARE("logical_xor", EQUALITY(LogicalXor)),
    TEST("logical_not", FL_SIM_ALL(map1, LogicalNot)),
    TEST("isnan", FL_SIM_ALL(map1, IsNan)),
    TEST("isinf", FL_SIM_ALL(map1, IsInf)),
    TEST("isposinf", FL_SIM_ALL_REAL(map1, IsPosInf)),
    TEST("isneginf", FL_SIM_ALL_REAL(map1, IsNegInf)),
    TEST("signbit", FL_SIM_ALL_REAL(map1, Signbit)),
    {"aten::where.self",
     3,
     1,
     {0, 1, 2},
     {kBool, N, N, N},
     Out::kSame,
     false,
     false,
     nullptr,
     FL_SIM_ALL(select, void),
     nullptr},
    // out = mask ? value : self
    {"aten::masked_fill.Scalar",
     3,
     1,
     {1, 2, 0},
     {kBool, N, N, N},
     Out::kSame,
     false,
     true,
     nullptr,
     FL_SIM_ALL(select, void),
     nullptr},
    {"aten::masked_fill.Tensor",
     3,
     1,
     {1, 2, 0},
     {kBool, N, N, N},
     Out::kSame,
     false,
     true,
     nullptr,
     FL_SIM_ALL(select, void),
     nullptr},
};

}  // namespace

PointwiseTable compare_table() { return {kRows, std::size(kRows)}; }

}  // namespace fl_sim::FL_SIM_ISA
