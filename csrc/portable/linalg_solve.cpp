// SPDX-License-Identifier: Apache-2.0
// Systems of equations: LU, Cholesky and LDL' factorisations, triangles, inverses, determinants.
#include <algorithm>

#include "linalg.h"

namespace torch_fl::portable {
namespace {

constexpr const char* kChecks = "check_errors wants the host to read the info";
constexpr const char* kNoPivots = "an LU factorisation without pivots";

#define LOAD_A "    la_copy(work, p.n, 1, V(a), p.m, p.n);\n"
#define STORE_LU "    la_copy(V(lu), work, p.n, 1, p.m, p.n);\n"

/// Then the LU of a determinant, which its gradient uses, is PyTorch's of the transpose.
bool is_dense(const fl_value& value) {
  return value.kind == FL_TENSOR && (value.u.tensor->flags & FL_TENSOR_CONTIGUOUS) != 0;
}

// ---- LU ----

Problem& add_lu(Problem& problem, const fl_tensor* lu, const fl_tensor* pivots) {
  problem.out("lu", lu, 2).out("pivots", pivots, 1, FL_INT32);
  const int64_t m = problem.rows("a"), n = problem.columns("a");
  return problem.number("m", m).number("n", n).work(m * n);
}

const char* lu_factor(const fl_call& call, Problems& problems) {
  if (!flag(call.args[1])) return kNoPivots;
  if (flag(call.args[2])) return kChecks;
  Problem problem(call, LOAD_A "    *info = la_lu(work, p.m, p.n, p.n, pivots, pivots_r);\n" STORE_LU);
  problem.in("a", call.args[0], 2).out("info", call.outs[2], 0, FL_INT32);
  problems.push_back(add_lu(problem, call.outs[0], call.outs[1]));
  return nullptr;
}

#define FACTORS                                            \
  "    la_triangle(V(l), work, p.n, 1, p.m, p.k, 1, 1);\n" \
  "    la_triangle(V(u), work, p.n, 1, p.k, p.n, 0, 0);\n"
const char* lu(const fl_call& call, Problems& problems) {
  if (!flag(call.args[1])) return kNoPivots;
  Problem problem(call, LOAD_A
                  "    GLOBAL i32* const pivots = (GLOBAL i32*)(work + p.m * p.n);\n"
                  "    la_lu(work, p.m, p.n, p.n, pivots, 1);\n" FACTORS
                  "    la_permutation(V(perm), pivots, 1, p.m, p.k);\n");
  problem.in("a", call.args[0], 2).out("perm", call.outs[0], 2).out("l", call.outs[1], 2).out("u", call.outs[2], 2);
  const int64_t m = problem.rows("a"), n = problem.columns("a"), k = std::min(m, n);
  problems.push_back(problem.number("m", m).number("n", n).number("k", k).work(m * n + k));
  return nullptr;
}

const char* lu_unpack(const fl_call& call, Problems& problems) {
  const bool data = flag(call.args[2]), pivots = flag(call.args[3]);
  if (data) {
    Problem problem(call,
                    "    la_triangle(V(l), V(lu), p.m, p.k, 1, 1);\n    la_triangle(V(u), V(lu), p.k, p.n, 0, 0);\n");
    problem.in("lu", call.args[0], 2).out("l", call.outs[1], 2).out("u", call.outs[2], 2);
    const int64_t m = problem.rows("lu"), n = problem.columns("lu");
    problems.push_back(problem.number("m", m).number("n", n).number("k", std::min(m, n)));
  }
  if (pivots) {
    Problem problem(call, "    la_permutation(V(perm), pivots, pivots_r, p.m, p.k);\n");
    problem.in("pivots", call.args[1], 1, FL_INT32).out("perm", call.outs[0], 2);
    problems.push_back(problem.number("m", problem.rows("perm")).number("k", problem.rows("pivots")));
  }
  return nullptr;
}

// The right-hand side in rows: `k` columns, of which a vector is one.
#define LOAD_B "    la_copy(work, p.k, 1, V(b), p.n, p.k);\n"
#define STORE_X "    la_copy(V(x), work, p.k, 1, p.n, p.k);\n"

Problem& add_sides(Problem& problem, const fl_value& b, const fl_tensor* x, int dims, bool left) {
  problem.in("b", b, dims).out("x", x, dims).transpose("b", !left).transpose("x", !left);
  const int64_t n = problem.rows("b"), k = problem.columns("b");
  return problem.number("n", n).number("k", k).work(n * k);
}

/// X solves A X = B, or X A = B where not `left`, for the transpose of A where `transposed`.
Problem lu_solution(const fl_call& call, const fl_tensor* lu, const fl_tensor* pivots, const fl_value& b,
                    const fl_tensor* x, int dims, bool left, bool transposed) {
  Problem problem(
      call, LOAD_B "    la_lu_solve(V(lu), pivots, pivots_r, work, p.k, 1, p.n, p.k, (int)p.transposed);\n" STORE_X);
  problem.in("lu", lu, 2).in("pivots", pivots, 1, FL_INT32);
  return add_sides(problem, b, x, dims, left).number("transposed", transposed == left ? 1 : 0);
}

const char* lu_solve(const fl_call& call, Problems& problems) {
  if (call.args[0].kind != FL_TENSOR || call.args[1].kind != FL_TENSOR) return "arguments that are no tensors";
  problems.push_back(lu_solution(call, call.args[0].u.tensor, call.args[1].u.tensor, call.args[2], call.outs[0], 2,
                                 flag(call.args[3]), flag(call.args[4])));
  return nullptr;
}

const char* solve(const fl_call& call, Problems& problems) {
  if (flag(call.args[3])) return kChecks;
  Problem factors(call, LOAD_A "    *info = la_lu(work, p.m, p.n, p.n, pivots, pivots_r);\n" STORE_LU);
  factors.in("a", call.args[0], 2).out("info", call.outs[3], 0, FL_INT32);
  problems.push_back(add_lu(factors, call.outs[1], call.outs[2]));
  if (problems[0].fault() != nullptr || call.args[1].kind != FL_TENSOR) return nullptr;
  const fl_tensor &a = *call.args[0].u.tensor, &b = *call.args[1].u.tensor;
  const bool vector = b.ndim == 1 || (b.ndim == a.ndim - 1 && std::equal(b.sizes, b.sizes + b.ndim, a.sizes));
  problems.push_back(lu_solution(call, call.outs[1], call.outs[2], call.args[1], call.outs[0], vector ? 1 : 2,
                                 flag(call.args[2]), false));
  return nullptr;
}

const char* inverse(const fl_call& call, Problems& problems) {
  if (flag(call.args[1])) return kChecks;
  Problem problem(call, LOAD_A
                  "    GLOBAL T* const x = work + p.n * p.n;\n"
                  "    GLOBAL i32* const pivots = (GLOBAL i32*)(x + p.n * p.n);\n"
                  "    *info = la_lu(work, p.n, p.n, p.n, pivots, 1);\n"
                  "    la_fill(x, p.n, 1, p.n, p.n, 0, 1);\n"
                  "    la_lu_solve(work, p.n, 1, pivots, 1, x, p.n, 1, p.n, p.n, 0);\n"
                  "    la_copy(V(out), x, p.n, 1, p.n, p.n);\n");
  problem.in("a", call.args[0], 2).out("out", call.outs[0], 2).out("info", call.outs[1], 0, FL_INT32);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("m", n).number("n", n).work(2 * n * n + n));
  return nullptr;
}

const char* determinant(const fl_call& call, Problems& problems) {
  Problem problem(call, LOAD_A "    la_lu(work, p.m, p.n, p.n, pivots, pivots_r);\n" STORE_LU
                               "    T product = 1;\n"
                               "    for (i64 i = 0; i < p.n; ++i) {\n"
                               "      const T v = work[i * (p.n + 1)];\n"
                               "      product *= pivots[i * pivots_r] == i + 1 ? v : -v;\n    }\n"
                               "    *det = product;\n");
  problem.in("a", call.args[0], 2).transpose("a", is_dense(call.args[0])).out("det", call.outs[0], 0);
  problems.push_back(add_lu(problem, call.outs[1], call.outs[2]));
  return nullptr;
}

const char* log_determinant(const fl_call& call, Problems& problems) {
  Problem problem(call, LOAD_A "    la_lu(work, p.m, p.n, p.n, pivots, pivots_r);\n" STORE_LU
                               "    T turns = 1, sum = 0;\n"
                               "    for (i64 i = 0; i < p.n; ++i) {\n"
                               "      const T v = work[i * (p.n + 1)];\n"
                               "      sum += log(fabs(v));\n"
                               "      turns *= v > 0 ? (T)1 : (v < 0 ? (T)-1 : (v == 0 ? (T)0 : v));\n"
                               "      if (pivots[i * pivots_r] != i + 1) turns = -turns;\n    }\n"
                               "    *sign = turns;\n    *logabs = sum;\n");
  problem.in("a", call.args[0], 2).transpose("a", is_dense(call.args[0]));
  problem.out("sign", call.outs[0], 0).out("logabs", call.outs[1], 0);
  problems.push_back(add_lu(problem, call.outs[2], call.outs[3]));
  return nullptr;
}

// ---- Cholesky: of the transpose where the upper triangle is meant ----

const char* cholesky(const fl_call& call, Problems& problems) {
  if (flag(call.args[2])) return kChecks;
  const bool upper = flag(call.args[1]);
  Problem problem(call, LOAD_A
                  "    *info = la_cholesky(work, p.n, p.n);\n"
                  "    la_triangle(V(l), work, p.n, 1, p.n, p.n, 1, 0);\n");
  problem.in("a", call.args[0], 2).out("l", call.outs[0], 2).out("info", call.outs[1], 0, FL_INT32);
  problem.transpose("a", upper).transpose("l", upper);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("m", n).number("n", n).work(n * n));
  return nullptr;
}

#define BOTH_TRIANGLES                                           \
  "    la_solve_triangle(V(a), work, p.k, 1, p.n, p.k, 1, 0);\n" \
  "    la_solve_triangle(TRANSPOSED(a), work, p.k, 1, p.n, p.k, 0, 0);\n" STORE_X

const char* cholesky_inverse(const fl_call& call, Problems& problems) {
  Problem problem(call, "    la_fill(work, p.n, 1, p.n, p.n, 0, 1);\n" BOTH_TRIANGLES);
  problem.in("a", call.args[0], 2).transpose("a", flag(call.args[1])).out("x", call.outs[0], 2);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("n", n).number("k", n).work(n * n));
  return nullptr;
}

const char* cholesky_solve(const fl_call& call, Problems& problems) {
  Problem problem(call, LOAD_B BOTH_TRIANGLES);
  problem.in("a", call.args[1], 2).transpose("a", flag(call.args[2]));
  problems.push_back(add_sides(problem, call.args[0], call.outs[0], 2, true));
  return nullptr;
}

// ---- Triangles ----

#define SOLVE_TRIANGLE "    la_solve_triangle(V(a), work, p.k, 1, p.n, p.k, (int)p.lower, (int)p.unit);\n"

const char* solve_triangular(const fl_call& call, Problems& problems) {
  const bool upper = flag(call.args[2]), left = flag(call.args[3]);
  Problem problem(call, LOAD_B SOLVE_TRIANGLE STORE_X);
  problem.in("a", call.args[0], 2).transpose("a", !left);
  add_sides(problem, call.args[1], call.outs[0], 2, left);
  problems.push_back(problem.number("lower", upper != left ? 1 : 0).number("unit", call.args[4].u.i));
  return nullptr;
}

const char* triangular_solve(const fl_call& call, Problems& problems) {
  const bool upper = flag(call.args[2]), transposed = flag(call.args[3]);
  Problem problem(call, LOAD_B SOLVE_TRIANGLE STORE_X);
  problem.in("a", call.args[1], 2).transpose("a", transposed);
  add_sides(problem, call.args[0], call.outs[0], 2, true);
  problems.push_back(problem.number("lower", upper == transposed ? 1 : 0).number("unit", call.args[4].u.i));
  Problem copy(call, "    la_copy(V(to), V(a), p.n, p.n);\n");
  copy.in("a", call.args[1], 2).out("to", call.outs[1], 2);
  problems.push_back(copy.number("n", copy.rows("a")));
  return nullptr;
}

// ---- LDL' ----

const char* ldl_factor(const fl_call& call, Problems& problems) {
  if (flag(call.args[2])) return kChecks;
  Problem problem(call,
                  "    la_triangle(work, p.n, 1, V(a), p.n, p.n, 1, 0);\n"
                  "    *info = la_ldl(work, p.n, 1, pivots, pivots_r, p.n);\n"
                  "    la_copy(V(ld), work, p.n, 1, p.n, p.n);\n",
                  {"linalg_ldl.h"});
  problem.in("a", call.args[0], 2).out("ld", call.outs[0], 2).out("pivots", call.outs[1], 1, FL_INT32);
  problem.out("info", call.outs[2], 0, FL_INT32);
  const int64_t n = problem.rows("a");
  problems.push_back(problem.number("n", n).work(n * n));
  return nullptr;
}

const char* ldl_solve(const fl_call& call, Problems& problems) {
  Problem problem(call, LOAD_B "    la_ldl_solve(V(ld), pivots, pivots_r, work, p.k, 1, p.n, p.k);\n" STORE_X,
                  {"linalg_ldl.h"});
  problem.in("ld", call.args[0], 2).in("pivots", call.args[1], 1, FL_INT32);
  problems.push_back(add_sides(problem, call.args[2], call.outs[0], 2, true));
  return nullptr;
}

const LinearAlgebra kOperators[] = {
    {"aten::linalg_lu_factor_ex", lu_factor},
    {"aten::linalg_lu", lu},
    {"aten::lu_unpack", lu_unpack},
    {"aten::linalg_lu_solve", lu_solve},
    {"aten::_linalg_solve_ex", solve},
    {"aten::linalg_inv_ex", inverse},
    {"aten::_linalg_det", determinant},
    {"aten::_linalg_slogdet", log_determinant},
    {"aten::linalg_cholesky_ex", cholesky},
    {"aten::cholesky_inverse", cholesky_inverse},
    {"aten::_cholesky_solve_helper", cholesky_solve},
    {"aten::linalg_solve_triangular", solve_triangular},
    {"aten::triangular_solve", triangular_solve},
    {"aten::linalg_ldl_factor_ex", ldl_factor},
    {"aten::linalg_ldl_solve", ldl_solve},
};

}  // namespace

void add_solvers(Rows& rows, runtime::Chip& chip, Language language) {
  for (const LinearAlgebra& line : kOperators) add_linear_algebra(rows, chip, language, line);
}

}  // namespace torch_fl::portable
